"""Token scoring with one lambda for all tokens or a learned lambda for each."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from harness.contracts import Artifacts, LanguageModel, Streams, TokenScoring
from methods.knnlm.base import DatastoreMethod
from methods.knnlm.datastore import corpus_hash
from methods.knnlm.gate import Gate

ARTIFACT = "lambda-gate"


@dataclass(kw_only=True)
class GatedScorer(DatastoreMethod, TokenScoring):
    """Base of kNN-LM and RetoMaton. `fit` calls `fit_gate` after `open_datastore`, `open` calls `open_gate`; `gate` is
    then what gives each token's lambda, or None where all tokens have one."""

    lambda_: Annotated[float, Field(ge=0, le=1)] | Literal["tuned", "dynamic"] = "tuned"  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.gate: Gate | None = None

    @property
    def learns(self) -> bool:
        """Whether each token's lambda is learned; the LM's confidence is asked for then."""
        return self.lambda_ == "dynamic"

    @property
    def one_lambda(self) -> bool:
        return not self.learns

    @property
    def random_fit(self) -> bool:
        return self.learns or super().random_fit

    @abstractmethod
    def learn_gate(self, model: LanguageModel, validation: Streams, artifacts: Artifacts) -> Gate:
        """The gate, learned on validation streams [T] (int64 ids)."""

    def gate_key(self) -> dict[str, Any]:
        """All that determines what is learned, apart from datastore, search, temperature and validation text."""
        return {"seed": self.seed}

    def fit_gate(self, model: LanguageModel, validation: Streams, artifacts: Artifacts) -> None:
        """Learn the gate, if there is one, unless the cache has it."""
        if self.learns:
            store, temperature = self.ready()[0].store, artifacts.values["temperature"]
            text = {"datastore": store.metadata["built_from"], "validation": corpus_hash(validation)}
            key = {**text, "temperature": temperature, **self.gate_key(), **self.search_key()}
            artifacts.build(ARTIFACT, key, lambda folder: self.learn_gate(model, validation, artifacts).save(folder))

    def open_gate(self, artifacts: Artifacts) -> None:
        """Read what `fit_gate` learned."""
        if self.learns:
            self.gate = Gate.open(artifacts.path(ARTIFACT))
