"""Whether a drafter of a model can be trained and can draft, tried on one pair before training."""

from __future__ import annotations

from copy import copy

import numpy as np
import torch

from harness.common.errors import HarnessError, RequestError, reason
from harness.contracts import GenerationModel
from methods.aggressive.glancing import held_out_loss, masked
from methods.aggressive.nar_training import DrafterOptions, new_drafter
from methods.decoding.engine.engines import engine_of

_BLOCK = 2


def try_drafter(model: GenerationModel, options: DrafterOptions) -> None:
    """Compute the loss of an untrained drafter on one pair, and fill a block of masks with its engine.

    Raises `RequestError` with the model's name if the drafter cannot copy the model's decoder or fails, and for a
    `width` that does not fit.
    """
    module, kind = model.module, type(model.module).__name__
    heads = getattr(module.config, "decoder_attention_heads", None)
    if heads is None or not hasattr(getattr(getattr(module, "model", None), "decoder", None), "layers"):
        raise RequestError(
            f"a drafter takes over the decoder of a model such as Marian or BART, and {model.name} is a {kind}"
        )
    if options.width is not None and (options.width % heads or not options.own_encoder):
        raise RequestError(
            f"width = {options.width}: give a multiple of the {heads} heads, and own_encoder=true, for the verifier's "
            "encoder has its own width"
        )
    mask, drafter = model.vocabulary_size, copy(model)
    pair = ([mask // 2], [mask // 2])
    try:
        with torch.random.fork_rng(devices=[]):
            drafter.module = new_drafter(model, options).to(model.device).eval()
        batch = masked([pair], np.random.default_rng(0), _BLOCK, mask, model.start_id, whole=1.0).to(model.device)
        held_out_loss(drafter.module, batch, mask)
        engine = engine_of(drafter)
        with torch.inference_mode():
            session = engine.start([pair[0]], [_BLOCK])
            session.logits(session.bidirectional([[model.start_id, *[mask] * _BLOCK]], [_BLOCK]))
    except (HarnessError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # whatever the forward pass of an unknown class raises
        raise RequestError(
            f"a drafter of {model.name}, a {kind}, does not run ({type(error).__name__}: {reason(error)}): take a "
            "model such as Marian or BART, whose source and output have one vocabulary"
        ) from error
