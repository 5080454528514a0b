"""One training loop for every model of the project: language models, translators, drafters.

Callers pass what differs (module, loss, batches, optimizer, schedule). The loop has what is easy to get wrong: exact
resume after a kill, gradient clipping, mixed precision, evaluation, progress.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from harness.common.cores import usable_cores
from harness.common.errors import CellFailedError, MachineError, reason
from harness.common.progress import Progress

Batch = TypeVar("Batch")
_REPORT_EVERY = 10  # steps; reading the loss makes a GPU wait


@dataclass(slots=True)
class History:
    """Steps done, seconds over all runs, tokens seen, threads of the last run, and losses by step."""

    step: int = 0
    seconds: float = 0.0
    tokens: int = 0
    threads: int = 0
    losses: list[tuple[int, float]] = field(default_factory=list)  # (step, mean training loss since the last entry)
    evaluations: list[tuple[int, float]] = field(default_factory=list)  # (step, result of `evaluate`)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a training. `schedule(step)` is the factor of the optimizer's learning rates; it has no state.

    clip: largest gradient norm, or None. autocast: dtype of mixed precision, or None. seed: of dropout.
    tokens_per_step: only for the displayed speed. evaluate_every: steps; None: only at the end.
    """

    steps: int
    schedule: Callable[[int], float] = lambda step: 1.0
    clip: float | None = 1.0
    autocast: torch.dtype | None = None
    seed: int = 0
    tokens_per_step: int = 0
    evaluate_every: int | None = None
    checkpoint_seconds: float = 60.0
    stage: str = "training"


def train(
    module: nn.Module,
    loss: Callable[[nn.Module, Batch], torch.Tensor],
    batches: Callable[[int], Batch],
    optimizer: torch.optim.Optimizer,
    plan: Plan,
    *,
    evaluate: Callable[[nn.Module], float] | None = None,
    checkpoint: Path | None = None,
    progress: Progress | None = None,
) -> History:
    """Take `plan.steps` optimizer steps, or the rest of them when `checkpoint` holds an interrupted run.

    loss(module, batch): scalar. batches(step): the batch of a step. It must depend on the step alone, so that a resumed
    run sees the same batches. State across steps (an LSTM's hidden state under truncated BPTT) belongs in a buffer of
    the module, which the checkpoint holds. evaluate(module): a held-out loss.
    On a CPU all cores are used, even if the process is timed on fewer threads.
    checkpoint: a file written every `checkpoint_seconds`; the caller removes it when the model is saved. Weights after
    a resume equal those of an uninterrupted run bitwise (same machine, same threads).

    Leaves the module in eval mode. Raises `CellFailedError` when the loss is not finite and `MachineError` when a
    checkpoint cannot be written.
    """
    device = next(module.parameters()).device
    progress = progress or Progress()
    rates = [group["lr"] for group in optimizer.param_groups]
    history = History()
    with all_cores(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(plan.seed)
        if checkpoint is not None and checkpoint.exists():
            history = _restore(checkpoint, module, optimizer, device)
        saved = started = time.monotonic()
        before, first, history.threads = history.seconds, history.step, torch.get_num_threads()
        recent: list[torch.Tensor] = []
        module.train()
        while history.step < plan.steps:
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * plan.schedule(history.step)
            with torch.autocast(device.type, plan.autocast, enabled=plan.autocast is not None):
                value = loss(module, batches(history.step))
            optimizer.zero_grad(set_to_none=True)
            value.backward()
            if plan.clip is not None:
                nn.utils.clip_grad_norm_(module.parameters(), plan.clip)
            optimizer.step()
            recent.append(value.detach())
            history.step += 1
            history.tokens += plan.tokens_per_step
            now = time.monotonic()
            history.seconds = before + now - started
            if history.step % _REPORT_EVERY == 0 or history.step == plan.steps:
                history.losses.append((history.step, _mean(recent, plan.stage, history.step)))
                recent = []
                progress.update(plan.stage, history.step, plan.steps, "steps", _note(history, first, before, plan))
            if evaluate and (history.step == plan.steps or _due(history.step, plan.evaluate_every)):
                module.eval()
                history.evaluations.append((history.step, evaluate(module)))
                module.train()
            # only when no loss waits to be averaged, so that the history is as exact as the weights
            if checkpoint is not None and not recent and now - saved >= plan.checkpoint_seconds:
                _save(checkpoint, module, optimizer, history, device)
                saved = now
    module.eval()
    return history


def warmup_cosine(steps: int, warmup: int, floor: float = 0.1) -> Callable[[int], float]:
    """Linear warmup over `warmup` steps, then half a cosine down to `floor` at the last step."""

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        share = (step - warmup) / max(1, steps - 1 - warmup)
        return floor + (1 - floor) * 0.5 * (1 + float(torch.cos(torch.tensor(share * torch.pi))))

    return factor


def record(history: History, device: str, precision: torch.dtype | None) -> dict[str, Any]:
    """The record of a training in a model's `training.json`, with about 200 of the reported losses."""
    return {
        "seconds": round(history.seconds, 1),
        "device": device,
        "precision": str(precision or torch.float32),
        "threads": history.threads,
        "torch": torch.__version__,
        "losses": history.losses[:: max(1, len(history.losses) // 200)],
    }


def _due(step: int, every: int | None) -> bool:
    return every is not None and step % every == 0


def _mean(losses: list[torch.Tensor], stage: str, step: int) -> float:
    mean = float(torch.stack(losses).mean())
    if mean != mean or mean in (float("inf"), float("-inf")):
        raise CellFailedError(f"{stage} diverged: the loss is {mean} at step {step}; lower the learning rate")
    return mean


def _note(history: History, first: int, before: float, plan: Plan) -> str:
    seconds = max(history.seconds - before, 1e-9)
    pace = (history.step - first) / seconds
    held_out = f", held out {history.evaluations[-1][1]:.3f}" if history.evaluations else ""
    speed = f", {pace * plan.tokens_per_step:,.0f} tokens/s" if plan.tokens_per_step else ""
    left = (plan.steps - history.step) / pace
    return f"loss {history.losses[-1][1]:.3f}{held_out}{speed}, {left / 60:.1f} min left"


def _save(
    file: Path, module: nn.Module, optimizer: torch.optim.Optimizer, history: History, device: torch.device
) -> None:
    state: dict[str, Any] = {
        "module": module.state_dict(),
        "optimizer": optimizer.state_dict(),
        "history": asdict(history),
        "random": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }
    partial = file.with_name(f"{file.name}.partial")
    try:
        torch.save(state, partial)
        partial.replace(file)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        partial.unlink(missing_ok=True)
        raise MachineError(f"cannot write the checkpoint {file}: {reason(error)}; free space") from error


def _restore(file: Path, module: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> History:
    state = torch.load(file, map_location="cpu", weights_only=True)
    module.load_state_dict(state["module"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    if state["random_cuda"] is not None and device.type == "cuda":
        torch.cuda.set_rng_state(state["random_cuda"], device)
    return History(**state["history"])


@contextmanager
def all_cores() -> Iterator[None]:
    """As many threads for torch as this process has cores, for work that is not timed; restored afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(usable_cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)
