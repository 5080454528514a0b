"""The same encoder-decoder models in CTranslate2, an inference engine in C++ that a user could install instead.

CTranslate2's own converter converts the weights once per model and number format. Tokens are passed as their ids in
digits, so no tokenizer is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from harness.common.errors import RequestError
from harness.contracts import Artifacts, Decoded, GenerationModel, Phases, SequenceDecoding, Streams, TrainingPairs
from harness.contracts.answers import Trace
from harness.plan.registry import method
from methods.decoding.engine.engines import checked_limits, without_positions
from methods.decoding.peers.served import Served
from methods.decoding.search.beam import BeamOptions
from methods.packages import package

SERVER = "methods.decoding.peers.ctranslate_server"
# The model types whose loaders work with `Names`. Marian models use the loader of BART: Marian's assumes that the start
# token is a padding token, comes last and has a zero embedding, which holds for OPUS's models but not for all.
CONVERTED = ("BartConfig", "MarianConfig")
NUMBERS = ("float32", "float16", "bfloat16")  # types of weights that it reads


class Names:
    """Stands in for a tokenizer: the name of a token is its id."""

    def __init__(self, model: GenerationModel) -> None:
        config = model.module.config
        self.size = model.vocabulary_size
        self.eos_token = str(model.eos_ids[0])
        self.bos_token = str(_first(config.bos_token_id, model.eos_ids[0]))
        self.unk_token = str(_first(getattr(config, "unk_token_id", None), model.eos_ids[0]))

    def convert_ids_to_tokens(self, number: int) -> str:
        return str(number)

    def get_vocab(self) -> dict[str, int]:
        return {str(number): number for number in range(self.size)}


@method(
    "ctranslate2",
    contract="sequence-decoding",
    baseline="greedy",
    summary="greedy and beam search by CTranslate2, float32 or int8",
    variants=("beam", "compute"),
)
class CTranslate2(BeamOptions, SequenceDecoding):
    """`Translator.translate_batch`. beam: 1 is greedy search. compute: number type of matrix products; int8 changes
    outputs. inter_threads: translations at a time, among which a batch is divided. intra_threads: threads of one
    translation; None: those of the row's timing, divided likewise. int8 can be slower with two
    threads than with one (measured once on two cores, 6+6 layers of width 256: greedy 125 against 19 ms a sentence;
    float32 took 43 with two and 83 with one).

    Its beam search stops as soon as `beam` sentences are finished, like ours with `early_stopping`, which is the search
    to compare it with: stopping later is another search, which costs more steps.

    It runs in a process of its own (`methods.decoding.peers.served` says why), whose memory the row does not count. The
    C++ code does not report its forward passes, so outputs have no iterations.
    """

    beam: Annotated[int, Field(ge=1)] = 1
    early_stopping: Literal[True] = True
    compute: Literal["float32", "int8"] = "float32"
    inter_threads: Annotated[int, Field(ge=1)] = 1
    intra_threads: Annotated[int, Field(ge=1)] | None = None

    def fit(self, model: GenerationModel, reference: Streams, training: TrainingPairs, artifacts: Artifacts) -> None:
        ctranslate2 = package("ctranslate2", "CTranslate2")

        def build(folder: Path) -> None:
            convert(model, folder, self.compute)

        key = {"model": model.hash, "compute": self.compute, "ctranslate2": ctranslate2.__version__}
        artifacts.build("ctranslate2", key, build)

    def open(self, subject: GenerationModel, artifacts: Artifacts) -> None:
        import torch

        device = "cuda" if subject.device.startswith("cuda") else "cpu"
        self.threads = self.intra_threads or max(1, torch.get_num_threads() // self.inter_threads)
        folder = artifacts.path("ctranslate2")
        counts = str(self.inter_threads), str(self.threads)
        self._server = Served("CTranslate2", SERVER, str(folder), device, self.compute, *counts)

    def decode(
        self, model: GenerationModel, sources: Sequence[Sequence[int]], limit: int, phases: Phases
    ) -> list[Decoded]:
        limits, constraints = checked_limits(model, sources, limit)
        without_positions(model, constraints, "CTranslate2", "applies otherwise")
        empty = next((number for number, source in enumerate(sources) if not source), None)
        if empty is not None:
            raise RequestError(
                f"source {empty} is empty: CTranslate2 writes nothing for it; give at least an end token"
            )
        outputs = [Decoded([]) for _ in sources]
        groups: dict[int, list[int]] = {}
        for number, most in enumerate(limits):
            if most:
                groups.setdefault(most, []).append(number)
        settings: dict[str, Any] = {
            "beam_size": self.beam, "length_penalty": self.length_penalty, "max_input_length": 0,
            "min_decoding_length": 0, "return_end_token": True,
            "suppress_sequences": [[str(token)] for token in constraints.suppressed] or None,
            "end_token": [str(end) for end in model.eos_ids],
        }  # fmt: skip
        with phases("generate"):
            for most, group in groups.items():
                given = [[str(token) for token in sources[number]] for number in group]
                share = -(-len(group) // self.inter_threads)
                asked = {
                    "sources": given,
                    "settings": settings | {"max_decoding_length": most, "max_batch_size": share},
                }
                for number, names in zip(group, self._server.ask(asked)["hypotheses"], strict=True):
                    outputs[number] = Decoded([int(name) for name in names], Trace())
        return outputs


def convert(model: GenerationModel, folder: Path, compute: str) -> None:
    """Write a model's weights in CTranslate2's format. Raises `RequestError` for a model that it does not convert."""
    from copy import deepcopy

    from ctranslate2.converters.transformers import BartLoader

    if why := _not_converted(model):
        raise RequestError(f"{model.name} {why}: leave CTranslate2 out for it")
    # A copy: the converter rounds the module's own weights to int8 in place and changes its configuration.
    module = deepcopy(model.module)
    module.config.decoder_start_token_id = model.start_id
    marian = type(module.config).__name__ == "MarianConfig"
    for name, value in (("normalize_before", False), ("normalize_embedding", not marian)):
        if not hasattr(module.config, name):
            setattr(module.config, name, value)
    try:
        specification = BartLoader()(module, Names(model))
    except KeyError as error:  # of an activation function
        raise RequestError(
            f"CTranslate2 does not know {error} in {model.name}: leave CTranslate2 out for it"
        ) from error
    specification.validate()
    specification.optimize(quantization=None if compute == "float32" else compute)
    specification.save(str(folder))


def _not_converted(model: GenerationModel) -> str:
    """The reason why CTranslate2 does not take a model, or an empty string."""
    config = model.module.config
    if model.kind != "encoder-decoder":
        return "is causal, and CTranslate2 is a peer for encoder-decoder models"
    if type(config).__name__ not in CONVERTED:
        return f"is of type {config.model_type}, and the bench hands it models of type bart and marian"
    if config.encoder_attention_heads != config.decoder_attention_heads:
        return "has more heads in one half than in the other, which it does not read"
    if not model.eos_ids:
        return "has no end token, which its search needs"
    if (number := str(model.module.dtype).removeprefix("torch.")) not in NUMBERS:
        return f"has weights in {number}, which it does not read; give task.dtype=float32"
    return ""


def _first(*numbers: int | None) -> int:
    return next(number for number in numbers if number is not None)
