"""Retrievers against naive ranking: a query's answer is the same alone, in a batch, from the cache, in one thread."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.common.cache import CellArtifacts
from harness.common.documents import content_hash
from harness.common.errors import RequestError
from methods.ralmspec.passages.bm25 import Bm25Retriever
from methods.ralmspec.passages.encoders import LatentSemantic, Pretrained, encode_passages, identity
from methods.ralmspec.passages.opening import build_retriever, open_retriever
from methods.ralmspec.passages.retriever import PassageCache, RetrieverOptions

from ..conftest import WORDS, make_passages

PASSAGES = make_passages(3, 200, repeats=20)
KINDS = ("exact", "hnsw", "ivf", "bm25")
words = st.lists(st.sampled_from([*WORDS, "unknown"]), max_size=8).map(" ".join)


def opened(root, kind, passages=PASSAGES, **options):
    settings = RetrieverOptions(**{"retriever": kind, "dimension": 16} | options)
    artifacts = CellArtifacts(root)
    build_retriever(passages, content_hash(passages), artifacts, settings)
    return open_retriever(artifacts, settings)


@pytest.fixture(scope="module")
def retrievers(artifacts_root):
    return {kind: opened(artifacts_root, kind) for kind in KINDS}


@pytest.fixture(scope="module")
def sparse(artifacts_root):
    """Over many passages, a graph of few links that is searched with a narrow beam."""
    return {kind: opened(artifacts_root, kind, make_passages(5, 1500, 100), links=4, ef=8) for kind in KINDS}


@pytest.fixture(scope="module")
def wordless(artifacts_root):
    """Dense retrievers over passages of which some have no word that the encoder knows, and its vectors of them."""
    texts = ["§ 7.", *PASSAGES[:100], "§ 8.", *PASSAGES[100:200]]
    made = {kind: opened(artifacts_root, kind, texts, dimension=60) for kind in ("exact", "hnsw")}
    return {kind: (retriever, retriever.encoder.passages(texts)) for kind, retriever in made.items()}


@settings(deadline=None, max_examples=40)
@given(kind=st.sampled_from(KINDS), texts=st.lists(words, min_size=1, max_size=18), k=st.sampled_from([1, 7, 500]))
def test_an_answer_does_not_depend_on_the_batch_or_the_thread(retrievers, kind, texts, k):
    retriever = retrievers[kind]
    queries = [retriever.encode(text) for text in texts]
    together = retriever.search(queries, k)
    for query, found, alone in zip(queries, together, retriever.search(queries, k, single_thread=True), strict=True):
        np.testing.assert_array_equal(found, retriever.search([query], k)[0])
        np.testing.assert_array_equal(found, alone)
        assert len(found) <= k


@settings(deadline=None, max_examples=60)
@given(kind=st.sampled_from(["exact", "bm25"]), text=words, k=st.sampled_from([1, 9]))
def test_exact_search_is_the_ranking_of_all_passages_by_score(retrievers, kind, text, k):
    retriever = retrievers[kind]
    query = retriever.encode(text)
    scores = retriever.score(query, np.arange(len(PASSAGES)))
    order = [i for i in np.lexsort((np.arange(len(PASSAGES)), -scores)) if scores[i] > -np.inf]
    assert retriever.search([query], k)[0].tolist() == order[:k]


def test_padding_is_searched_and_never_found(artifacts_root, retrievers):
    padded = opened(artifacts_root, "exact", padding=3000)
    assert padded.vectors.entries == len(PASSAGES) + 3000
    lengths = np.linalg.norm(padded.vectors.keys.astype(np.float64), axis=1)
    np.testing.assert_allclose(lengths, lengths[0], rtol=1e-3)
    for text in (*PASSAGES[:20], "unknown", *(" ".join(reversed(text.split()[:4])) for text in PASSAGES[20:40])):
        query = padded.encode(text)
        for k in (1, 20, 5000):
            for single_thread in (False, True):
                (found,) = padded.search([query], k, single_thread)
                np.testing.assert_array_equal(found, retrievers["exact"].search([query], k)[0])
    with pytest.raises(RequestError, match="padding=5 enlarges exact search only"):
        RetrieverOptions(retriever="hnsw", padding=5)


@settings(deadline=None, max_examples=60)
@given(kind=st.sampled_from(KINDS), text=words, others=st.sets(st.integers(0, 199), max_size=20))
def test_a_cache_that_holds_the_best_passage_names_it(retrievers, kind, text, others):
    retriever = retrievers[kind]
    query = retriever.encode(text)
    found = retriever.search([query], 1)[0]
    cache = PassageCache(retriever)
    assert cache.best(query) == -1
    cache.insert([found])
    cache.insert([np.asarray(sorted(others), np.int64)])
    best = cache.best(query)
    if kind in ("exact", "bm25"):
        assert best == (found[0] if len(found) else -1)
    else:  # a graph search may miss what the cache ranks higher
        assert retriever.score(query, np.asarray([best]))[0] >= retriever.score(query, found)[0]


@settings(deadline=None, max_examples=40)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 10**6), k=st.sampled_from([2, 8, 30, 300]))
def test_the_best_passage_does_not_depend_on_how_many_are_asked_for(sparse, kind, seed, k):
    retriever = sparse[kind]
    query = retriever.encode(" ".join(np.random.default_rng(seed).choice(WORDS, 5)))
    few, many = retriever.search([query], 1)[0], retriever.search([query], k)[0]
    np.testing.assert_array_equal(few, many[:1])
    assert len(set(many.tolist())) == len(many)


@pytest.mark.parametrize("kind", ["exact", "hnsw"])
@settings(deadline=None, max_examples=40)
@given(text=words, k=st.sampled_from([1, 5]))
def test_dense_search_ranks_by_inner_product_even_with_passages_without_a_known_word(wordless, kind, text, k):
    """Their vectors are zero: by plain distance they come before all whose cosine is below 0.5."""
    retriever, vectors = wordless[kind]
    products = vectors @ retriever.encoder.query(text)
    (found,) = retriever.search([retriever.encode(text)], k)
    np.testing.assert_allclose(products[found], np.sort(products)[::-1][:k], atol=5e-4)  # rounded to float16
    cache = PassageCache(retriever)
    cache.insert([np.arange(len(vectors))])
    np.testing.assert_allclose(products[cache.best(retriever.encode(text))], products.max(), atol=5e-4)


def test_of_equal_passages_the_first_is_found(retrievers):
    for kind in ("exact", "bm25"):
        found = retrievers[kind].search([retrievers[kind].encode(PASSAGES[4])], 2)[0]
        assert found.tolist() == [4, 204]


def test_words_without_blanks_between_them_are_found(artifacts_root):
    passages = ["我们明天去公园散步", "他在图书馆里看书", "the park is closed", "สวนสาธารณะปิด"]
    for kind in ("exact", "bm25"):
        retriever = opened(artifacts_root, kind, passages, dimension=3)
        for query, passage in (("公园", 0), ("看书", 1), ("park", 2), ("สวน", 3)):
            assert retriever.search([retriever.encode(query)], 1)[0].tolist() == [passage]


def test_bm25_weighs_as_bm25s_does(artifacts_root):
    import bm25s

    ours = opened(artifacts_root, "bm25", stopwords=False)
    theirs = bm25s.BM25(k1=0.9, b=0.4)
    theirs.index(bm25s.tokenize(PASSAGES, stopwords=None, show_progress=False), show_progress=False)
    text = " ".join(WORDS[:6])
    expected = theirs.get_scores(bm25s.tokenize([text], stopwords=None, return_ids=False, show_progress=False)[0])
    scores = ours.score(ours.encode(text), np.arange(len(PASSAGES)))
    np.testing.assert_allclose(np.where(np.isfinite(scores), scores, 0), expected, rtol=1e-5)


def test_bm25_shared_among_threads_finds_the_same(artifacts_root, monkeypatch):
    monkeypatch.setattr("methods.ralmspec.passages.bm25.LEAST", 10)
    retriever = opened(artifacts_root, "bm25")
    assert isinstance(retriever, Bm25Retriever)
    queries = [retriever.encode(text) for text in PASSAGES[:30]]
    alone = retriever.search(queries, 25, single_thread=True)
    retriever.workers.count = 3
    for ours, theirs in zip(retriever.search(queries, 25), alone, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_bm25_goes_through_the_passages_in_blocks(retrievers, width):
    from methods.ralmspec.passages import bm25

    ours = retrievers["bm25"]
    number = 9 if width == 8 else width  # the one for eight takes any number
    queries = [ours.encode(text) for text in PASSAGES[:number]]
    terms = np.unique(np.concatenate([query.terms for query in queries]))
    counts = np.stack([np.isin(terms, query.terms) for query in queries], axis=1).astype(np.float32)
    found = []
    index = ours.starts, ours.postings, ours.weights
    for size in (bm25.SUMS, number * 7):  # all passages at once, seven at a time
        scores, ids = np.zeros((number, 20), np.float32), np.full((number, 20), -1)
        bm25._KERNELS[width](*index, terms, counts, 0, len(PASSAGES), size, scores, ids)
        found.append(ids)
    np.testing.assert_array_equal(*found)
    best = [ours.search([query], 1, single_thread=True)[0][0] for query in queries]
    assert found[0][:, 0].tolist() == best  # something was found, and the right thing


def test_bm25_is_compiled_when_it_is_opened(artifacts_root):
    from methods.ralmspec.passages import bm25

    opened(artifacts_root, "bm25")
    assert all(kernel.signatures for kernel in [*bm25._KERNELS.values(), bm25._score])


def test_two_encoders_of_different_spaces_are_refused():
    for parameters in ({"query_encoder": "x"}, {"encoder": "x", "query_encoder": "lsa"}):
        with pytest.raises(RequestError, match="vectors of different spaces"):
            RetrieverOptions(**parameters)


def test_the_latent_encoder_finds_the_passage_with_the_same_words(artifacts_root):
    retriever = opened(artifacts_root, "exact")
    found = [int(retriever.search([retriever.encode(text)], 1)[0][0]) for text in PASSAGES[:200]]
    assert np.mean([PASSAGES[f] == text for f, text in zip(found, PASSAGES, strict=False)]) > 0.9


def test_vectors_that_float16_cannot_hold_are_refused(tmp_path):
    class Huge(LatentSemantic):
        def __init__(self):
            pass

        def passages(self, texts):
            return np.full((len(texts), 2), 1e6, np.float32)

    with pytest.raises(RequestError, match="exceeds float16"), np.errstate(over="ignore"):
        encode_passages(tmp_path, Huge(), ["a passage"])


def save_tokenizer(folder):
    """Of the words of the passages."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(["[PAD]", "[UNK]", *WORDS])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]").save_pretrained(folder)


