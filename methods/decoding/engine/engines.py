"""The choice of a model's engine, and checks of requests."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy, deepcopy
from typing import Any, Literal
from weakref import WeakKeyDictionary

from harness.common.errors import RequestError
from harness.common.generate import Constraints, maximum_new_tokens
from harness.contracts import GenerationModel
from methods.bandwidth import weights_of
from methods.decoding.engine.session import Engine

Numbers = Literal["float32", "int8"]  # float32: the type of the model's weights, whatever it is

_made: WeakKeyDictionary[GenerationModel, tuple[Any, int, dict[Numbers, Engine]]] = WeakKeyDictionary()


def shared_engine(model: GenerationModel, numbers: Numbers = "float32") -> Engine:
    """`engine_of`, made once for all methods in a process: they hold one packed copy of the weights, not one each. A
    model with another module or start token gets another; weights are not to be changed in place."""
    module, start, engines = _made.get(model, (None, 0, {}))
    if module is not model.module or start != model.start_id:
        engines = {}
        _made[model] = model.module, model.start_id, engines
    if numbers not in engines:
        engines[numbers] = engine_of(model, numbers)
    return engines[numbers]


def engine_of(model: GenerationModel, numbers: Numbers = "float32") -> Engine:
    """The lean engine if it knows the model's class, else the module's own forward pass. Both are checked.

    numbers: `int8` rounds the decoder's matrices to 8 bits with a scale per output. Their products are in the type of
    the model; an encoder, and keys and values of its outputs, are computed in float32.

    Raises `RequestError` for a model whose state cannot be cropped or whose logits depend on how its tokens are fed,
    and for int8 if the lean engine does not know the model or it is neither float32 nor bfloat16 on a CPU.
    """
    import torch

    from methods.decoding.engine.causal import known
    from methods.decoding.engine.checks import check
    from methods.decoding.engine.transformer import CLASSES
    from methods.decoding.engine.transformer_session import TransformerEngine

    module = model.module
    # of causal models on a GPU the module's own pass was measured, the lean engine never
    lean = type(module).__name__ in CLASSES and (model.kind != "causal" or (known(module) and model.device == "cpu"))
    with torch.inference_mode():
        if numbers == "int8":
            dtypes = (torch.float32, torch.bfloat16)
            if not lean or module.dtype not in dtypes or model.device != "cpu":
                raise RequestError(
                    f"decoding in int8 knows {', '.join(CLASSES)} in float32 or bfloat16 on a CPU, with positions that "
                    f"do not depend on the length of the text; {model.name} is a {type(module).__name__} in "
                    f"{str(module.dtype).removeprefix('torch.')} on {model.device}"
                )
            bfloat16, model = module.dtype == torch.bfloat16, with_rounded_decoder(model)
            engine = TransformerEngine(model.module, model.start_id, model.device, int8=True, bfloat16=bfloat16)
            check(engine, model, engine.window, bfloat16)
            return engine
        # float16 overflows in these models' encoders: their modules clamp it, the lean engine does not
        alike = all(part.dtype == module.dtype for part in module.parameters())  # T5 in bfloat16 keeps some in float32
        if lean and module.dtype != torch.float16 and alike:
            engine = TransformerEngine(module, model.start_id, model.device)
            check(engine, model, engine.window)
            engine.weights = weights_of(model)
            return engine
        return engine_of_module(model)


def engine_of_module(model: GenerationModel) -> Engine:
    """The module's own forward pass, checked. Raises `RequestError` as `engine_of` does."""
    from methods.decoding.engine.checks import check
    from methods.decoding.engine.generic import GenericEngine

    engine = GenericEngine(model.module, model.kind, model.start_id, model.device)
    check(engine, model, engine.window)
    engine.weights = weights_of(model)
    return engine


