"""A model made wider without changing what it computes (Chen et al., 2016, Net2Net, section 3.2): the same outputs at
the cost of a larger model.

Each hidden unit, attention head and feed-forward unit is repeated; the copies share out the weights that read them.
Layer normalisation divides by the same mean and variance, because repetition leaves both as they are. Scores of
attention stay, because the width of a head does. Tied embeddings would make the logits `times` as large, and the scale
of the embeddings too: the last norm of the decoder, which only the logits read, divides by both. If `times` and the
scale of embeddings are powers of two, all of this is exact in any number format; sums are rounded in another order.
"""

from __future__ import annotations

from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from harness.common.errors import RequestError
from harness.common.files import digest

if TYPE_CHECKING:
    import torch


class Model(Protocol):
    """What is read and changed of a model for generation."""

    name: str
    hash: str
    module: Any


M = TypeVar("M", bound=Model)


def widened(model: M, times: int) -> M:
    """The model with every width `times` as large; its own module is left as it is. The hash differs.

    Raises `RequestError` for a model that is no Marian with tied embeddings, as those trained here are.
    """
    if times == 1:
        return model
    module = model.module
    if type(module).__name__ != "MarianMTModel" or not module.config.tie_word_embeddings:
        raise RequestError(
            f"widen = {times}: only encoder-decoders of Marian's architecture with tied embeddings can be widened, and "
            f"{model.name} is a {type(module).__name__}"
        )
    wide: Any = copy(model)
    wide.module, wide.hash = _wide(module, times), digest([model.hash, "widened", times])
    wide.name = f"{model.name}, {times} times as wide"
    wide.widened_from = model, times
    return cast(M, wide)


def narrow(model: M) -> tuple[M, int]:
    """The model that this one was widened from, and how many times; the model itself and 1 if it was not."""
    found: tuple[M, int] = getattr(model, "widened_from", (model, 1))
    return found


def _wide(module: Any, times: int) -> Any:
    import torch

    config, scale = deepcopy(module.config), float(module.model.encoder.embed_scale)
    config.scale_embedding = False  # the scale is part of the table
    for name in ("d_model", *(f"{side}_{what}" for side in ("encoder", "decoder")
                              for what in ("ffn_dim", "attention_heads"))):  # fmt: skip
        setattr(config, name, times * getattr(config, name))
    last = f"model.decoder.layers.{config.decoder_layers - 1}.final_layer_norm."
    with torch.no_grad():
        weights = {name: _repeated(name, part, times, scale, last) for name, part in module.state_dict().items()}
    with torch.device("meta"):
        wide = type(module)(config)
    wide.load_state_dict(weights, assign=True)
    wide.tie_weights()
    wide.generation_config = module.generation_config
    return wide.requires_grad_(False).eval()


def _repeated(name: str, part: torch.Tensor, times: int, scale: float, last: str) -> torch.Tensor:
    """A weight of the wide module. scale: of embeddings. last: prefix of the decoder's last norm."""
    if name == "final_logits_bias":
        return part
    if "embed_positions" in name:
        return part.repeat(1, times)
    if part.ndim == 1:
        return part.repeat(times) / (times * scale if name.startswith(last) else 1)
    if "_proj." in name or ".fc" in name:
        return part.repeat(times, times).div_(times)
    return part.repeat(1, times).mul_(scale)  # embeddings, which the output layer shares
