"""Documents: what counts as a word and as the same text."""

from __future__ import annotations

import re

from harness.common.documents import content_hash, word_pattern


def test_a_hash_tells_where_documents_end() -> None:
    assert content_hash(iter(["ab", "c"])) == content_hash(["ab", "c"])
    assert len({content_hash(texts) for texts in (["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""], [])}) == 5


def test_a_character_of_a_script_without_blanks_is_a_word() -> None:
    assert re.findall(word_pattern(r"\W", least=2), "I saw 東京 today") == ["saw", "東", "京", "today"]
