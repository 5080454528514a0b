"""The four contracts between methods and tasks, and their records.

A method declares one contract and does the work. A task declares the same contract and supplies data, model and metric.
The harness pairs them and measures. Nothing here imports torch: its types occur only in annotations.

| contract | class | given | baseline | fidelity |
| --- | --- | --- | --- | --- |
| token scoring | `TokenScoring` | a language model, streams of token ids | the LM alone | perplexity difference |
| softmax screening | `SoftmaxScreening` | `weight [L, d]`, `bias [L]`, contexts | full product | precision@k |
| sequence decoding | `SequenceDecoding` | a generation model, sources | greedy, beam 5 | exact match |
| retrieval generation | `RetrievalGeneration` | a causal model, passages or text | sequential retrieval | exact match |

Life of a method: made from its parameters -> `fit(...)` once, in a process of its own -> `open(subject, artifacts)`
in every other process -> any number of `score` / `topk` / `decode` / `generate`. `open` takes the subject (the model or
output layer) besides the artifacts, because a screened softmax needs the layer's weights.

Methods import from this package; tasks and analyses import from its modules.
"""

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
from harness.contracts.services import Artifacts, Phases, Shared

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