LAYOUT = ("Transformer", "Pooling", "Normalize")


def sentence_encoder(folder, pooling="mean", modules=LAYOUT, seed=0, dense=None, kind="Bert", **more):
    """A random model in the layout of sentence-transformers."""
    import torch
    import transformers

    save_tokenizer(folder)
    torch.manual_seed(seed)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(WORDS) + 2, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        initializer_range=0.5, pad_token_id=0,
    )  # fmt: skip
    getattr(transformers, f"{kind}Model")(config).save_pretrained(folder)
    (folder / "1_Pooling").mkdir(exist_ok=True)
    named = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(named))
    of_pooling = {"embedding_dimension": 16, "pooling_mode": pooling}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(of_pooling))
    if dense:
        shutil.copytree(dense, folder / "2_Dense")
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 5}))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(more))
    return Pretrained(str(folder))


def test_two_trained_encoders_serve_as_those_of_dpr_do(artifacts_root, tmp_path):
    question, passage = (
        sentence_encoder(tmp_path / name, "cls", ("Transformer", "Pooling"), seed)
        for seed, name in enumerate(("question", "passage"))
    )
    options = {"encoder": str(tmp_path / "passage"), "query_encoder": str(tmp_path / "question")}
    retriever = opened(artifacts_root, "exact", **options)
    alone = np.concatenate([passage.passages([text]) for text in PASSAGES])
    np.testing.assert_allclose(retriever.vectors.keys[:, :-1], alone, atol=2e-3)  # padding changes nothing
    for text in PASSAGES[:20]:
        np.testing.assert_array_equal(retriever.encoder.query(text), question.query(text))
        products = alone @ question.query(text)
        (found,) = retriever.search([retriever.encode(text)], 1)[0]
        assert products[found] >= products.max() - 5e-2
    before = identity(options["encoder"])
    (tmp_path / "passage" / "config.json").write_text("{}")  # trained again in the same folder
    assert identity(options["encoder"]) != before


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("normalised", [True, False])
def test_an_encoder_pools_normalises_and_cuts_as_its_folder_says(tmp_path, pooling, normalised):
    import torch

    modules = LAYOUT[: 2 + normalised]
    encoder = sentence_encoder(tmp_path, pooling, modules)
    texts = PASSAGES[:150]  # several batches of unequal lengths
    encoder.model.to(torch.bfloat16)
    rounded = encoder.passages(texts)
    encoder.model.float()
    found = encoder.passages(texts)
    cosines = (rounded * found).sum(1) / np.linalg.norm(rounded, axis=1) / np.linalg.norm(found, axis=1)
    assert cosines.min() > 0.999
    if normalised:
        np.testing.assert_allclose(np.linalg.norm(rounded, axis=1), 1, atol=1e-6)
    for text, vector in zip(texts, found, strict=True):
        with torch.no_grad():
            read = encoder.model.tokenizer(" ".join(text.split()[:5]), return_tensors="pt")
            states = encoder.model[0].auto_model(**read)[0][0]
        expected = (states[0] if pooling == "cls" else states.mean(0)).numpy()
        np.testing.assert_allclose(vector, expected / np.linalg.norm(expected) if normalised else expected, atol=1e-5)


