"""The same causal models in llama.cpp, an inference engine in C++ that opens GGUF files, by the package xllamacpp."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from harness.common.cache import Cache
from harness.common.checkpoints import sha256
from harness.common.errors import NotInstalledError, RequestError
from harness.common.files import arrays_digest
from harness.common.generate import Constraints, until_end
from harness.contracts import Artifacts, Decoded, GenerationModel, Phases, SequenceDecoding, Streams, TrainingPairs
from harness.contracts.answers import NEAR_TIE, NEAR_TIES, Trace, common_prefix
from harness.plan.registry import method
from methods.decoding.engine.engines import checked_limits, without_positions
from methods.decoding.peers.gguf_copies import static_lookup_cache, with_numbers
from methods.decoding.peers.served import Served

SERVER = "methods.decoding.peers.llama_server"
LISTED = 1000  # most probable tokens that a position's log-probabilities are asked of
# the fields of `CommonParamsSpeculative` that the parameters of each way to draft set
KNOBS = {
    "none": {}, "ngram-cache": {},
    "draft-simple": {"tokens": "draft.n_max", "least": "draft.n_min"},
    **{
        f"ngram-{name}": {"tokens": f"ngram_{field}.size_m", "match": f"ngram_{field}.size_n"}
        for name, field in (("simple", "simple"), ("map-k", "map_k"), ("map-k4v", "map_k4v"))
    },
    "ngram-mod": {"tokens": "ngram_mod.n_max", "match": "ngram_mod.n_match", "least": "ngram_mod.n_min"},
}  # fmt: skip


@method(
    "llama-cpp",
    contract="sequence-decoding",
    baseline="greedy",
    needs=("causal",),
    summary="greedy decoding by llama.cpp, plain or with drafts; models of GGUF files",
    variants=("draft", "numbers"),
)
class LlamaCpp(SequenceDecoding):
    """A completion by llama.cpp's server, called as a library, at temperature 0, one prompt after the other.

    draft: how it drafts, in the names of its option `--spec-type`; `draft-simple` is a model, the task's assistant, as
    its file is. tokens: longest draft. match: tokens that an n-gram must have in common. least: shortest draft that is
    verified. None: llama.cpp's default. Its n-grams remember earlier prompts and outputs of the process.

    numbers: of weights; `file`: as the GGUF file has them; F32, BF16: the same dequantised. Attention is computed in
    float32 with F32, else as by default: by flash attention over keys and values in float16. context: tokens of the
    longest prompt with its output. Threads are those of the row's timing.

    It runs in a process of its own (`methods.decoding.peers.served`), whose memory the row does not count. `iterations`
    are tokens less accepted drafts; the server does not tell which drafts were accepted.
    """

    draft: Literal[
        "none", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache", "draft-simple"
    ] = "none"
    numbers: Literal["file", "F32", "BF16"] = "file"
    tokens: Annotated[int, Field(ge=1)] | None = None
    match: Annotated[int, Field(ge=1)] | None = None
    least: Annotated[int, Field(ge=0)] | None = None
    context: Annotated[int, Field(ge=1)] = 4096

    def __post_init__(self) -> None:
        self._given = {
            name: value for name in ("tokens", "match", "least") if (value := getattr(self, name)) is not None
        }
        if unknown := [name for name in self._given if name not in KNOBS[self.draft]]:
            raise RequestError(f"drafts of llama.cpp by {self.draft} have no parameter {unknown[0]!r}; leave it out")

    def fit(self, model: GenerationModel, reference: Streams, training: TrainingPairs, artifacts: Artifacts) -> None:
        _installed()
        file, numbers = _file(model), self.numbers
        if numbers != "file":
            key = {"sha256": sha256(file, Cache()), "numbers": numbers}
            artifacts.build("gguf", key, lambda folder: with_numbers(file, folder / "model.gguf", numbers))

    def open(self, subject: GenerationModel, artifacts: Artifacts) -> None:
        import torch

        if subject.kind != "causal":
            raise RequestError(f"llama.cpp is a peer for causal models, and {subject.name} is an encoder-decoder")
        own = self.numbers == "file"
        threads = torch.get_num_threads()
        self._params: dict[str, Any] = {
            "model.path": str(_file(subject) if own else artifacts.path("gguf") / "model.gguf"), "verbosity": 1,
            "n_ctx": min(subject.window + 1, self.context), "fit_params": False,
            **{f"{part}.n_threads": threads for part in ("cpuparams", "cpuparams_batch")},
        }  # fmt: skip
        drafts = {KNOBS[self.draft][name]: value for name, value in self._given.items()} | self.drafting(artifacts)
        if self.draft == "draft-simple":
            if subject.assistant is None:
                raise RequestError(f"no model drafts for {subject.name}: name a .gguf file by --set task.assistant=...")
            drafts["draft.mparams.path"] = str(_file(subject.assistant))
            drafts |= {f"draft.{part}.n_threads": threads for part in ("cpuparams", "cpuparams_batch")}
        self._server = self._start(self.draft, {f"speculative.{name}": value for name, value in drafts.items()})

    def drafting(self, artifacts: Artifacts) -> dict[str, Any]:
        """Further fields of `CommonParamsSpeculative`."""
        return {}

    def _start(self, draft: str, drafts: dict[str, Any]) -> Served:
        settings = {
            "draft": draft.replace("-", "_").upper(), "float32": self.numbers == "F32",
            "params": self._params | drafts,
        }  # fmt: skip
        return Served("llama.cpp", SERVER, json.dumps(settings))

    @cached_property
    def _plain(self) -> Served:
        return self._server if self.draft == "none" else self._start("none", {})

    def decode(
        self, model: GenerationModel, sources: Sequence[Sequence[int]], limit: int, phases: Phases
    ) -> list[Decoded]:
        limits, constraints = checked_limits(model, sources, limit)
        without_positions(model, constraints, "llama.cpp", "does not know")
        for number, (source, most) in enumerate(zip(sources, limits, strict=True)):
            if (longest := len(source) + most) > self._params["n_ctx"]:
                raise RequestError(
                    f"source {number} and its output have {longest} tokens, and llama.cpp was given room for "
                    f"{self._params['n_ctx']}: raise method.context"
                )
        with phases("generate"):
            return [self._decoded(model, source, most) for source, most in zip(sources, limits, strict=True)]

    def _decoded(self, model: GenerationModel, source: Sequence[int], limit: int) -> Decoded:
        ids, answers = _written(self._server, model, source, limit)
        drafted, accepted = (sum(answer[name] for answer in answers) for name in ("drafted", "accepted"))
        counters = {} if self.draft == "none" else {"drafted": float(drafted), "accepted_drafts": float(accepted)}
        return Decoded(ids, Trace(max(len(ids) - accepted, min(len(ids), 1)), counters=counters))

    def near_tie(self, model: GenerationModel) -> float:
        """Of llama.cpp's own numbers: float32, or rounded to 16 bits and less on the way, whatever ours are."""
        return NEAR_TIE if self.numbers == "F32" else NEAR_TIES["bfloat16"]

    def gap(
        self, model: GenerationModel, source: Sequence[int], output: list[int], expected: list[int], limit: int
    ) -> float | None:
        """The difference between the log-probabilities (nats) that llama.cpp, decoding plainly, gives the two tokens at
        the first difference; a lower bound if one is not among its `LISTED` best. None if plain decoding parts from
        both outputs before that place (it cannot if it wrote one of them), or if llama.cpp gives no log-probabilities,
        as after part of a character. Infinite if one output ends there."""
        place = common_prefix(output, expected)
        if place in (len(output), len(expected)):
            return math.inf
        ids, answers = _written(self._plain, model, source, place + 1, n_probs=LISTED)
        chances = dict(answers[-1]["log_probs"])
        if ids[:place] != output[:place] or not chances:
            return None
        least = min(chances.values())
        return float(abs(chances.get(expected[place], least) - chances.get(output[place], least)))


