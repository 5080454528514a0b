"""What a metric is follows from its declaration: from the task's or method's class through the row into the reports."""

import os
from dataclasses import asdict, replace

import pytest

from harness.common.statistics import ratio_of_totals
from harness.contracts.metrics import Metric, described
from harness.contracts.ratios import Ratio
from harness.measure.records import qualities
from harness.measure.runner import headline
from harness.measure.store import RowStore
from harness.plan import expansion, recipe
from harness.plan.cell import Cell, Named
from harness.plan.schema import Timing
from harness.show import claims, frame, markup, tables
from methods.knnlm.scorer import KnnLm
from methods.retomaton.scorer import RetoMaton
from tests.harness import running
from tests.harness.made import ratio_in as value
from tests.harness.made import stored_of
from tests.harness.rows import new_row, with_samples

# ------------------------------------------------------------ descriptions


def test_a_star_stands_for_a_whole_number_in_name_and_label():
    metric = Metric("precision_at_*", "precision@*", better="higher")
    found = metric.called("precision_at_10")
    assert (found.name, found.label, found.heading) == ("precision_at_10", "precision@10", "precision@10 ↑")
    for other in ("precision_at_", "precision_at_ten", "precision_at_1_of_2", "precision", "precision_at_*0"):
        assert metric.called(other) is None


def test_a_label_is_the_name_in_words_unless_it_is_given():
    assert Metric("mean_stride").called("mean_stride").heading == "mean stride"
    assert Metric("latency_ms", "latency", "ms", "lower").called("latency_ms").heading == "latency (ms) ↓"
    assert Metric("generation_s", "generation", "s").called("generation_s").heading == "generation"  # cells say it
    assert Metric("generation_s", "generation", "s").called("generation_s").axis == "generation (s)"


# ------------------------------------------------------------ figures that follow from timing samples


def process(part, whole, baseline=200.0, method=100.0):
    pairs = [{"order": "AB", "count": 1, "items": [0], "baseline_ns": [baseline], "method_ns": [method]}] * 3
    phases = {"speed_baseline": {"seconds": {"search": part, "lm": whole - part}}}
    return {"pairs": pairs, "again": None, "hot": [], "phases": phases}


def timed(shares):
    ratio = {"of": {"speed_baseline.search": 1.0}, "per": {"baseline": 1.0}, "equal": None}
    processes = [process(share * 200e-9, 200e-9) if share is not None else process(0.0, 0.0) for share in shares]
    if None in shares:
        processes[shares.index(None)]["phases"] = {}
    return new_row(speed_baseline={"method": "b", "params": {}}, processes=processes, ratios={"share": ratio})


def test_a_ratio_is_of_totals_over_processes_with_their_interval():
    row = timed([0.9, 1.0, 0.95, 0.97, 0.8, 0.99])
    assert row.value("share") == pytest.approx(0.935)
    assert row.interval_of("share") == pytest.approx(ratio_of_totals([0.9, 1.0, 0.95, 0.97, 0.8, 0.99], [1] * 6)[1])
    assert replace(row, metrics={"share": 1.2}).value("share") == pytest.approx(0.935)


def test_a_ratio_that_some_process_lacks_is_none():
    row = timed([0.9] * 5 + [None])
    assert row.value("share") is None and row.numbers["speedup"] == (2.0, (2.0, 2.0))


def saved(ratio, foss, baseline_ns, method_ns, **seconds):
    pairs = [{"count": 1, "baseline_ns": [baseline_ns], "method_ns": [method_ns]}]
    sample = {
        "pairs": pairs,
        "sums": {"method.tokens": 50.0, "method.searches": 50 * (1 - foss)},
        "phases": {"method": {"seconds": {"lm": 1.0}}, "speed_baseline": {"seconds": seconds}},
    }
    return value(asdict(ratio), sample)


def saved_share(*times, **seconds):
    return saved(KnnLm(foss=0.5).ratios["saved_share"], *times, **seconds)


def test_the_saved_share_of_a_process_by_hand():
    """Twice as fast: half of 10 s is saved; searches take 9 s of the baseline's, of which FoSS 0.6 is 5.4."""
    assert saved_share(0.6, 10e9, 5e9, search=7.0, distance=2.0, lm=1.0) == pytest.approx(5 / 5.4)
    assert saved_share(0.5, 10e9, 11e9, search=8.0, lm=2.0) == pytest.approx(-1 / 4)


def test_the_time_that_retomaton_loses_by_hand():
    """FoSS 0.6 of 9 s of search promises 5.4 of 10 s; 5 s are saved."""
    ratios = RetoMaton().ratios
    times = (0.6, 10e9, 5e9)
    assert saved(ratios["lost_share"], *times, search=7.0, distance=2.0) == pytest.approx(0.04)
    assert saved(ratios["saved_time"], *times, search=9.0) == pytest.approx(0.5)
    assert saved(ratios["timed_foss"], *times) == pytest.approx(0.6)


