"""GGUF files: read by `transformers`, dequantised, and written once as a folder in the hub's layout."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

from harness.common.cache import Cache
from harness.common.checkpoints import INSTALL
from harness.common.errors import NotInstalledError, RequestError, reason
from harness.common.memory import check_room
from harness.common.progress import Progress

FACTS = "gguf.json"
_TYPE, _LICENCE = "general.file_type", "general.license"


def converted(file: Path, sha256: str, cache: Cache) -> Path:
    """The folder of a causal model in float32 with its tokenizer, and `gguf.json`: the file's quantisation and licence.

    sha256: of the file. An output layer of the file's own stays apart from the embedding; without one the two are tied.
    Raises `RequestError` for what is no GGUF file, a damaged one, an architecture that transformers does not read, and
    a model that does not fit the memory; `NotInstalledError` when `gguf` or `accelerate` is missing.
    """
    try:
        import accelerate  # noqa: F401
        import gguf
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
        from transformers.utils import logging
    except ImportError as error:
        raise NotInstalledError(f"reading {file.name} needs gguf, accelerate, transformers 5.23: {INSTALL}") from error

    def build(folder: Path) -> None:
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        progress, stage = Progress(), f"reading {file.name}, once"
        try:
            progress.update(stage, 0, 3, note="tokenizer")
            header = gguf.GGUFReader(file)
            # the tensors, and the module that they are copied to
            check_room(file.name, 2 * 4 * sum(int(tensor.n_elements) for tensor in header.tensors))
            where = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name, "local_files_only": True}
            AutoTokenizer.from_pretrained(**where).save_pretrained(folder)
            progress.update(stage, 1, 3, note="weights")
            module, report = AutoModelForCausalLM.from_pretrained(
                **where, dtype="float32", output_loading_info=True,
                quantization_config=GgufConfig(gguf_file=file.name, dequantize=True),
            )  # fmt: skip
            if report["missing_keys"]:  # transformers would initialise them at random
                raise ValueError(f"it lacks {', '.join(sorted(report['missing_keys'])[:3])}")
        except RequestError:
            raise
        except Exception as error:  # for a damaged or foreign file transformers may raise anything
            raise RequestError(f"transformers cannot read {file.name} as a GGUF model: {reason(error)}") from error
        progress.update(stage, 2, 3, note="writing")
        module.save_pretrained(folder)
        stated = {name: header.fields[name].contents() for name in (_TYPE, _LICENCE) if name in header.fields}
        kind = gguf.LlamaFileType(stated[_TYPE]).name if _TYPE in stated else "unknown quantisation"
        facts = {"type": kind.removeprefix("MOSTLY_").removeprefix("ALL_"), "licence": stated.get(_LICENCE, "unknown")}
        (folder / FACTS).write_text(json.dumps(facts))
        progress.update(stage, 3, 3)

    libraries = {name: version(name) for name in ("gguf", "transformers")}
    return cache.build("gguf", {"sha256": sha256, "libraries": libraries}, build)
