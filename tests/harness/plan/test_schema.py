"""Conditions of claims and fidelities are said in one line; what is no condition is refused with its place."""

import pytest

from harness.common.errors import RequestError
from harness.plan import expansion, recipe
from tests.harness.plan.test_recipe import TEXT


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("is: x at least 5", ("at least", 5.0, 1.0)),
        ("is: x at most -1e-3", ("at most", -1e-3, 1.0)),
        ("is: x below .5", ("below", 0.5, 1.0)),
        ("is: x above, than: {method: toy-uniform}", ("above", "toy-uniform", 1.0)),
        ("is: x at least 2.5 times, than: {method: toy-uniform}", ("at least", "toy-uniform", 2.5)),
        ("is: x over 1", "'x over 1' is not of the form METRIC below, above, at most or at least NUMBER"),
        ("is: x above 1e999", "is not of the form METRIC"),
        ("is: x above 5x", "is not of the form METRIC"),
        ("metric: x, is: x above 1", "is not of the form METRIC"),
        ("factor: 2, is: x above 1", "is not of the form METRIC"),
        ("is: x above", "'x above' has no bound"),
        ("is: x above 2 times", "'x above 2 times' has no bound"),
        ("is: x above 1, than: {method: toy-uniform}", "'x above 1' has two bounds"),
        ("is: x above 2 times, than: 5", "wants another cell in `than`"),
    ],
)
def test_a_claim_says_its_condition_in_words(condition, said):
    text = f"{TEXT}claims: [{{text: t, source: s, of: {{method: toy-unigram}}, {condition}}}]\n"
    if isinstance(said, str):
        with pytest.raises(RequestError, match=rf"toy\.yaml at claims\.0: .*({said})"):
            recipe.parse(text, "toy.yaml")
        return
    (claim,) = recipe.parse(text, "toy.yaml").claims
    than = claim.than if isinstance(claim.than, float) else claim.than.method
    assert (claim.is_, than, claim.factor) == said and claim.metric == "x"


@pytest.mark.parametrize("condition", ["x at mots 1", "x at most", "x at most 2 times", "{is: x at most, bound: 1}"])
def test_a_fidelity_that_is_no_condition_is_refused(condition):
    for text in (
        f"{TEXT}fidelity: {condition}\n",
        TEXT.replace("toy-uniform}", f"toy-uniform, fidelity: {condition}}}"),
    ):
        with pytest.raises(RequestError, match=r"toy\.yaml at .*fidelity.*(is not of the form METRIC|bound|wants)"):
            recipe.parse(text, "toy.yaml")


def test_a_cell_names_a_fidelity_of_the_recipe(toys):
    text = TEXT.replace("method: toy-uniform}", "method: toy-uniform, fidelity: near}")
    near = "fidelities: {near: {is: perplexity below 9}}\n"
    first, *_ = expansion.expand(recipe.parse(text + near, "toy.yaml"), "mini", toys)
    assert first.fidelity.bound == 9
    with pytest.raises(
        RequestError, match="unknown fidelity 'near' in recipe toy, row 'uniform': did you mean 'nearly'"
    ):
        expansion.expand(recipe.parse(text + near.replace("near:", "nearly:"), "toy.yaml"), "mini", toys)
