"""Checkpoints of translation models, in the layout that the hub has them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import sentencepiece
import torch
from transformers import (
    FSMTConfig,
    FSMTForConditionalGeneration,
    FSMTTokenizer,
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MarianConfig,
    MarianMTModel,
    MarianTokenizer,
    MBart50Tokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    MBartTokenizer,
    NllbTokenizer,
)

from harness.common.errors import RequestError
from harness.common.generate import generate
from harness.common.phases import NoPhases
from methods.aggressive.iad import Iad
from methods.decoding.search.greedy import Greedy
from tasks.models.pretrained.generation import TextGenerator

TEXT = ["the cat sat on the mat .", "a dog ran to the house .", "we read a book in the garden .", "it rains today ."]
SIZES = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
SIZES |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 64}
SIZES |= {"init_std": 0.4}


def pieces(folder: Path, name: str, size: int = 30) -> tuple[str, list[str]]:
    """A SentencePiece model of the text, written to a file, and its pieces."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT * 20), model_writer=written, vocab_size=size, minloglevel=2
    )
    file = folder / name
    file.write_bytes(written.getvalue())
    model = sentencepiece.SentencePieceProcessor(model_file=str(file))
    return str(file), [model.id_to_piece(number) for number in range(len(model))]


def vocabulary(folder: Path, names: list[str], file: str = "vocab.json") -> str:
    (folder / file).write_text(json.dumps({name: number for number, name in enumerate(dict.fromkeys(names))}))
    return str(folder / file)


def marian(folder: Path, parts: Path) -> None:
    file, known = pieces(parts, "source.spm")
    names = vocabulary(parts, ["</s>", "<unk>", *known, "<pad>"])
    tokenizer = MarianTokenizer(source_spm=file, target_spm=file, vocab=names)
    last = len(tokenizer) - 1
    ids = {"pad_token_id": last, "decoder_start_token_id": last, "eos_token_id": 0, "forced_eos_token_id": 0}
    module = MarianMTModel(MarianConfig(vocab_size=last + 1, **ids, **SIZES))
    module.generation_config.bad_words_ids = [[last]]
    save(folder, module, tokenizer)


def fsmt(folder: Path, parts: Path) -> None:
    letters = sorted({letter for text in TEXT for letter in text if letter != " "})
    names = ["<s>", "<pad>", "</s>", "<unk>", *letters, *(f"{letter}</w>" for letter in letters)]
    (parts / "merges.txt").write_text("t h 9\nth e</w> 8\n")
    names += ["th", "the</w>"]
    files = [vocabulary(parts, names, f"vocab-{side}.json") for side in ("src", "tgt")]
    tokenizer = FSMTTokenizer(
        langs=["en", "de"], src_vocab_file=files[0], tgt_vocab_file=files[1], merges_file=str(parts / "merges.txt")
    )
    counts = {"src_vocab_size": len(names), "tgt_vocab_size": len(names)}
    save(folder, FSMTForConditionalGeneration(FSMTConfig(langs=["en", "de"], **counts, **SIZES)), tokenizer)


def m2m100(folder: Path, parts: Path) -> None:
    file, known = pieces(parts, "sentencepiece.bpe.model")
    names = vocabulary(parts, ["<s>", "<pad>", "</s>", "<unk>", *known])
    tokenizer = M2M100Tokenizer(vocab_file=names, spm_file=file)
    save(folder, M2M100ForConditionalGeneration(M2M100Config(vocab_size=200, **SIZES)), tokenizer)


def nllb(folder: Path, parts: Path) -> None:
    letters = sorted({letter for text in TEXT for letter in text.replace(" ", "▁")})
    names = {name: number for number, name in enumerate(["<s>", "<pad>", "</s>", "<unk>", *letters])}
    tokenizer = NllbTokenizer(vocab=names, merges=[])
    save(folder, M2M100ForConditionalGeneration(M2M100Config(vocab_size=len(tokenizer) + 8, **SIZES)), tokenizer)


def mbart50(folder: Path, parts: Path) -> None:
    _, known = pieces(parts, "sentencepiece.bpe.model")
    ranked = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")]
    ranked += [(name, -float(number)) for number, name in enumerate(known) if (name, 0.0) not in ranked]
    tokenizer = MBart50Tokenizer(vocab=ranked)
    config = MBartConfig(vocab_size=len(tokenizer) + 8, decoder_start_token_id=2, **SIZES)
    save(folder, MBartForConditionalGeneration(config), tokenizer)


def save(folder: Path, module, tokenizer) -> None:
    torch.manual_seed(0)
    module.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


