"""Muon and AdamW as one optimizer: who steps what, and a resumed run that ends as an uninterrupted one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from harness.common.progress import Progress
from harness.common.training import optimizers
from harness.common.training.loop import Plan, train, warmup_cosine
from harness.common.training.optimizers import Float32Muon, muon


class Tied(nn.Module):
    """An embedding that is the output layer as well, a matrix and a norm."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.words, self.hidden, self.norm = nn.Embedding(11, 16), nn.Linear(16, 16), nn.LayerNorm(16)
        self.out = nn.Linear(16, 11, bias=False)
        self.out.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.out(self.norm(torch.relu(self.hidden(self.words(ids)))))
        return logits


def trained(steps: int, checkpoint=None, until: int | None = None) -> Tied:
    """Next numbers modulo 11. until: the step at which the run is cut off."""
    module = Tied()

    def loss(module: nn.Module, ids: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(module(ids), (ids + 1) % 11)

    def batches(step: int) -> torch.Tensor:
        if step == until:
            raise KeyboardInterrupt
        return torch.randint(11, (8,), generator=torch.Generator().manual_seed(step))

    plan = Plan(steps=steps, schedule=warmup_cosine(steps, 3), checkpoint_seconds=0.0)
    train(module, loss, batches, muon(module, 0.05, 0.0), plan, checkpoint=checkpoint, progress=Progress(quiet=True))
    return module


def test_only_hidden_matrices_are_orthogonalised():
    module = Tied()
    matrices, rest = muon(module, 0.02, 0.1).parts
    assert matrices.param_groups[0]["params"] == [module.hidden.weight]
    assert {id(p) for p in rest.param_groups[0]["params"]} == {
        id(p) for p in (module.words.weight, module.hidden.bias, module.norm.weight, module.norm.bias)
    }


def test_a_step_of_muon_is_as_large_as_one_of_adamw():
    torch.manual_seed(0)
    layer = nn.Linear(256, 128)
    before = layer.weight.detach().clone()
    optimizer = muon(layer, 1e-2, 0.0)
    layer(torch.randn(512, 256)).square().mean().backward()
    optimizer.step()
    moved = (layer.weight.detach() - before).square().mean().sqrt()
    assert moved == pytest.approx(0.2 * 1e-2, rel=0.3)  # the root mean square of AdamW's updates in practice


MATCHED = {"lr": 1e-2, "weight_decay": 0.1, "adjust_lr_fn": "match_rms_adamw"}


@pytest.mark.parametrize("shape", [(8, 24), (24, 8), (16, 16)])
@pytest.mark.parametrize("nesterov", [True, False])
def test_products_in_float32_give_the_steps_of_torchs_muon_whichever_begins(shape, nesterov):
    torch.manual_seed(0)
    kinds = [Float32Muon, torch.optim.Muon]
    matrices = [nn.Parameter(weights.clone()) for weights in [torch.randn(shape)] * 2]
    steppers = [kind([matrix], nesterov=nesterov, **MATCHED) for kind, matrix in zip(kinds, matrices, strict=True)]
    before = matrices[0].detach().clone()
    for turn in range(6):
        if turn == 3:  # each goes on from what the other kind has kept
            kept = [one.state_dict() for one in steppers]
            steppers = [kind([m], nesterov=nesterov, **MATCHED) for kind, m in zip(kinds[::-1], matrices, strict=True)]
            for stepper, state in zip(steppers, kept, strict=True):
                stepper.load_state_dict(state)
        gradient = torch.randn(shape)
        for matrix, stepper in zip(matrices, steppers, strict=True):
            matrix.grad = gradient.clone()
            stepper.step()
    gone, apart = (matrices[0] - before).norm(), (matrices[0] - matrices[1]).norm()
    assert apart < 0.02 * gone  # torch's products are of bfloat16


def test_a_matrix_without_a_gradient_stays_and_another_scale_is_refused():
    matrix = nn.Parameter(torch.ones(4, 4))
    Float32Muon([matrix], **MATCHED).step()
    assert torch.equal(matrix, torch.ones(4, 4))
    with pytest.raises(ValueError, match="match_rms_adamw"):
        Float32Muon([matrix], lr=1e-2)


@pytest.mark.parametrize(("fast", "kind"), [(None, Float32Muon), (torch.bfloat16, torch.optim.Muon)])
def test_products_are_of_bfloat16_where_it_is_fast(fast, kind, monkeypatch):
    monkeypatch.setattr(optimizers, "fast_precision", lambda device: fast)
    assert type(muon(Tied(), 0.02, 0.1).parts[0]) is kind


def test_it_learns_and_resumes(tmp_path):
    whole = trained(200)
    ids = torch.arange(11)
    assert (whole(ids).argmax(1) == (ids + 1) % 11).all()
    with pytest.raises(KeyboardInterrupt):
        trained(200, tmp_path / "training.pt", until=90)
    assert (tmp_path / "training.pt").exists()
    resumed = trained(200, tmp_path / "training.pt")
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_closure_is_refused():
    with pytest.raises(TypeError, match="closure"):
        muon(Tied(), 0.02, 0.1).step(lambda: 0.0)
