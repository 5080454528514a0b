"""Text data sets of the Hugging Face hub, or of a local folder in the hub's layout (parquet, JSON lines or text)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.common.errors import RequestError, reason
from tasks.data.text import Source, Split
from tasks.data.text.articles import articles


class HubAddress:
    """`id`, `id:config`, either with `@revision`, or a local folder in the hub's layout, with `:config` or without.

    A hub data set is fetched once and assumed not to change under its address; a folder is identified by its files.
    With a revision such as `refs/convert/parquet` a data set that is only published as a script can be read.
    """

    def __init__(self, dataset: str) -> None:
        """Raises `RequestError` for what looks like a folder and is not one."""
        self.name = dataset
        self.identity, self.config, self.revision = _parts(dataset)
        self.local = Path(self.identity).expanduser()
        if not self.local.is_dir() and (self.identity.startswith(("/", ".", "~")) or self.identity.count("/") > 1):
            raise RequestError(f"no data folder {self.local}; give an existing folder in the hub's layout, or a hub id")

    def fingerprint(self) -> dict[str, Any]:
        """Everything that determines the data, JSON-able and found without reading them."""
        key: dict[str, Any] = {"source": "hub", "dataset": self.identity, "config": self.config}
        if self.revision:
            key["revision"] = self.revision
        if self.local.is_dir():
            files = [file for file in sorted(self.local.rglob("*")) if file.is_file()]
            key["dataset"] = str(self.local.resolve())
            key["files"] = [[str(f.relative_to(self.local)), f.stat().st_size, f.stat().st_mtime_ns] for f in files]
        return key

    def rows(self, split: str) -> Any:
        """The `datasets.Dataset` of a split. Raises `RequestError` in one line when it cannot be loaded."""
        import datasets

        datasets.disable_progress_bars()
        try:
            return datasets.load_dataset(*self._arguments(), split=split, revision=self.revision or None)
        except Exception as error:  # no network, no such id, config or split, foreign files: too many classes to list
            generation_failed = type(error).__name__ == "DatasetGenerationError"  # its text gives no reason
            cause = error.__cause__ if generation_failed and error.__cause__ else error
            hint = "check the folder" if self.local.is_dir() else "check the id and the network, or use a folder"
            raise RequestError(f"no {split} split of the data set {self.name}: {reason(cause)}; {hint}") from error

    def _arguments(self) -> tuple[str, ...]:
        """Arguments of `load_dataset`. A config that a local folder does not declare is its subfolder."""
        if not self.local.is_dir():
            return (self.identity, self.config) if self.config else (self.identity,)
        declared = (self.local / "README.md").exists()
        if self.config and not declared and (self.local / self.config).is_dir():
            return (str((self.local / self.config).resolve()),)
        return (str(self.local.resolve()), self.config) if self.config else (str(self.local.resolve()),)


class Hub(Source):
    """`datasets.load_dataset` by a `HubAddress`, such as `Salesforce/wikitext:wikitext-103-raw-v1`.

    The column `text` holds a document per row or, as in WikiText, a line per row; lines are joined to articles.
    """

    def __init__(self, dataset: str) -> None:
        if not dataset:
            raise RequestError("source hub needs an id; give --set task.dataset=Salesforce/wikitext:wikitext-2-raw-v1")
        self.name = dataset
        self.address = HubAddress(dataset)

    def fingerprint(self, split: Split) -> Mapping[str, Any]:
        return self.address.fingerprint()

    def documents(self, split: Split) -> Sequence[str]:
        rows = self.address.rows(split)
        if "text" not in rows.column_names:
            columns = ", ".join(rows.column_names)
            raise RequestError(f"the data set {self.name} has no column `text`, only {columns}")
        texts: list[str] = rows["text"][:]
        if not all(isinstance(text, str) for text in texts):
            raise RequestError(f"the data set {self.name} has rows of the {split} split whose `text` is not text")
        lines = [text.removesuffix("\n") for text in texts]
        if not any("\n" in line for line in lines):
            found = articles(lines)
            if len(found) > 1:
                return found
        return [text.rstrip() + "\n" for text in texts if text.strip()]


def _parts(dataset: str) -> tuple[str, str, str]:
    """Id or path, config and revision. The path of an existing folder may contain `:` and `@`."""
    path, colon, config = dataset.rpartition(":")
    if Path(dataset).expanduser().is_dir():
        return dataset, "", ""
    if colon and Path(path).expanduser().is_dir():
        return path, config, ""
    address, _, revision = dataset.partition("@")
    identity, _, config = address.partition(":")
    return identity, config, revision