def test_a_product_without_one_of_its_numbers_or_by_nothing_counts_as_absent():
    sample = {"pairs": [{"count": 4, "baseline_ns": [2e9], "method_ns": [1e9]}], "sums": {"none": 0.0}}
    assert value(asdict(Ratio({"baseline*items/method": 1.0}, {"items": 1.0})), sample) == pytest.approx(2.0)
    for term in ("baseline*other", "baseline/other", "baseline/none"):
        assert value(asdict(Ratio({term: 1.0}, {"items": 1.0})), sample) is None
        assert value(asdict(Ratio({"items": 1.0}, {term: 1.0})), sample) is None
    assert Ratio({"a*b/c": 1.0}, {"d": 1.0}).names == {"a", "b", "c", "d"}


def test_nothing_is_saved_without_foss_or_against_what_does_not_search():
    assert KnnLm(foss=0.0).ratios == {}
    assert saved_share(0.6, 10e9, 5e9, lm=1.0) is None


# ------------------------------------------------------------ claims

CLAIM = """
name: demo
title: a demo
paper: p
source: s
task: {{name: t}}
cells: [{{row: a, method: m}}]
claims: [{{text: the claim, source: section 4, of: {{method: m}}, is: {metric} {is_} {than}}}]
"""
SAVED = Metric("saved_share", better="higher", kind="speed", equal=0.0)


def judged(row, metric, than, is_="at least"):
    cell = Cell(
        recipe="demo", row="a", column="", scale=row.scale, kind="pair", method=Named("m"), task=Named("t"),
        speed_baseline=None, fidelity_baseline=None, fidelity=None, timing=Timing(), timed=True, seed=1,
    )  # fmt: skip
    text = CLAIM.format(metric=metric, than=than, is_=is_)
    (verdict,) = claims.verdicts(stored_of(text, [row], scale=row.scale, cells=[cell])).claims
    return verdict


DECIDED = {  # decision -> samples that lead to it
    "faster": {}, "no difference shown": {"speedup": 1.0, "spread": 0.1}, "no claim": {"objections": ["because"]},
    "exploratory": {"shape": (6, 3)},
}  # fmt: skip


def measured(name, interval, decision, *measures):
    row = new_row(
        recipe="demo", scale="mini" if decision == "exploratory" else "small", described=described(*measures),
        metrics={name: sum(interval) / 2, "exact_match": 1.0}, intervals={name: list(interval)},
        fidelity={"metric": "exact_match", "is": "at least", "bound": 1.0},
        speed_baseline={"method": "b", "params": {}},
    )  # fmt: skip
    row = with_samples(row, **{"shape": (6, 4), **DECIDED[decision]})
    assert row.decision == decision
    return row


@pytest.mark.parametrize(
    ("decision", "than", "outcome"),
    [
        ("faster", 0.9, "holds"),
        ("no difference shown", 0.9, "no difference shown"),  # time saved, for all the noise floor knows
        ("no difference shown", 0.0, "no difference shown"),
        ("no difference shown", -0.5, "holds"),
        ("no claim", 0.9, "not settled"),
        ("exploratory", -0.5, "not settled"),
    ],
)
def test_a_declared_speed_is_judged_by_the_decision_beyond_its_value_at_equal_times(decision, than, outcome):
    assert judged(measured("saved_share", (0.92, 0.98), decision, SAVED), "saved_share", than).outcome == outcome


def test_a_declared_quality_needs_no_decision_and_the_speedup_always_does():
    quality = Metric("score", better="higher")
    assert judged(measured("score", (2.0, 3.0), "exploratory", quality), "score", 1).outcome == "holds"
    disguised = Metric("speedup", kind="quality")
    verdict = judged(measured("speedup", (2.0, 3.0), "exploratory", disguised), "speedup", 1)
    assert verdict.outcome == "not settled" and "exploratory" in verdict.detail


def test_what_would_settle_a_metric_without_interval_follows_from_its_kind():
    for kind, command in (("time", None), ("quality", "harness reproduce demo --scale paper")):
        row = measured("waiting", (2.0, 3.0), "faster", Metric("waiting", kind=kind))
        verdict = judged(replace(row, intervals={}), "waiting", 1)
        assert (verdict.outcome, verdict.command) == ("not settled", command)
        assert "stored without an interval" in verdict.detail


# ------------------------------------------------------------ from the class into the table

