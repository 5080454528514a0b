"""The editing tasks on real files in miniature: what they prepare, how they score, what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.common.cache import Cache
from harness.common.errors import CellFailedError, RequestError
from harness.common.progress import Progress
from harness.common.training.pairs import Pairs
from harness.contracts import Decoded, Trace
from harness.contracts.tasks import Context
from harness.plan.registry import construct
from tasks.bases.seq2seq import marked_blocks
from tasks.conll_gec import ConllGec
from tasks.data.simplification import read_corpus, simplified, training_texts
from tasks.jfleg_gec import JflegGec
from tasks.metrics.edits import edit_counts
from tasks.models.pretrained.generation import TextGenerator
from tasks.models.pretrained.greedy import greedy_outputs
from tasks.models.seq2seq.editors import trained_simplifier
from tasks.text_simplification import TextSimplification

QUIET = Progress(quiet=True)
M2 = """S The student like the old houses near river .
A 2 3|||SVA|||likes|||REQUIRED|||-NONE-|||0
A 7 7|||ArtOrDet|||the|||REQUIRED|||-NONE-|||0

S She reads two books every week .
A -1 -1|||noop|||-NONE-|||REQUIRED|||-NONE-|||0

S My friends has built a bridge .
A 2 3|||SVA|||have|||REQUIRED|||-NONE-|||0
"""


@pytest.fixture
def data(tmp_path):
    """CoNLL-2014, JFLEG, TurkCorpus and ASSET of three sentences each."""
    root = tmp_path / "data"
    write(root / "conll14/official-2014.combined.m2", M2)
    for part, text in {
        "src": "She go home .\nHe reads .\nA dog .\n",
        "ref": "She goes home .\nHe reads .\nA dog .\n",
    }.items():
        names = ["test.src"] if part == "src" else [f"test.ref{n}" for n in range(4)]
        for name in names:
            write(root / "jfleg" / name, text)
    write(root / "turkcorpus/test.norm", "a -lrb- very -rrb- old house .\nit rains .\n")
    write(root / "asset/test.orig", "A (very) old house.\nIt rains, doesn't it?")
    for n in range(10):
        write(root / f"turkcorpus/test.turk.{n}", "an old house .\nit rains .\n")
        write(root / f"asset/test.simp.{n}", "An old house.\nIt rains.")
    return root


@pytest.fixture
def context(data, cache_home):
    return Context(scale="small", device="cpu", seed=1, data=(data,), cache=cache_home)


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def answers(task, texts):
    return [Decoded(ids) for ids in task.generator.encode(texts)]


def test_conll_scores_corrections_by_m2(copier_folder, context):
    task = ConllGec(test="conll14", model=str(copier_folder), timed=2)
    setting = task.prepare(context, QUIET)
    assert len(setting.evaluation) == 3
    assert setting.sample == 2
    assert sorted(setting.timed) == sorted(setting.evaluation)
    assert setting.facts["data"] == "CoNLL-2014"
    sources = [" ".join(tokens) for tokens in task.chosen.sources]
    copied = task.metrics(setting, answers(task, sources))
    assert copied["recall"].value == 0
    assert copied["edit_ratio"].value == 0
    right = "The student likes the old houses near the river ."
    scores = task.metrics(setting, answers(task, [right, sources[1], sources[2]]))
    assert scores["precision"].value == 100
    assert scores["recall"].value == pytest.approx(100 * 2 / 3)
    assert scores["f0.5"].value == pytest.approx(100 * 1.25 * (2 / 3) / (0.25 + 2 / 3))
    assert task.series(setting, answers(task, [right, *sources[1:]]))["edit_ratio"] == pytest.approx([2 / 9, 0, 0])


def test_gold_outputs_are_the_corrected_sentences_as_the_model_would_write_them(copier_folder, context):
    task = ConllGec(test="conll14", model=str(copier_folder))
    setting = task.prepare(context, QUIET)
    texts = [[task.generator.decode(gold.ids) for gold in several] for several in setting.gold()]
    assert texts[0] == ["The student likes the old houses near the river ."]
    assert texts[1:] == [["She reads two books every week ."], ["My friends have built a bridge ."]]
    assert all(gold.ids[-1] in setting.model.eos_ids for several in setting.gold() for gold in several)
    counts = [[gold.edits for gold in several] for several in setting.gold()]
    assert counts == [
        edit_counts([source] * len(texts[n]), [text.split() for text in texts[n]]).tolist()
        for n, source in enumerate(task.chosen.sources)
    ]
    jfleg = JflegGec(model=str(copier_folder))
    assert [len(several) for several in jfleg.prepare(context, QUIET).gold()] == [4, 4, 4]


def test_an_assistant_is_opened_beside_the_model(copier_folder, context):
    setting = ConllGec(test="conll14", model=str(copier_folder), assistant=str(copier_folder)).prepare(context, QUIET)
    assert setting.model.assistant.vocabulary_size == setting.model.vocabulary_size
    assert setting.hashes["assistant"] == setting.hashes["model"] and setting.facts["assistant"] == str(copier_folder)
    alone = ConllGec(test="conll14", model=str(copier_folder)).prepare(context, QUIET)
    assert alone.model.assistant is None and "assistant" not in {**alone.hashes, **alone.facts}
    with pytest.raises(RequestError, match=r"in task\.assistant: did you mean 'train:small-draft'"):
        ConllGec(test="conll14", model=str(copier_folder), assistant="train:small-drat")


def test_a_prompt_is_what_the_model_reads(copier_folder, context):
    task = ConllGec(test="conll14", model=str(copier_folder), prompt="the {source} .")
    setting = task.prepare(context, QUIET)
    assert task.generator.decode(setting.evaluation[1]) == "the She reads two books every week . ."


def test_a_corrector_of_generated_sentences_has_known_errors_to_find(copier_folder, context):
    task = ConllGec(source="generated", model=str(copier_folder), evaluation=40, timed=5, seed=3)
    setting = task.prepare(context, QUIET)
    assert (len(setting.evaluation), len(setting.timed), setting.sample) == (40, 225, 5)
    assert (
        ConllGec(source="generated", model=str(copier_folder), evaluation=40, timed=5, seed=3)
        .prepare(context, QUIET)
        .timed
        == setting.timed
    )
    assert any(item.annotators[0] for item in task.chosen.gold)
    copied = task.metrics(
        setting, answers(task, [" ".join(tokens[n % 3 :]) for n, tokens in enumerate(task.chosen.sources)])
    )
    assert copied["edit_ratio"].low <= copied["edit_ratio"].value <= copied["edit_ratio"].high
    assert copied["edit_ratio"].low < copied["edit_ratio"].high


def test_sentences_are_chosen_by_the_edits_in_the_models_outputs(copier_folder, context):
    every = ConllGec(source="generated", model=str(copier_folder), limit=40)
    everything = every.prepare(context, QUIET)
    low, high = (
        ConllGec(source="generated", model=str(copier_folder), limit=40, edits=edits).prepare(context, QUIET)
        for edits in ("0-2", "3+")
    )
    assert len(low.evaluation) + len(high.evaluation) == len(everything.evaluation)
    assert 0 < len(low.evaluation) < len(everything.evaluation)
    assert low.hashes == everything.hashes
    made = greedy_outputs(low.model, low.evaluation, 40, Cache(context.cache), QUIET)
    counts = edit_counts(
        [low.model.decode(source).split() for source in low.evaluation], [low.model.decode(ids).split() for ids in made]
    )
    assert (counts < 3).all()
    with pytest.raises(CellFailedError, match=r"edits = 98: no output of .*they have"):
        ConllGec(source="generated", model=str(copier_folder), limit=40, edits=98).prepare(context, QUIET)


def test_more_sentences_may_be_timed_than_are_evaluated(copier_folder, context):
    few, many = (
        ConllGec(source="generated", model=str(copier_folder), limit=40, evaluation=count, timed=2).prepare(
            context, QUIET
        )
        for count in (2, 250)
    )
    assert (len(few.evaluation), len(many.evaluation)) == (2, 250)
    assert (len(few.timed), len(many.timed)) == (200, 250) and few.timed == many.timed[:200]
    assert sorted(few.timed[:2]) == sorted(few.evaluation) and sorted(many.timed) == sorted(many.evaluation)
    assert many.timed != many.evaluation
    for setting in (few, many):
        places = dict(zip(setting.numbers, setting.timed, strict=True))
        assert len(places) == len(setting.timed)
        assert [places[number] for number in range(len(setting.evaluation))] == setting.evaluation
    assert (few.sample, many.sample) == (2, 2)


def test_a_timed_pass_has_at_least_a_batch_and_no_more_sentences_than_there_are(copier_folder, context):
    def sample(**parameters):
        return ConllGec(source="generated", model=str(copier_folder), **parameters).prepare(context, QUIET).sample

    assert sample(timed=4, batch=16) == 16
    assert sample(timed=9, evaluation=6) == 9
    assert sample(timed=400) == 300


def test_jfleg_scores_by_gleu(copier_folder, context):
    task = JflegGec(model=str(copier_folder))
    setting = task.prepare(context, QUIET)
    perfect = task.metrics(setting, answers(task, ["She goes home .", "He reads .", "A dog ."]))
    copied = task.metrics(setting, answers(task, ["She go home .", "He reads .", "A dog ."]))
    assert perfect["gleu"].value == pytest.approx(100)
    assert copied["gleu"].value < perfect["gleu"].value


def test_simplification_scores_by_sari_and_bleu(copier_folder, context):
    task = TextSimplification(model=str(copier_folder), corpus="asset")
    setting = task.prepare(context, QUIET)
    assert [" ".join(tokens) for tokens in task.chosen.sources] == [
        "A ( very ) old house .",
        "It rains , does n't it ?",
    ]
    assert "nrefs:10" in setting.facts["bleu"]
    perfect = task.metrics(setting, answers(task, ["An old house .", "It rains ."]))
    copied = task.metrics(setting, answers(task, ["A ( very ) old house .", "It rains , does n't it ?"]))
    assert perfect["bleu"].value > copied["bleu"].value
    assert perfect["sari"].value > copied["sari"].value
    assert " ".join(read_corpus("turkcorpus", "test", context.data)[0][0]) == "a ( very ) old house ."


def test_no_simplifier_learns_from_a_test_or_held_out_sentence(context, data, copier_folder, tiny_size, cache_home):
    texts = [f"Number {n} has {n} houses ." for n in range(104)]
    for folder, source, part, count in (
        ("turkcorpus", "tune.norm", "tune.turk", 8),
        ("asset", "valid.orig", "valid.simp", 10),
    ):
        write(data / folder / source, "\n".join([*texts, "A (VERY) old house."]))
        for n in range(count):
            write(data / folder / f"{part}.{n}", "\n".join([*texts, "An old house."]))
    corpora = training_texts(context.data)
    assert [len(corpus) for corpus in corpora] == [104, 104]  # the test sets' old house is gone
    trained_simplifier(tiny_size, copier_folder, corpora, Cache(cache_home), progress=QUIET)
    parts = [Pairs.open(folder) for folder in (cache_home / "simplification-pairs").iterdir() if folder.is_dir()]
    held_out, training = sorted(({tuple(source) for source, _ in part} for part in parts), key=len, reverse=True)
    assert sorted(map(len, parts)) == [4 * 18, 100 * 18]
    assert not held_out & training


def test_generated_simplification_is_plainer_and_shorter():
    sentence = "The visitors quickly purchase ancient maps , but she really sleeps tomorrow ."
    assert " ".join(simplified(sentence.split(" "))) == "The visitors buy old maps ."


def test_accepted_blocks_are_marked(copier_folder, cache_home):
    model = TextGenerator.load(str(copier_folder))
    [ids] = model.encode(["The old house ."])
    pieces = [len(model.encode([text])[0]) - 1 for text in ("The", "The old")]
    accepted = [pieces[0], pieces[1] - pieces[0], len(ids) - pieces[1]]
    answer = Decoded(ids, Trace(iterations=3, accepted=accepted))
    text = marked_blocks(model, answer)
    assert text.replace("[", "").replace("]", "") == f"The old house . ({len(ids)} tokens in 3 iterations)"
    assert "[house .]" in text


def test_rejected_drafts_stand_behind_what_took_their_place(copier_folder):
    model = TextGenerator.load(str(copier_folder))
    [ids, other] = model.encode(["The old house .", "books every week"])
    trace = Trace(iterations=2, accepted=[2, len(ids) - 2], drafts=[[ids[0], *other[:-1]], ids[2:]])
    text = marked_blocks(model, Decoded(ids, trace), drafts=True)
    shown = model.decode(other[:-1])
    assert f" ✗{{{shown}}}" in text and text.count("✗") == 1
    assert text.replace(f" ✗{{{shown}}}", "").replace("[", "").replace("]", "") == (
        f"The old house . ({len(ids)} tokens in 2 iterations)"
    )
    assert "✗" not in marked_blocks(model, Decoded(ids, trace))


def test_tokens_accepted_against_the_first_choice_are_marked(copier_folder):
    model = TextGenerator.load(str(copier_folder))
    [ids] = model.encode(["The old house ."])
    end_of_the = len(model.encode(["The"])[0]) - 2
    answer = Decoded(ids, Trace(1, [len(ids)], [ids], others=[end_of_the]))
    assert marked_blocks(model, answer, drafts=True) == f"[The° old house .] ({len(ids)} tokens in 1 iteration)"
    assert "°" not in marked_blocks(model, answer)


def test_examples_are_spread_over_edit_ratios(copier_folder, context):
    task = ConllGec(source="generated", model=str(copier_folder), evaluation=30, shown=3)
    setting = task.prepare(context, QUIET)
    texts = [" ".join(tokens[n % 4 :]) for n, tokens in enumerate(task.chosen.sources)]
    shown = task.examples(setting, None, answers(task, texts))
    assert [list(example) for example in shown] == [["source", "edit ratio", "output"]] * 3
    ratios = [float(example["edit ratio"]) for example in shown]
    assert ratios == sorted(ratios)
    assert [ratio > 0 for ratio in ratios] == [False, True, True]  # however many are left as they are


def test_a_file_without_sentences_is_refused_before_anything_is_trained(context, data, cache_home):
    write(data / "empty.m2", "\n")
    with pytest.raises(RequestError, match=r"empty\.m2 holds no sentence"):
        ConllGec(test=str(data / "empty.m2"), model="train:small").prepare(context, QUIET)
    for name in ("src", "ref0", "ref1", "ref2", "ref3"):
        write(data / f"jfleg/test.{name}", "")
    with pytest.raises(RequestError, match="JFLEG test holds no sentence"):
        JflegGec(model="train:small").prepare(context, QUIET)
    assert not (cache_home / "seq2seq").exists()


def test_missing_data_models_and_senseless_parameters_are_one_line(copier_folder, context, data):
    with pytest.raises(RequestError, match=r"no file conll13/.*HARNESS_DATA"):
        ConllGec(test="conll13", model=str(copier_folder)).prepare(context, QUIET)
    with pytest.raises(RequestError, match="did you mean 'train:small'"):
        ConllGec(test="conll14", model="train:smal").prepare(context, QUIET)
    with pytest.raises(RequestError, match=r"no data set 'wikipedia-2015/.*task\.text=.*task\.source=generated"):
        ConllGec(test="conll14", model="train:small").prepare(context, QUIET)
    with pytest.raises(RequestError, match=r"no file conll13/.*; or train .* by --set task\.corrections=\[\]"):
        ConllGec(test="conll14", model="train:small", corrections=["conll13"]).prepare(context, QUIET)
    with pytest.raises(RequestError, match=r"holds no \{source\}"):
        ConllGec(prompt="Correct this:")
    for wrong in ("4-3", "some", "-1", "1.5"):
        with pytest.raises(RequestError, match=rf"task\.edits = .{wrong}.: give a count"):
            ConllGec(edits=wrong)
    for wrong in ({"timed": 0}, {"evaluation": 0}, {"seed": -1}, {"shown": -1}, {"source": "generate"}):
        [name] = wrong
        with pytest.raises(RequestError, match=f"parameter '{name}'"):
            construct(JflegGec, wrong)
    write(data / "jfleg/test.ref2", "only one line\n")
    with pytest.raises(RequestError, match=r"test\.ref2 has 1 lines and .*test\.src has 3"):
        JflegGec(model=str(copier_folder)).prepare(context, QUIET)


@pytest.mark.parametrize("test", ["conll13", "conll13/official-preprocessed.original.m2", "conll14"])
def test_a_corrector_is_not_tested_on_what_it_learns_from(test, context, data):
    """Whatever the file of the test sentences is called."""
    for name in ("official-preprocessed.revised.m2", "official-preprocessed.original.m2"):
        write(data / "conll13" / name, M2)
    with pytest.raises(RequestError, match=r"corrections of 3 sentences of .*tested on.*--set task\.corrections"):
        ConllGec(test=test, model="train:small", corrections=["conll13"]).prepare(context, QUIET)
