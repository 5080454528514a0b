"""Files of lines that belong together."""

from __future__ import annotations

import gzip

import pytest

from harness.common.errors import RequestError
from tasks.data.files import aligned_lines, find_file


def test_lines_end_at_newlines_alone_in_plain_and_in_packed_files(tmp_path):
    plain, packed = tmp_path / "a.txt", tmp_path / "b.txt.gz"
    plain.write_bytes("\ufeff one\rtwo \r\n three\n".encode())  # a carriage return inside a line ends none
    packed.write_bytes(gzip.compress(b"eins\ndrei"))
    assert aligned_lines([plain, packed]) == [["one\rtwo", "three"], ["eins", "drei"]]


def test_files_of_other_lengths_and_damaged_ones_are_named(tmp_path):
    damaged = bytearray(gzip.compress(b"one two three " * 9))
    damaged[10] = 0xFF  # the first byte after the head
    files = {"a.txt": b"one\n", "b.txt": b"one\ntwo\n", "c.txt": b"\xff", "d.gz": b"no gzip", "e.gz": bytes(damaged)}
    for name, text in files.items():
        (tmp_path / name).write_bytes(text)
    with pytest.raises(RequestError, match=r"b\.txt has 2 lines and .*a\.txt has 1"):
        aligned_lines([tmp_path / "a.txt", tmp_path / "b.txt"])
    for name in ("c.txt", "d.gz", "e.gz"):
        with pytest.raises(RequestError, match=f"{name} cannot be read as text"):
            aligned_lines([tmp_path / name])


def test_a_file_is_found_by_its_path_or_under_the_first_root_that_has_it(tmp_path):
    for root in "ab":
        (tmp_path / root).mkdir()
        (tmp_path / root / "both.txt").write_text(root)
    (tmp_path / "b" / "one.txt").write_text("")
    roots = [tmp_path / "a", tmp_path / "b"]
    assert find_file("both.txt", roots) == tmp_path / "a" / "both.txt"
    assert find_file("one.txt", roots) == tmp_path / "b" / "one.txt"
    assert find_file(str(tmp_path / "b" / "both.txt"), roots) == tmp_path / "b" / "both.txt"
    with pytest.raises(RequestError, match=r"no file absent\.txt; tried .*/a/absent\.txt, .*/b/absent\.txt; point"):
        find_file("absent.txt", roots)
