"""What the drafter is trained on: masked blocks after prefixes of random length, and the glancing loss over them.

Source: Qian et al., 2021, for the glancing strategy.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional

from harness.common.training.pairs import padded
from harness.contracts import TrainingPairs

_EMPTY = 0.3  # share of the prefixes that are forced to be empty, besides those drawn empty
_WHOLE = 0.5  # share of the blocks with full length; the others have a random one


@dataclass(slots=True)
class Masked:
    """A padded batch for the drafter, with p prefixes per source, grouped by source.

    sources, source_real [n, s]: ids, and whether they are real (not padding). inputs [n p, t]: a start token, a prefix
    of the target, masks. targets [n p, t]: the ids to predict. hidden: bool [n p, t], masked positions with a target.
    real: bool [n p, t], positions that are not padding. shown: share of the wrong targets that are shown.
    """

    sources: torch.Tensor
    source_real: torch.Tensor
    inputs: torch.Tensor
    targets: torch.Tensor
    hidden: torch.Tensor
    real: torch.Tensor
    shown: float = 0.0

    def to(self, device: str) -> Masked:
        """Move to a device, in place."""
        for name in ("sources", "source_real", "inputs", "targets", "hidden", "real"):
            setattr(self, name, getattr(self, name).to(device))
        return self


def masked(
    pairs: TrainingPairs, rng: np.random.Generator, block: int, mask: int, start: int, prefixes: int = 1,
    empty: float = _EMPTY, whole: float = _WHOLE,
) -> Masked:  # fmt: skip
    """For each pair, `prefixes` prefixes of its target of random length, each followed by masks, as in drafting. A mask
    after the target's end has no target. empty: share of the prefixes that are forced to be empty. whole: share of the
    rows with `block` masks; the others have 1 to `block`."""
    inputs, targets, hidden = [], [], []
    for _, target in pairs:
        for _ in range(prefixes):
            prefix = 0 if rng.random() < empty else int(rng.integers(len(target)))
            masks = block if rng.random() < whole else int(rng.integers(1, block + 1))
            known, rest = target[:prefix], target[prefix : prefix + masks]
            blank = [0] * (masks - len(rest))
            inputs.append([start, *known, *[mask] * masks])
            targets.append([0, *known, *rest, *blank])
            hidden.append([0] * (prefix + 1) + [1] * len(rest) + blank)

    def tensor(rows: Sequence[Sequence[int]]) -> torch.Tensor:
        return torch.from_numpy(padded(rows, 0))

    return Masked(
        tensor([source for source, _ in pairs]), tensor([[1] * len(source) for source, _ in pairs]),
        tensor(inputs), tensor(targets), tensor(hidden).bool(), tensor([[1] * len(row) for row in inputs]).bool(),
    )  # fmt: skip


def glancing_loss(drafter: Any, batch: Masked, mask: int, encoder: Any = None) -> torch.Tensor:
    """Cross-entropy (nats, label smoothing 0.1) of the hidden targets that are not shown. In each row, `batch.shown` x
    (number of targets that the drafter gets wrong without help) targets are shown, drawn at random. encoder: a frozen
    one for the sources; None: the drafter's own. Sources are encoded once for both passes of the decoder."""
    hidden = batch.hidden
    with nullcontext() if encoder is None else torch.no_grad():
        states = read(drafter, batch, encoder)
    with torch.no_grad():
        found = logits_of(drafter, batch, batch.inputs, states, hidden)[:, :mask].argmax(-1)
        wrong = torch.zeros_like(hidden).masked_scatter(hidden, found != batch.targets[hidden]).sum(1)
        lot = torch.rand(hidden.shape, device=hidden.device).masked_fill(~hidden, 2.0)
        shown = (lot.argsort(1).argsort(1) < (wrong * batch.shown).round()[:, None]) & hidden
    torch.clear_autocast_cache()  # it holds weights cast without a gradient
    inputs = torch.where(shown, batch.targets, batch.inputs)
    learned = hidden & ~shown
    logits = logits_of(drafter, batch, inputs, states, learned)[:, :mask].float()
    return functional.cross_entropy(logits, batch.targets[learned], label_smoothing=0.1)


@torch.no_grad()
def held_out_loss(drafter: Any, batch: Masked, mask: int, encoder: Any = None) -> tuple[list[float], list[int]]:
    """With no target shown: cross-entropy (nats) of each hidden target, and for each row the number of right tokens
    before the first wrong one."""
    states = read(drafter, batch, encoder)
    logits = logits_of(drafter, batch, batch.inputs, states, batch.hidden)[:, :mask].float()
    wanted = batch.targets[batch.hidden]
    right = torch.zeros_like(batch.hidden).masked_scatter(batch.hidden, logits.argmax(-1) == wanted)
    agreed = ((~right & batch.hidden).cumsum(1) == 0) & right
    return functional.cross_entropy(logits, wanted, reduction="none").tolist(), agreed.sum(1).tolist()


def read(drafter: Any, batch: Masked, encoder: Any = None) -> torch.Tensor:
    """The encoded sources [n, s, d]."""
    states: torch.Tensor = (encoder or drafter.get_encoder())(
        input_ids=batch.sources, attention_mask=batch.source_real
    ).last_hidden_state
    return states


def logits_of(
    drafter: Any, batch: Masked, inputs: torch.Tensor, states: torch.Tensor, places: torch.Tensor
) -> torch.Tensor:  # fmt: skip
    """Logits [p, V + 1] for the p true `places` (bool [n, t]) of decoder inputs [n, t]. Every position attends to all
    real positions of its row. states: [n / prefixes, s, d], the encoded sources. A drafter's Markov head sees the right
    token before each place; up to the first wrong token of a block it sees the same in drafting."""
    prefixes = len(inputs) // len(states)
    blocked = torch.zeros(batch.real.shape, dtype=drafter.dtype, device=inputs.device)
    blocked = blocked.masked_fill(~batch.real, torch.finfo(drafter.dtype).min)
    outputs = drafter.base_model(
        encoder_outputs=(states.repeat_interleave(prefixes, 0),),
        attention_mask=batch.source_real.repeat_interleave(prefixes, 0), decoder_input_ids=inputs, use_cache=False,
        decoder_attention_mask=blocked[:, None, None].expand(-1, 1, inputs.shape[1], -1),
    ).last_hidden_state  # fmt: skip
    logits: torch.Tensor = drafter.get_output_embeddings()(outputs[places])
    if hasattr(drafter, "markov"):
        known = torch.where(batch.hidden, batch.targets, batch.inputs)
        logits = logits + drafter.markov(known.roll(1, 1)[places])
    return logits + getattr(drafter, "final_logits_bias", 0)
