"""The training loop: a killed run that resumes ends in the same weights, and errors are one line."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from harness.common.errors import CellFailedError, MachineError
from harness.common.progress import Progress
from harness.common.training.loop import History, Plan, train, warmup_cosine

QUIET = Progress(quiet=True)


class Recurrent(nn.Module):
    """Dropout, and a hidden state that lives across steps, as in truncated BPTT."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.cell = nn.GRUCell(4, 4)
        self.dropout = nn.Dropout(0.3)
        self.register_buffer("state", torch.zeros(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.cell(self.dropout(x), self.state)
        self.state = hidden.detach()
        return hidden


def batch(step: int) -> torch.Tensor:
    return torch.randn(2, 4, generator=torch.Generator().manual_seed(step))


def squared(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (module(x) - x).square().mean()


def run(checkpoint: Path | None = None, stop_at: int | None = None, seconds: float = 0.0) -> tuple[nn.Module, History]:
    module = Recurrent()
    schedule = warmup_cosine(50, 5)
    plan = Plan(steps=50, schedule=schedule, checkpoint_seconds=seconds, evaluate_every=10, tokens_per_step=2)

    def batches(step: int) -> torch.Tensor:
        if step == stop_at:
            signal.raise_signal(signal.SIGKILL)
        return batch(step)

    optimizer = torch.optim.AdamW(module.parameters(), lr=0.05)
    history = train(
        module, squared, batches, optimizer, plan,
        evaluate=lambda m: float(squared(m, batch(999)).detach()), checkpoint=checkpoint, progress=QUIET,
    )  # fmt: skip
    return module, history


def test_a_killed_run_resumes_to_the_same_weights_and_history(tmp_path: Path) -> None:
    file = tmp_path / "training.pt"
    code = (
        f"import runpy; from pathlib import Path; runpy.run_path({__file__!r})['run'](Path({str(file)!r}), stop_at=37)"
    )
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=100)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    whole, expected = run()
    resumed, history = run(file)
    assert torch.load(file, weights_only=True)["history"]["step"] == 50
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    assert history.losses == expected.losses and history.tokens == 100
    assert [step for step, _ in history.evaluations] == [10, 20, 30, 40, 50]
    assert history.evaluations == expected.evaluations


def test_training_lowers_the_loss_and_leaves_the_callers_random_state_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    module = Recurrent()  # seeds on its own
    torch.manual_seed(7)
    history = train(
        module, squared, batch, torch.optim.AdamW(module.parameters(), lr=0.05), Plan(steps=200), progress=QUIET
    )
    assert torch.equal(torch.rand(3), expected) and not module.training
    assert history.losses[-1][1] < 0.8 * history.losses[0][1]


def test_clipping_bounds_the_step() -> None:
    module = nn.Linear(1, 1, bias=False)
    before = module.weight.item()
    plan = Plan(steps=1, clip=0.5)
    optimizer = torch.optim.SGD(module.parameters(), 1.0)
    train(module, lambda m, x: 1e4 * m(x).sum(), lambda _: torch.ones(1, 1), optimizer, plan, progress=QUIET)
    assert abs(before - module.weight.item()) == pytest.approx(0.5, rel=1e-3)


def test_a_loss_that_is_not_finite_ends_the_run_with_one_line() -> None:
    module = nn.Linear(1, 1)
    with pytest.raises(CellFailedError, match="diverged: the loss is nan at step 10"):
        train(module, lambda m, x: m(x).sum() * math.nan, lambda _: torch.ones(1, 1),
              torch.optim.SGD(module.parameters(), 1.0), Plan(steps=30), progress=QUIET)  # fmt: skip


def test_a_checkpoint_that_cannot_be_written_is_the_machines_fault(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="checkpoint"):
        run(tmp_path / "absent" / "training.pt")


def test_warmup_cosine_rises_then_falls_to_the_floor() -> None:
    factors = [warmup_cosine(100, 10, floor=0.1)(step) for step in range(100)]
    assert factors[0] == pytest.approx(0.1) and max(factors) == pytest.approx(1.0) and factors[-1] == pytest.approx(0.1)
    assert factors[:10] == sorted(factors[:10]) and factors[10:] == sorted(factors[10:], reverse=True)
