"""Synthetic errors for training grammatical error correction, and the clean text they are made in.

from tasks.corruption import ErrorModel, Lexicon, corrupt, sentences

clean = [tokens for article in articles for tokens in sentences(article)]
model = ErrorModel(Lexicon.of(clean))
source = corrupt(clean[0], np.random.default_rng(1), model)
"""

from tasks.corruption.errors import Correction, annotate, corrupt
from tasks.corruption.lexicon import Lexicon
from tasks.corruption.rules import ErrorModel
from tasks.corruption.tokens import sentences, tokens

__all__ = ["Correction", "ErrorModel", "Lexicon", "annotate", "corrupt", "sentences", "tokens"]