KINDS = {
    "marian": (marian, None, None), "fsmt": (fsmt, None, None), "m2m100": (m2m100, "en", "de"),
    "nllb": (nllb, "eng_Latn", "deu_Latn"), "mbart50": (mbart50, "en_XX", "de_DE"),
}  # fmt: skip


@pytest.fixture(params=KINDS)
def checkpoint(request, tmp_path, cache_home):
    make, source, target = KINDS[request.param]
    folder, parts = tmp_path / "model", tmp_path / "parts"
    parts.mkdir()
    make(folder, parts)
    return folder, source, target


def test_a_checkpoint_of_its_layout_is_loaded_and_decoded(checkpoint):
    folder, source, target = checkpoint
    model = TextGenerator.load(str(folder), source_language=source, target_language=target)
    ids = model.encode(TEXT)
    assert all(row[-1] in model.eos_ids or row[0] > 3 for row in ids) and len({len(row) for row in ids}) > 1
    ours = [answer.ids for answer in Greedy().decode(model, ids, 10, NoPhases())]
    assert ours == [generate(model, [row], 10, num_beams=1)[0] for row in ids]
    assert ours == [answer.ids for answer in Iad().decode(model, ids, 10, NoPhases())]
    if target:
        first = model.constraints.first
        assert first is not None and all(row[0] == first for row in ours)
        other = TextGenerator.load(str(folder), source_language=target, target_language=source)
        assert other.hash != model.hash and other.encode(TEXT) != ids
        assert other.constraints.first != first


def test_gold_outputs_are_in_the_target_language(checkpoint):
    folder, source, target = checkpoint
    model = TextGenerator.load(str(folder), source_language=source, target_language=target)
    before, outputs = model.encode(TEXT), model.encode_outputs(TEXT)
    assert model.encode(TEXT) == before  # the tokenizer reads sources again
    assert all(ids[-1] in model.eos_ids and ids.count(ids[-1]) == 1 for ids in outputs)
    first = 1 if target else 0
    assert [model.decode(ids[first:]) for ids in outputs] == [model.decode(ids[first:]) for ids in before]
    if target:
        assert {ids[0] for ids in outputs} == {model.constraints.first}
        model.tokenizer.tgt_lang = None  # as where the configuration alone names the language
        with pytest.raises(RequestError, match=r"one of several languages: name task\.target_language"):
            model.encode_outputs(TEXT)
        model.tokenizer.tgt_lang = source
        with pytest.raises(RequestError, match="does not encode texts as the model writes them"):
            model.encode_outputs(TEXT)


def test_gold_outputs_are_cut_at_the_end_token(tmp_path, cache_home):
    """mBART's first checkpoints put the language behind it, and start the decoder with it."""
    folder, parts = tmp_path / "model", tmp_path / "parts"
    parts.mkdir()
    mbart50(folder, parts)
    tokenizer = MBartTokenizer(vocab=[(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>", *"▁abc")])
    tokenizer.save_pretrained(folder)
    model = TextGenerator.load(str(folder), source_language="en_XX", target_language="de_DE")
    [ids] = model.encode_outputs(["abc"])
    assert ids[-1] == tokenizer.eos_token_id and model.start_id not in ids and model.decode(ids) == "abc"


def test_gold_outputs_in_a_vocabulary_of_their_own_are_refused(tmp_path, cache_home):
    folder, parts = tmp_path / "model", tmp_path / "parts"
    parts.mkdir()
    fsmt(folder, parts)
    model = TextGenerator.load(str(folder))
    model.module.config.tgt_vocab_size += 1
    with pytest.raises(RequestError, match="its vocabulary is another"):
        model.encode_outputs(TEXT)


def test_languages_are_asked_for_where_there_are_any(checkpoint):
    folder, source, target = checkpoint
    if target is None:
        with pytest.raises(RequestError, match="has no languages to choose from"):
            TextGenerator.load(str(folder), target_language="de")
        return
    with pytest.raises(RequestError, match=r"name them, such as --set task\.source_language"):
        TextGenerator.load(str(folder))
    for given in ({"source_language": "xx"}, {"target_language": "xx"}):
        with pytest.raises(RequestError, match="knows no language 'xx'"):
            TextGenerator.load(str(folder), **{"source_language": source, "target_language": target, **given})


def test_the_tokenizers_own_files_count(checkpoint):
    folder, source, target = checkpoint
    before = TextGenerator.load(str(folder), source_language=source, target_language=target).hash
    if (folder / "target.spm").exists():
        pieces(folder, "target.spm", 28)
    else:
        names = ("vocab-tgt.json", "vocab.json", "tokenizer.json")
        file = next(folder / name for name in names if (folder / name).exists())
        file.write_bytes(file.read_bytes() + b" ")
    assert TextGenerator.load(str(folder), source_language=source, target_language=target).hash != before