PLUGIN = """
from harness.contracts.metrics import Metric
from harness.contracts.ratios import Ratio
from harness.plan.registry import analysis, method, task
from harness.contracts.tasks import Measure
from toys.methods import Unigram
from toys.tasks import ToyText


@task("plain-text", contract="token-scoring", provides=("reference-text",), summary="declares nothing")
class PlainText(ToyText):
    def metrics(self, setting, answers):
        return {"odd_s": Measure(0.25), **super().metrics(setting, answers)}


@task("told-text", contract="token-scoring", provides=("reference-text",), summary="says what its metrics are")
class ToldText(PlainText):
    measures = (Metric("perplexity", "{label}", "{unit}", "lower"), Metric("odd_s", kind="time", unit="s"))


@method("told", contract="token-scoring", needs=("reference-text",), baseline="toy-uniform", summary="derives")
class Told(Unigram):
    measures = (Metric("reference_streams", "streams read", kind="counter"), Metric("half", "half of it", kind="speed"))

    @property
    def ratios(self):
        return {{"half": Ratio({{"items": 0.5}}, {{"items": 1.0}})}}


@analysis("told-analysis", summary="says what it measures")
class ToldAnalysis:
    measures = (Metric("length", "length of the text", "tokens"),)

    def __call__(self, setting, artifacts, progress):
        return {{"length": Measure(float(setting.words))}}


@analysis("plain-analysis", summary="a function that says nothing")
def plain(setting, artifacts, progress):
    return {{"length": Measure(float(setting.words))}}
"""
RECIPE = """
name: toy
title: a toy
paper: none
source: none
task: {{name: {task}}}
timing: {{processes: 1, pairs: 2}}
metrics: [{metrics}]
cells:
{cells}
"""


@pytest.fixture
def plugged(toys, tmp_path, monkeypatch):
    """Run cells on a plug-in package whose task labels its perplexity as given; give rows, and the table over them."""
    folder = tmp_path / "plug"

    def run(task, lines, label="surprise", unit="bits", metrics="perplexity, odd_s, reference_streams, half"):
        (folder / "plugged").mkdir(parents=True, exist_ok=True)
        text = PLUGIN.replace("{label}", label).replace("{unit}", unit)
        (folder / "plugged" / "__init__.py").write_text(text.replace("{{", "{").replace("}}", "}"))
        monkeypatch.setenv("HARNESS_PLUGINS", "toys,plugged")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ["PYTHONPATH"]]))
        monkeypatch.syspath_prepend(str(folder))
        loaded = recipe.parse(RECIPE.format(task=task, metrics=metrics, cells=lines), "toy.yaml")
        found = type(toys)()
        planned = expansion.expand(loaded, "mini", found)
        result = running.run(found, tmp_path / "run", planned)
        assert [row.status for row in result.rows] == ["ok"] * len(planned), [row.error for row in result.rows]
        one = stored_of(loaded, result.rows, scale="mini", cells=planned)
        return result.rows, tables.build(one, frame.of_all([one], found), claims.verdicts(one))

    return run


TOLD = "  - {row: a, method: told}"


def test_a_declaration_goes_from_the_class_into_row_and_table_and_a_renamed_unit_shows(plugged, tmp_path):
    (row,), table = plugged("told-text", TOLD)
    assert row.described["perplexity"]["unit"] == "bits"
    assert list(table.lead)[2:6] == ["surprise (bits) ↓", "odd s", "streams read", "half of it"]
    assert table.lead.iloc[0].tolist()[3:6] == ["250 ms", "1", "0.5"]
    assert row.value("half") == 0.5
    assert RowStore(tmp_path / "run" / "rows.jsonl").rows()[-1].described == row.described
    assert "surprise (bits) ↓" in markup.markdown(table)
    assert headline(row).startswith("perplexity ") and "odd_s" not in headline(row)  # no time is a headline
    assert list(plugged("told-text", TOLD, unit="nats")[1].lead)[2] == "surprise (nats) ↓"


def test_an_undeclared_plug_in_metric_is_shown_plainly_and_counts_as_quality(plugged):
    (row,), table = plugged("plain-text", TOLD.replace("told", "toy-unigram"))
    assert row.described == {} and list(table.lead)[2:5] == ["perplexity", "odd s", "reference streams"]
    assert table.lead.iloc[0].tolist()[3] == "0.25"
    assert "no quality" not in row.reason


def test_times_speeds_counts_and_what_is_not_finite_are_no_quality():
    """Without a quality there is no claim; a name that merely ends in `_s` may be one."""
    metrics = {"fit_s": 1.0, "memory_mib": 9.0, "speedup": 2.0, "waiting": 1.0, "bleu": float("nan"), "f0.5": None}
    row = new_row(metrics=metrics, described=described(Metric("waiting", kind="time")))
    assert qualities(row) == {}
    assert qualities(replace(row, metrics=metrics | {"pages_s": 3.0})) == {"pages_s": 3.0}


def test_analyses_declare_as_methods_do(plugged):
    lines = "  - {row: a, analysis: told-analysis}\n  - {row: b, analysis: plain-analysis}"
    (told, plain), table = plugged("plain-text", lines, metrics="length")
    assert list(table.lead)[2] == "length of the text (tokens)"
    assert told.described["length"]["unit"] == "tokens" and plain.described == {}
