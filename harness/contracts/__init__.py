"""The four contracts between methods and tasks, and their records. A method declares one contract and does the work; a
task declares the same and supplies data, model and metric. Nothing here imports torch: its types occur only in
annotations.

Life of a method: made from its parameters -> `fit(...)` once, in a process of its own -> `open(subject, artifacts)` in
every other process -> any number of `score` / `topk` / `decode` / `generate`. `open` takes the subject (the model or
output layer) besides the artifacts, because a screened softmax needs the layer's weights.

Methods import from this package; tasks and analyses import from its modules.
"""

from harness.common.cache import CellArtifacts as Artifacts
from harness.common.cache import SharedResults as Shared
from harness.common.phases import Phases
from harness.contracts.answers import Decoded, TokenScores, TopK, Trace
from harness.contracts.methods import RetrievalGeneration, SequenceDecoding, SoftmaxScreening, TokenScoring
from harness.contracts.models import (
    EncodedBlock,
    GenerationModel,
    KeyKind,
    LanguageModel,
    OutputLayer,
    Streams,
    TrainingPairs,
)

__all__ = [
    "Artifacts",
    "Decoded",
    "EncodedBlock",
    "GenerationModel",
    "KeyKind",
    "LanguageModel",
    "OutputLayer",
    "Phases",
    "RetrievalGeneration",
    "SequenceDecoding",
    "Shared",
    "SoftmaxScreening",
    "Streams",
    "TokenScores",
    "TokenScoring",
    "TopK",
    "Trace",
    "TrainingPairs",
]
