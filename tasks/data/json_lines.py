"""Files with a JSON value on each line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.common.errors import RequestError


def json_lines(file: Path) -> Iterator[tuple[int, Any]]:
    """Number (from 1) and value of each line that is not blank.

    Lines end in a line feed alone: U+2028, U+0085 and the like are characters of a string. A byte order mark is
    skipped. Raises `RequestError` with file and line for what is not UTF-8 or not JSON, and for half of a surrogate
    pair, which no tokenizer reads.
    """
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, ValueError) as error:
        raise RequestError(f"{file} cannot be read as JSON lines: {error}") from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                value = json.loads(line)
                if "\\ud" in line.lower():
                    json.dumps(value, ensure_ascii=False).encode()
            except ValueError as error:
                raise RequestError(f"{file}:{number} is not a JSON value in UTF-8: {error}") from error
            yield number, value