def test_queries_and_passages_are_prompted_as_the_folder_says(tmp_path):
    plain = sentence_encoder(tmp_path / "plain")
    prompts = {"query": f"{WORDS[0]} ", "document": f"{WORDS[1]} "}
    prompted = sentence_encoder(tmp_path / "prompted", prompts=prompts)
    text = PASSAGES[0]
    np.testing.assert_allclose(prompted.query(text), plain.query(prompts["query"] + text), atol=1e-6)
    np.testing.assert_allclose(prompted.passages([text]), plain.passages([prompts["document"] + text]), atol=1e-6)


def test_a_further_module_is_computed_in_float32(tmp_path, monkeypatch):
    import torch
    from sentence_transformers.models import Dense

    monkeypatch.setattr("methods.ralmspec.passages.encoders.NUMBERS", torch.bfloat16)
    plain, dense = sentence_encoder(tmp_path / "plain", modules=LAYOUT[:2]), Dense(16, 4)
    (tmp_path / "dense").mkdir()
    dense.save(str(tmp_path / "dense"))
    encoder = sentence_encoder(tmp_path / "whole", modules=(*LAYOUT[:2], "Dense"), dense=tmp_path / "dense")
    with torch.no_grad():
        expected = dense({"sentence_embedding": torch.from_numpy(plain.passages(PASSAGES[:9]))})["sentence_embedding"]
    np.testing.assert_allclose(encoder.passages(PASSAGES[:9]), expected.numpy(), atol=1e-6)
    assert encoder.bytes == plain.bytes + 4 * (16 * 4 + 4)


