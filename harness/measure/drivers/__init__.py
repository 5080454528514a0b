"""How each contract is driven: fit a method, ask it, and compare its answers with its baseline's.

Everything that is the same for all tasks of a contract is here, so that a task stays data + model + metric. A driver's
`essence` is the part of the answers that fidelity needs, as arrays: it is what cells share and what is kept on disk.
"""

from harness.measure.drivers.driver import Demand, Driver, Essence
from harness.measure.drivers.retrieval_generation import RetrievalDriver
from harness.measure.drivers.sequence_decoding import DecodingDriver
from harness.measure.drivers.softmax_screening import SoftmaxDriver
from harness.measure.drivers.token_scoring import TokenScoringDriver

__all__ = ["DRIVERS", "SEQUENCES", "Demand", "Driver", "Essence"]

DRIVERS: dict[str, Driver] = {
    "token-scoring": TokenScoringDriver(),
    "softmax-screening": SoftmaxDriver(),
    "sequence-decoding": DecodingDriver(),
    "retrieval-generation": RetrievalDriver(),
}
SEQUENCES = DRIVERS["sequence-decoding"]  # compares the answers of a timed analysis, which are sequences of ids
