"""Published numbers are found by label, converted in one place, and never guessed."""

from pathlib import Path

import pytest

from harness.common.errors import RequestError
from harness.contracts.metrics import Metric
from harness.show import published
from tests.harness.rows import new_row

own = new_row().metric  # of this name, as the harness declares it
HEADER = "table,row,column,metric,value,unit,note\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper" / "t.csv").write_text(
        HEADER
        + "Table 1,kNN-LM,WikiText-103 / FoSS=0,perplexity,16.650,,\n"
        + "Table 1,kNN-LM,WikiText-103 / FoSS=0.5,perplexity,17.0,,\n"
        + "Table 1,RetoMaton,some / FoSS=1,perplexity,1,,\n"
        + "Table 2,RetoMaton,some / FoSS=1,perplexity,2,,\n"
        + "Table 1,RetoMaton,WikiText-103,foss,81,%,\n"
        + "Table 1,count,Pile,latency_ms,12,ms,\n"
        + "Table 1,index,Pile,storage,2,TiB,\n"
        + "Table 1,index,Pile,agreement_pct,47,%,\n"
    )
    return tmp_path


def test_labels_match_exactly_and_nothing_is_guessed(folder):
    numbers = published.load(["paper/t.csv"], folder)
    perplexity = Metric("perplexity")
    assert published.lookup(numbers, "kNN-LM", "WikiText-103 / FoSS=0", perplexity).text == "16.650"
    assert published.lookup(numbers, "kNN-LM", "WikiText-103 / FoSS=0.5", perplexity).value == 17.0
    for row, column, metric in (
        ("kNN-LM", "", "perplexity"),
        ("kNN-LM", "FoSS=0", "perplexity"),  # the end of a label is not the label
        ("kNN-LM", "WikiText-103 (WikiText-2) / FoSS=0", "perplexity"),
        ("kNN-LM", "WikiText-103 / FoSS=0", "bleu"),
        ("LM", "WikiText-103 / FoSS=0", "perplexity"),
        ("RetoMaton", "some / FoSS=1", "perplexity"),  # two tables print different numbers: neither is taken
    ):
        assert published.lookup(numbers, row, column, Metric(metric)) is None


@pytest.mark.parametrize(
    ("row", "column", "metric", "value"),
    [
        ("RetoMaton", "WikiText-103", own("foss"), 0.81),
        ("count", "Pile", own("latency_s"), 0.012),
        ("count", "Pile", Metric("latency_ms", unit="ms"), 12.0),
        ("count", "Pile", Metric("latency_ms"), 12.0),  # without a unit, the number of this name as it is
        ("count", "Pile", Metric("latency_us", unit="µs"), 12_000.0),
        ("count", "Pile", Metric("latency", unit="ms"), 12.0),  # the unit is declared, whatever the name ends in
        ("index", "Pile", Metric("storage_bytes", unit="bytes"), 2 * 2**40),
        ("index", "Pile", Metric("storage", unit="MiB"), 2 * 2**20),
        ("index", "Pile", Metric("agreement_pct", unit="%"), 47.0),
        ("index", "Pile", Metric("agreement"), 0.47),
    ],
)
def test_units_are_converted_to_those_of_our_metric(folder, row, column, metric, value):
    found = published.lookup(published.load(["paper/t"], folder), row, column, metric)
    assert found.as_measured(metric) == pytest.approx(value, rel=1e-12)


def test_ratios_of_what_is_not_relative_to_the_exact_computation_need_the_papers_data():
    assert published.comparable(own("speedup"), False) and published.comparable(own("precision_at_5"), False)
    perplexity, agreement = Metric("perplexity"), Metric("agreement", relative=True)
    assert not published.comparable(perplexity, False) and published.comparable(perplexity, True)
    assert published.comparable(agreement, False)


def test_a_missing_file_names_the_nearest(folder):
    with pytest.raises(RequestError, match=r"did you mean 'paper/t\.csv'"):
        published.load(["paper/t1.csv"], folder)


@pytest.mark.parametrize("line", ["Table 1,a,b,c,many,,\n", "Table 1,a,b\n"])
def test_a_broken_line_is_named(folder, line):
    (folder / "paper" / "bad.csv").write_text(HEADER + line)
    with pytest.raises(RequestError, match=r"bad\.csv line 2"):
        published.load(["paper/bad"], folder)


@pytest.mark.parametrize("header", ["", "table,row,column\n", HEADER.replace("unit", "units")])
def test_another_header_is_refused_even_without_a_line_below_it(folder, header):
    (folder / "paper" / "bad.csv").write_text(header)
    with pytest.raises(RequestError, match=r"bad\.csv line 1: the columns must be table, row"):
        published.load(["paper/bad"], folder)


def test_without_a_checkout_the_error_says_what_is_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(published, "ROOT", tmp_path / "site-packages")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError, match="install the package again, or run the command from the top"):
        published.load(["l2s/table1"])


def test_every_file_of_the_repository_loads_and_says_what_it_printed():
    root = published.published_folder()
    files = sorted(f.relative_to(root).as_posix() for f in root.rglob("*.csv"))
    numbers = published.load(files)
    assert len(files) > 30 and len(numbers) > 1000
    assert all(
        float(n.text) == n.value == n.as_measured(Metric(n.metric)) or n.unit in published._UNITS for n in numbers
    )