@method(
    "llama-cpp-lookup",
    contract="sequence-decoding",
    baseline="greedy",
    needs=("causal", "reference-text"),
    summary="greedy decoding by llama.cpp with its static lookup cache, made of reference text",
    variants=("numbers",),
)
class LlamaCppLookup(LlamaCpp):
    """`ngram-cache` with a static cache: how often each token followed each pair of tokens in the reference text.
    Drafts come from n-grams of prompt and output first."""

    draft: Literal["ngram-cache"] = "ngram-cache"

    def fit(self, model: GenerationModel, reference: Streams, training: TrainingPairs, artifacts: Artifacts) -> None:
        super().fit(model, reference, training, artifacts)
        size = model.vocabulary_size
        key = {"vocabulary_size": size, "reference": [arrays_digest(stream) for stream in reference]}
        artifacts.build("lookup", key, lambda folder: static_lookup_cache(reference, size, folder / "cache.bin"))

    def drafting(self, artifacts: Artifacts) -> dict[str, Any]:
        self._cache = artifacts.path("lookup") / "cache.bin"
        return {"ngram_cache.lookup_cache_static": str(self._cache)}

    def counters(self) -> dict[str, float]:
        return {"index_bytes": float(self._cache.stat().st_size)}


def _written(
    server: Served, model: GenerationModel, source: Sequence[int], limit: int, **options: Any
) -> tuple[list[int], list[dict[str, Any]]]:
    """An output and the answers that it is made of. llama.cpp also ends at end tokens that its file names and the model
    does not: it is asked to go on."""
    prompt, ids, answers = list(source) or [model.start_id], list[int](), list[dict[str, Any]]()
    suppressed = Constraints.of(model.module, model.eos_ids).suppressed
    options |= {"logit_bias": [[token, False] for token in suppressed]}
    while len(ids) < limit and not (ids and ids[-1] in model.eos_ids):
        request = {"prompt": [*prompt, *ids], "n_predict": limit - len(ids), "cache_prompt": bool(ids)}
        answers.append(server.ask(request | options))
        ids = until_end([*ids, *answers[-1]["tokens"]], model.eos_ids)
    return ids, answers


def _file(model: GenerationModel) -> Path:
    if model.gguf is None:
        raise RequestError(f"llama.cpp reads GGUF files, and {model.name} is none: give a .gguf file as task.model")
    return model.gguf


def _installed() -> None:
    """Raise `NotInstalledError` if the package is not there; other cells do not need it."""
    try:
        version("xllamacpp")
    except PackageNotFoundError as error:
        raise NotInstalledError("xllamacpp is not installed: pip install 'shortcut-harness[peers]'") from error
