"""The ∞-gram LM in `generate`: its probabilities are those of scoring what was generated."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import LogitsProcessorList

from harness.common.cache import Cache, CellArtifacts
from harness.common.errors import RequestError
from harness.common.phases import NoPhases
from methods.infinigram.generation import InfinigramProcessor
from methods.infinigram.indexed import opened_reference
from methods.infinigram.lm import InfinigramLm
from tests.methods.knnlm.conftest import model, text
from tests.methods.retomaton.test_generation import Kept

__all__ = ["model"]  # a fixture


def test_a_step_s_probabilities_are_those_of_scoring_the_text(model, tmp_path):
    method, artifacts = InfinigramLm(sparse=0.7, other=0.3), CellArtifacts(Cache(tmp_path))
    method.fit(model, text(1, 400, 300), (), artifacts)
    engine, kept = opened_reference(artifacts, model.tokenizer_hash), Kept()
    processor = InfinigramProcessor(engine, sparse=0.7, other=0.3)
    with torch.inference_mode():
        ids = model.module.generate(
            torch.tensor([[7], [9]]), max_new_tokens=12, do_sample=False, pad_token_id=0, eos_token_id=None,
            logits_processor=LogitsProcessorList([processor, kept]),
        )  # fmt: skip
    scores = torch.stack(kept.scores)
    np.testing.assert_allclose(scores.exp().sum(-1).numpy(), 1, atol=1e-4)
    for row, answer in enumerate(method.score(model, list(ids.numpy()), NoPhases())):
        chosen = scores[:, row].gather(1, ids[row, 1:, None])[:, 0]
        np.testing.assert_allclose(chosen.numpy(), answer.log_probs, rtol=0, atol=1e-4)
    padded = torch.nn.functional.pad(ids, (2, 0), value=engine.vocabulary_size)  # a padding token of its own
    logits = torch.zeros(2, scores.shape[2] + 1)
    np.testing.assert_allclose(processor(padded, logits), processor(ids, logits))
    forbidden = torch.zeros(2, scores.shape[2]).index_fill(1, torch.tensor([3, 5]), -torch.inf)
    assert processor(ids, forbidden).isneginf()[:, [3, 5]].all()


def test_weights_and_vocabularies_that_do_not_fit_are_refused(model, tmp_path):
    method, artifacts = InfinigramLm(sparse=0.7, other=0.3), CellArtifacts(Cache(tmp_path))
    method.fit(model, text(1, 400), (), artifacts)
    engine = opened_reference(artifacts, model.tokenizer_hash)
    with pytest.raises(RequestError, match=r"other = 1\.0: give a weight from 0 to 0\.999"):
        InfinigramProcessor(engine, sparse=0.5, other=1.0)
    with pytest.raises(RequestError, match="build the index with the model's tokenizer"):
        InfinigramProcessor(engine, sparse=0.5, other=0.5)(torch.tensor([[1]]), torch.zeros(1, 3))
