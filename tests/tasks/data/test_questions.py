"""Questions and their answers as files have them."""

from __future__ import annotations

import json

import pytest

from harness.common.errors import RequestError
from tasks.data.questions import questions


def test_answers_are_texts_with_a_word(tmp_path):
    (tmp_path / "nq-open").mkdir()
    file = tmp_path / "nq-open" / "dev.jsonl"
    given = [["Paris", "+", ""], "Paris", None, [], "+"]
    rows = [{"question": f"q{number}", "answer": answer} for number, answer in enumerate(given)]
    rows.append({"question": "of WikiQA", "answer": "a candidate", "label": 0})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = questions("natural-questions", (tmp_path,), hub=False)
    assert [one.answers for one in read] == [("Paris",), ("Paris",), (), (), (), ()]
    for strange in ("[7]", "7"):
        file.write_text('{"question": "a"}\n{"question": "b", "answer": ' + strange + "}\n")
        with pytest.raises(RequestError, match=r"dev\.jsonl:2 cannot be read as questions .*(7|int)"):
            questions("natural-questions", (tmp_path,), hub=False)


@pytest.mark.parametrize("row", ['{"other": 1}', '{"question": null}', '["question"]', "{"])
def test_damaged_questions_are_one_line(tmp_path, row):
    (tmp_path / "nq-open").mkdir()
    (tmp_path / "nq-open" / "dev.jsonl").write_text(row + "\n")
    with pytest.raises(RequestError, match=r"cannot be read as questions|dev\.jsonl:1 is not a JSON value"):
        questions("natural-questions", (tmp_path,), hub=False)
