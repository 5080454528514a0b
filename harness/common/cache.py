"""The cache of what fitting builds: keyed by the hash of all that determines it, the code that builds included
(`harness.common.sources`), written atomically, opened by any process. `Cache` is the store on disk (folders named
`<name>/<hash>`), `CellArtifacts` one cell's view of it."""

from __future__ import annotations

import fcntl
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.common import sources
from harness.common.errors import RequestError, writing
from harness.common.files import default_cache, digest
from harness.common.parts import HERE, Parts

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Cache:
    """Folders by name and key. A folder appears only when it is complete (built elsewhere, then renamed)."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or default_cache()

    def build(
        self,
        name: str,
        key: Mapping[str, Any],
        build: Callable[[Path], None],
        builder: Callable[..., Any] | None = None,
    ) -> Path:
        """Path of the folder for this key, built by `build(folder)` when absent.

        The key includes the code of the module that defines `build`, or of `builder`'s if `build` only stores what
        that makes. Callers that build through the same module share the folder. Processes that need it at the same
        time wait for the first. A build that raises leaves only `<hash>.partial`, from which the next call may
        continue. Raises `MachineError` when the disk is full or the folder cannot be written.
        """
        identity = {"key": dict(key), "code": sources.built_by(builder or build)}
        final = self.root / name / digest(identity)
        if (final / "key.json").exists():
            return final
        with writing(f"the artifact {final}", "free space or set HARNESS_CACHE"), exclusive(final.with_suffix(".lock")):
            if (final / "key.json").exists():  # another process was first
                return final
            partial = final.with_suffix(".partial")
            partial.mkdir(parents=True, exist_ok=True)
            record = {**identity, "seconds": _timed_build(build, partial)}
            (partial / "key.json").write_text(json.dumps(record, indent=1, sort_keys=True))
            if final.exists():  # a folder without its key was never complete
                shutil.rmtree(final)
            partial.rename(final)
        return final

    def value(self, name: str, key: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        """`build` for a JSON-able value: cached by name and key, made by `make()` when absent."""

        def build(folder: Path) -> None:
            (folder / "value.json").write_text(json.dumps(make()))

        return json.loads((self.build(name, key, build, builder=make) / "value.json").read_text())


def _timed_build(build: Callable[[Path], None], partial: Path) -> float:
    """Seconds of a build, including earlier attempts that ended in an error or an interrupt."""
    log = partial.with_suffix(".seconds")
    before = float(log.read_text()) if log.exists() else 0.0
    started = time.perf_counter()
    try:
        build(partial)
    except BaseException:
        log.write_text(str(before + time.perf_counter() - started))
        raise
    log.unlink(missing_ok=True)
    return before + time.perf_counter() - started


@contextmanager
def exclusive(lock: Path, wait: bool = True) -> Iterator[FileIO]:
    """Hold a file, open for reading and appending. Others that request it wait, or have a `BlockingIOError`."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "a+b", buffering=0) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield handle


def salt(device: str, libraries: Mapping[str, str], subject: Any) -> dict[str, Any]:
    """The part of a method's artifact keys that all have: the device, the libraries' versions, and the code of the
    model or layer that fitting reads. The weights of that model or layer are in the keys themselves."""
    return {"device": device, "libraries": dict(libraries), "subject": sources.built_by(type(subject))}


class CellArtifacts:
    """The results of `fit` for other processes: named files and folders, and small JSON values. Files are cached by the
    hash of all that determines them, so a method and its baseline share equal artifacts.

    parts: runs the parts of a build, here or on a cluster. values: tuned parameters and similar, JSON-able, passed from
    `fit` to `open`.
    """

    def __init__(
        self, cache: Cache, paths: dict[str, str] | None = None, values: dict[str, Any] | None = None,
        salt: Mapping[str, Any] | None = None, parts: Parts = HERE,
    ) -> None:  # fmt: skip
        self.cache = cache
        self.parts = parts
        self.salt = dict(salt or {})
        self.paths = dict(paths or {})
        self.values = dict(values or {})
        self.spent = 0.0  # seconds spent in `build` by this process
        self.cost = 0.0  # seconds of building, those of cached artifacts included

    def build(self, name: str, key: Mapping[str, Any], build: Callable[[Path], None]) -> Path:
        """Path of the artifact with this key. If there is none, `build` fills its folder first."""
        started = time.perf_counter()
        path = self.cache.build(name, {"key": dict(key), **self.salt}, build)
        self.spent += time.perf_counter() - started
        self.cost += json.loads((path / "key.json").read_text())["seconds"]
        self.paths[name] = str(path)
        return path

    def path(self, name: str) -> Path:
        """Path of the artifact that `fit` built under this name. Raises `RequestError` when there is none."""
        if name not in self.paths:
            raise RequestError(
                f"no artifact {name!r} was built by fit; built: {', '.join(sorted(self.paths)) or 'none'}"
            )
        return Path(self.paths[name])

    def manifest(self) -> dict[str, Any]:
        """JSON-able state for another process: `CellArtifacts(cache, **manifest)`."""
        return {"paths": self.paths, "values": self.values}


class SharedResults:
    """Results that cells share, only in the quality pass (neighbours of every evaluation position, ...). Those that
    fitting shares, such as the neighbours of validation text, are among its artifacts."""

    def __init__(self, cache: Cache | CellArtifacts, salt: Mapping[str, Any] | None = None) -> None:
        self.cache = cache
        self.salt = dict(salt or {})

    def arrays(
        self, name: str, key: Mapping[str, Any], compute: Callable[[], dict[str, NDArray[Any]]]
    ) -> dict[str, NDArray[Any]]:
        """The arrays stored under this key, one `.npy` each, computed once and memory-mapped afterwards."""
        import numpy as np

        def build(folder: Path) -> None:
            for part, array in compute().items():
                np.save(folder / f"{part}.npy", array)

        folder = self.cache.build(f"shared-{name}", {"key": dict(key), **self.salt}, build)
        return {file.stem: np.load(file, mmap_mode="r") for file in sorted(folder.glob("*.npy"))}
