"""What a stored environment says of the machine: an id of what makes timings comparable, and one line for people."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any


def machine_id(environment: Mapping[str, Any]) -> str:
    """Hash of what makes timings comparable: CPU model, cores, memory (to a power of two), GPUs and driver, system, and
    of the processor its numbers, instructions and caches where they are recorded."""
    memory, cpu = environment["memory"]["total"], environment["cpu"]
    facts = [
        cpu["model"],
        environment["cores"],
        round(math.log2(memory)) if memory else None,
        environment["gpus"],
        environment["os"],
        *(cpu[name] for name in ("family", "number", "instructions", "caches") if name in cpu),
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


WIDEST = {"avx512f": "AVX-512", "avx2": "AVX2", "sve": "SVE", "asimd": "NEON"}
FURTHER = {
    "avx512_bf16": "BF16", "avx512_vnni": "VNNI", "avx_vnni": "VNNI", "amx_bf16": "AMX-BF16", "amx_int8": "AMX-INT8",
    "bf16": "BF16", "i8mm": "I8MM",
}  # fmt: skip


def describe(environment: Mapping[str, Any]) -> str:
    """One line for people: `AMD EPYC (family 25 model 17), AVX-512 BF16 VNNI, 32 MiB L3, 2 of 2 cores, 24 GiB, copies
    14 GB/s`, with the GPUs, without what is not recorded."""
    memory, cpu = environment["memory"]["total"], environment["cpu"]
    known, cache, copies = cpu.get("instructions", ()), cpu.get("caches", {}).get("l3_kib"), cpu.get("copy_gb_s")
    widest = [words for name, words in WIDEST.items() if name in known][:1]
    numbers = f" (family {cpu['family']} model {cpu['number']})" if {"family", "number"} <= cpu.keys() else ""
    parts = [
        cpu["model"] + numbers,
        " ".join(dict.fromkeys([*widest, *(words for name, words in FURTHER.items() if name in known)])),
        f"{cache / 1024:g} MiB L3" if cache else "",
        f"{environment['cores']['usable']} of {environment['cores']['total']} cores",
        f"{memory / 2**30:.0f} GiB" if memory else "",
        f"copies {copies:.0f} GB/s" if copies else "",
        *(gpu["name"] for gpu in environment["gpus"] or []),
    ]
    return ", ".join(part for part in parts if part)
