"""Sizes of Transformers that write one text from another, and how each is trained. No torch here: a dry run reads this
table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A model and its training: linear warm-up over `warmup` steps, then half a cosine down to 5%.

    vocabulary: entries of the shared subword vocabulary. encoder_layers: 0 makes a causal model, which reads the source
    as a prompt. width: of the model; feed_forward: of the inner layers.
    positions: longest source or output, in ids. batch_ids: padded ids of the longer side per step. longest: pairs with
    more ids on either side are left out of training. smoothing: probability spread by label smoothing. edit_weight:
    weight in the loss of target ids at which repeating the source would be wrong (Junczys-Dowmunt et al., 2018, section
    4). versions: copies of a clean text, each with other errors. last_steps: last steps of a corrector's training, on
    real corrections. copies: an encoder-decoder starts as a copier of its source, else from random weights. optimizer:
    AdamW, or Muon for the matrices (`harness.common.training.optimizers`). student_steps: steps of a student, which
    learns from a teacher's outputs, from the teacher's weights; 0: it takes `steps` steps from its own initial weights.
    """

    vocabulary: int
    encoder_layers: int
    decoder_layers: int
    width: int
    feed_forward: int
    heads: int
    positions: int = 512
    longest: int = 128
    batch_ids: int
    steps: int
    warmup: int
    learning_rate: float
    dropout: float = 0.0
    smoothing: float = 0.0
    edit_weight: float = 1.0
    versions: int = 1
    last_steps: int = 0
    copies: bool = True
    optimizer: Literal["adamw", "muon"] = "adamw"
    student_steps: int = 0

    @property
    def shape(self) -> str:
        """Layers and width as text."""
        layers = f"{self.encoder_layers}+{self.decoder_layers}" if self.encoder_layers else f"{self.decoder_layers}"
        return f"{layers}x{self.width}"


# what sizes of a scale share
_MINI: dict[str, Any] = {
    "vocabulary": 1024, "heads": 4, "batch_ids": 1024, "steps": 600, "warmup": 60, "learning_rate": 2e-3,
}  # fmt: skip
_SMALL: dict[str, Any] = {"vocabulary": 8192, "heads": 8, "learning_rate": 1e-3}
_EDITOR: dict[str, Any] = {**_SMALL, "batch_ids": 2048, "edit_weight": 4.0, "versions": 3}
_BIG: dict[str, Any] = {
    "vocabulary": 32_768, "width": 1024, "feed_forward": 4096, "heads": 16, "batch_ids": 16_384, "steps": 200_000,
    "warmup": 4000, "learning_rate": 5e-4, "dropout": 0.1, "smoothing": 0.1, "edit_weight": 4.0, "versions": 10,
    "last_steps": 1000,
}  # fmt: skip

SIZES: Mapping[str, Size] = {
    "mini": Size(**_MINI, encoder_layers=2, decoder_layers=2, width=128, feed_forward=512),
    "small": Size(
        **_EDITOR, encoder_layers=6, decoder_layers=6, width=256, feed_forward=1024, steps=3600, warmup=300,
        last_steps=300,
    ),
    # Encoders run once per sentence and in parallel, decoders once per token: a deep encoder with a shallow decoder is
    # fast.
    "mini-deep": Size(**_MINI, encoder_layers=4, decoder_layers=1, width=128, feed_forward=512),
    "small-deep": Size(
        **_EDITOR, encoder_layers=12, decoder_layers=2, width=256, feed_forward=1024, steps=1800, warmup=200,
        last_steps=200,
    ),
    # causal models, whose sources are prompts
    "mini-causal": Size(
        **_MINI | {"batch_ids": 2048, "steps": 1000}, encoder_layers=0, decoder_layers=4, width=128, feed_forward=384
    ),
    "small-causal": Size(
        **_EDITOR, encoder_layers=0, decoder_layers=6, width=256, feed_forward=768, steps=2000, warmup=200,
        last_steps=200,
    ),
    # they draft for the models of the same name
    "mini-draft": Size(**_MINI, encoder_layers=1, decoder_layers=1, width=64, feed_forward=256),
    "small-draft": Size(
        **_EDITOR, encoder_layers=2, decoder_layers=1, width=256, feed_forward=1024, steps=1000, warmup=100,
        last_steps=100,
    ),
    # they translate, and summarise
    "mini-translator": Size(**_MINI, encoder_layers=2, decoder_layers=2, width=128, feed_forward=512, copies=False),
    "small-translator": Size(
        **_SMALL, encoder_layers=3, decoder_layers=3, width=256, feed_forward=1024, batch_ids=4096, steps=1500,
        warmup=150, dropout=0.3, smoothing=0.1, copies=False, optimizer="muon", student_steps=500,
    ),
    "mini-big-translator": Size(
        **_MINI | {"learning_rate": 1.5e-3}, encoder_layers=3, decoder_layers=3, width=192, feed_forward=768,
        copies=False,
    ),
    "small-big-translator": Size(
        **_SMALL | {"learning_rate": 7e-4}, encoder_layers=6, decoder_layers=6, width=384, feed_forward=1536,
        batch_ids=4096, steps=4000, warmup=800, dropout=0.3, smoothing=0.1, copies=False,
    ),
    "mini-summariser": Size(
        **_MINI | {"batch_ids": 2048}, encoder_layers=2, decoder_layers=2, width=128, feed_forward=512, longest=256
    ),
    "small-summariser": Size(
        **_SMALL, encoder_layers=4, decoder_layers=4, width=256, feed_forward=1024, longest=512, batch_ids=8192,
        steps=1500, warmup=200, dropout=0.1,
    ),
    # for a GPU
    "transformer-big": Size(**_BIG, encoder_layers=6, decoder_layers=6),  # Vaswani et al. 2017; the paper's corrector
    "transformer-big-deep": Size(**_BIG, encoder_layers=12, decoder_layers=2),  # the shape of the paper's BART-Init
}  # fmt: skip
