"""The loss of an output layer in slices, against the whole logits."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tasks.models.lm.loss import output_loss


def arguments(rows: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    states = torch.randn(rows, 24, generator=generator, dtype=dtype).requires_grad_()
    weight = torch.randn(97, 24, generator=generator, dtype=dtype).requires_grad_()
    return states, weight, torch.randint(97, (rows,), generator=generator)


@pytest.mark.parametrize("rows", [1, 255, 256, 257, 700])
def test_loss_and_gradients_are_those_of_the_whole_logits(rows):
    states, weight, targets = arguments(rows)
    ours = output_loss(states, weight, targets)
    whole = F.cross_entropy(states @ weight.T, targets)
    torch.testing.assert_close(ours, whole)
    found = torch.autograd.grad(3 * ours, (states, weight))
    wanted = torch.autograd.grad(3 * whole, (states, weight))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_a_tied_weight_gets_the_gradients_of_both_its_uses():
    weight = torch.randn(50, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    ids = torch.arange(40)
    ours = output_loss(torch.tanh(weight[ids]), weight, ids + 5)
    whole = F.cross_entropy(torch.tanh(weight[ids]) @ weight.T, ids + 5)
    torch.testing.assert_close(*(torch.autograd.grad(loss, weight)[0] for loss in (ours, whole)))


def test_autocast_rounds_products_alone():
    states, weight, targets = arguments(300)
    exact = output_loss(states, weight, targets)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = output_loss(states, weight, targets)
        wanted = F.cross_entropy((states @ weight.T).float(), targets)
    assert rounded.dtype == torch.float32
    assert rounded.item() != exact.item()
    torch.testing.assert_close(rounded, wanted)
    gradients = [torch.autograd.grad(loss, states)[0] for loss in (rounded, wanted)]
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=0.02)


def test_no_gradient_is_made_where_none_is_wanted():
    states, weight, targets = (part.detach() for part in arguments(300))
    assert not output_loss(states, weight, targets).requires_grad
