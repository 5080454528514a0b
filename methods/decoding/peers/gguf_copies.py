"""Files that llama.cpp reads, made here: a model's weights in another type, and a static lookup cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from harness.common.errors import NotInstalledError, RequestError
from harness.contracts import Streams


def with_numbers(source: Path, target: Path, numbers: Literal["F32", "BF16"]) -> None:
    """A GGUF file with the weights of another dequantised to float32, and written as such or rounded to bfloat16.
    Vectors stay in float32. One tensor at a time is in memory. Raises `RequestError` for a file of several parts."""
    try:
        from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, Keys, LlamaFileType
        from gguf.quants import dequantize, quantize
    except ImportError as error:
        raise NotInstalledError("gguf is not installed: pip install 'shortcut-harness[peers]'") from error
    reader = GGUFReader(source)
    if Keys.Split.LLM_KV_SPLIT_COUNT in reader.fields:
        raise RequestError(f"{source.name} is one part of several: join them, or leave numbers=file")
    architecture = reader.fields[Keys.General.ARCHITECTURE].contents()
    writer = GGUFWriter(target, architecture)
    writer.add_file_type(LlamaFileType[{"F32": "ALL_F32", "BF16": "MOSTLY_BF16"}[numbers]])
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in (Keys.General.ARCHITECTURE, Keys.General.FILE_TYPE):
            inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=inner)
    types = [GGMLQuantizationType[numbers if len(one.shape) > 1 else "F32"] for one in reader.tensors]
    for tensor, kind in zip(reader.tensors, types, strict=True):
        shape, size = tensor.shape.tolist()[::-1], 4 if kind == GGMLQuantizationType.F32 else 2
        writer.add_tensor_info(tensor.name, shape, np.dtype(np.float32), tensor.n_elements * size, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor, kind in zip(reader.tensors, types, strict=True):
        writer.write_tensor_data(quantize(dequantize(tensor.data, tensor.tensor_type), kind))
    writer.close()


def static_lookup_cache(streams: Streams, vocabulary: int, target: Path) -> None:
    """The file that llama.cpp's `llama-lookup-create` makes of a text: int32, for each pair of tokens the pair, -1 and
    -1 (n-grams have room for four), the number of tokens that followed it, and each of them with its count."""
    keys = [(s[:-2].astype(np.int64) * vocabulary + s[1:-1]) * vocabulary + s[2:] for s in streams if len(s) > 2]
    triples, counts = np.unique(np.concatenate([np.empty(0, np.int64), *keys]), return_counts=True)
    pairs, starts, group, sizes = np.unique(
        triples // vocabulary, return_index=True, return_inverse=True, return_counts=True
    )
    written = np.empty(5 * len(pairs) + 2 * len(triples), np.int32)
    heads = 5 * np.arange(len(pairs)) + 2 * starts
    values: Any
    for place, values in enumerate((pairs // vocabulary, pairs % vocabulary, -1, -1, sizes)):
        written[heads + place] = values
    rows = 5 * (group + 1) + 2 * np.arange(len(triples))
    written[rows], written[rows + 1] = triples % vocabulary, counts
    written.tofile(target)
