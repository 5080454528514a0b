"""JSON lines as people write them: marks, separators inside strings, half a character."""

from __future__ import annotations

import pytest

from harness.common.errors import RequestError
from tasks.data.json_lines import json_lines


def test_lines_end_at_line_feeds_alone_and_a_byte_order_mark_is_no_text(tmp_path):
    file = tmp_path / "some.jsonl"
    file.write_bytes('\ufeff{"a": "one\u2028two\u0085three"}\r\n\n["\\ud83d\\ude00"]'.encode())
    assert list(json_lines(file)) == [(1, {"a": "one\u2028two\u0085three"}), (3, ["\U0001f600"])]


@pytest.mark.parametrize("line", ["{", '"\\ud83d"', '{"\\uDE00": 1}'])
def test_what_is_no_text_is_refused_by_file_and_line(tmp_path, line):
    file = tmp_path / "some.jsonl"
    file.write_text(f"1\n{line}\n")
    with pytest.raises(RequestError, match=r"some\.jsonl:2 is not a JSON value in UTF-8"):
        list(json_lines(file))


def test_another_encoding_is_refused(tmp_path):
    (tmp_path / "some.jsonl").write_bytes('"\xe9"'.encode("latin-1"))
    with pytest.raises(RequestError, match="cannot be read as JSON lines"):
        list(json_lines(tmp_path / "some.jsonl"))