def with_rounded_decoder(model: GenerationModel) -> GenerationModel:
    """A float32 copy of a model with the decoder's matrices rounded, each row to 255 equal steps. Embeddings are not
    rounded; an output layer that shares them becomes separate."""
    import torch
    from transformers.pytorch_utils import Conv1D

    from methods.decoding.engine.dense import rounded
    from methods.decoding.engine.transformer import output_layer

    with torch.inference_mode(False), torch.no_grad():  # its layers become views, which inference tensors cannot
        other, module = copy(model), deepcopy(model.module).float()
        decoder, head = module.get_decoder(), output_layer(module)
        layers = next(found for name in ("layers", "block", "h") if (found := getattr(decoder, name, None)) is not None)
        for part in layers.modules():
            if isinstance(part, torch.nn.Linear):
                part.weight = torch.nn.Parameter(rounded(part.weight), requires_grad=False)
            elif isinstance(part, Conv1D):  # its matrix is [in, out]
                part.weight = torch.nn.Parameter(rounded(part.weight.t()).t(), requires_grad=False)
        own = torch.nn.Linear(head.weight.shape[1], head.weight.shape[0], bias=False)
        own.weight = torch.nn.Parameter(rounded(head.weight), requires_grad=False)
        if hasattr(decoder, "output_projection"):
            decoder.output_projection = own
        else:
            module.set_output_embeddings(own)
        other.module = module
    return other


def without_positions(model: GenerationModel, constraints: Constraints, peer: str, how: str) -> None:
    """Raise `RequestError` if constraints depend on positions. how: what this peer does with them."""
    if constraints.by_position:
        raise RequestError(
            f"the generation configuration of {model.name} asks for {', '.join(constraints.facts().values())}, which "
            f"{peer} {how}: leave this peer out, or take the settings out of the model's generation_config.json"
        )


def checked_limits(
    model: GenerationModel, sources: Sequence[Sequence[int]], limit: int
) -> tuple[list[int], Constraints]:
    """Maximum new tokens of each source, and the model's constraints. The maximum is `limit`, or less if the model's
    window or configuration allows less.

    Raises `RequestError` for a negative limit, a source longer than the model takes, ids outside the vocabulary, a text
    whose rotations would change while it is decoded, or a configuration that forces tokens and forbids them.
    """
    from methods.decoding.engine.generic import rotation_switch

    if limit < 0:
        raise RequestError(f"a limit of {limit} tokens: give 0 or more")
    demands = Constraints.of(model.module, model.eos_ids)
    for forced, name in (((demands.first,), "forced_bos_token_id"), (demands.last, "forced_eos_token_id")):
        if forced and demands.suppressed and set(forced) <= set(demands.suppressed):
            raise RequestError(
                f"the generation configuration of {model.name} forces token {forced[0]} ({name}) and forbids it "
                "(suppress_tokens or bad_words_ids): take one of them out"
            )
    vocabulary = model.module.get_input_embeddings().num_embeddings
    for number, source in enumerate(sources):
        if model.longest_source is not None and len(source) > model.longest_source:
            raise RequestError(
                f"source {number} has {len(source)} tokens and {model.name} takes {model.longest_source}: shorten or "
                "split it"
            )
        wrong = next((token for token in source if not 0 <= token < vocabulary), None)
        if wrong is not None:
            raise RequestError(
                f"source {number} has token {wrong}, outside the vocabulary of {model.name} (0 to {vocabulary - 1}): "
                "encode it with the model's own tokenizer"
            )
    limits = [maximum_new_tokens(model, source, limit) for source in sources]
    switch = rotation_switch(model.module.config.get_text_config())
    for number, (source, most) in enumerate(zip(sources, limits, strict=True)):
        prompt = max(len(source), 1)
        if switch is not None and prompt <= switch < prompt + most - 1:  # the last token is never fed
            raise RequestError(
                f"source {number} has {prompt} tokens and may get {most}: {model.name} rotates all positions anew in "
                f"texts of more than {switch} tokens (longrope), which a key-value cache cannot follow; limit outputs "
                f"to {switch - prompt + 1} tokens, or begin with more than {switch}"
            )
    return limits, demands