def test_an_encoder_of_the_hub_is_read_from_its_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    folder = tmp_path / "models--somebody--encoder" / "snapshots" / "abc"
    kept = sentence_encoder(folder)
    (folder.parents[1] / "refs").mkdir()
    (folder.parents[1] / "refs" / "main").write_text("abc")
    np.testing.assert_array_equal(Pretrained("somebody/encoder").query(PASSAGES[0]), kept.query(PASSAGES[0]))
    assert identity("somebody/encoder") == identity(str(folder))
    for name in ("somebody/other", "no/such/id"):
        with pytest.raises(RequestError, match=f"{name} cannot be loaded as an encoder"):
            identity(name)


def test_weights_are_rounded_and_the_angles_of_positions_are_not(tmp_path, monkeypatch):
    import torch

    monkeypatch.setattr("methods.ralmspec.passages.encoders.NUMBERS", torch.bfloat16)
    encoder = sentence_encoder(tmp_path, kind="ModernBert")
    assert {weight.dtype for weight in encoder.model.parameters()} == {torch.bfloat16}
    angles = [buffer for name, buffer in encoder.model.named_buffers() if name.endswith("inv_freq")]
    assert angles and all(buffer.dtype == torch.float32 for buffer in angles)


def test_what_is_no_encoder_is_refused(tmp_path):
    from transformers import DPRConfig, DPRContextEncoder

    with pytest.raises(RequestError, match="cannot be loaded as an encoder"):
        Pretrained(str(tmp_path / "nothing"))
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    DPRContextEncoder(DPRConfig(vocab_size=len(WORDS) + 2, **size)).save_pretrained(tmp_path / "dpr")
    save_tokenizer(tmp_path / "dpr")
    with pytest.raises(RequestError, match=r"cannot be loaded as an encoder .*; give a model of sentence-transformers"):
        Pretrained(str(tmp_path / "dpr"))
    (tmp_path / "dpr" / "adapter_config.json").write_text("{}")
    with pytest.raises(RequestError, match="holds an adapter"):
        Pretrained(str(tmp_path / "dpr"))
    for number, modules in enumerate(('[{"path": "', '[{"path": ""}]', "[1]")):
        folder = tmp_path / str(number)
        sentence_encoder(folder)
        (folder / "modules.json").write_text(modules)
        with pytest.raises(RequestError, match="cannot be loaded as an encoder"):
            Pretrained(str(folder))


def test_an_interrupted_encoding_goes_on_where_it_ended(tmp_path, monkeypatch):
    monkeypatch.setattr("methods.ralmspec.passages.encoders.CHUNK", 50)
    encoder = sentence_encoder(tmp_path / "encoder")
    read, left = encoder.passages, [2]

    def passages(texts):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return read(texts)

    monkeypatch.setattr(encoder, "passages", passages)
    with pytest.raises(KeyboardInterrupt):
        encode_passages(tmp_path, encoder, PASSAGES)
    left[0] = 3  # of five
    encode_passages(tmp_path, encoder, PASSAGES)
    assert left[0] == 0
    vectors = np.load(tmp_path / "vectors.npy")
    np.testing.assert_allclose(vectors[:, :-1], read(PASSAGES), atol=2e-3)
    assert not list(tmp_path.glob("part-*"))
    (tmp_path / "part-50.npy").touch()  # interrupted while the chunks were removed
    encode_passages(tmp_path, encoder, PASSAGES)
    assert left[0] == 0 and not list(tmp_path.glob("part-*"))
