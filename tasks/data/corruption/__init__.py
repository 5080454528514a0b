"""Synthetic errors for training grammatical error correction, and their clean text.

from tasks.data.corruption import ErrorModel, Lexicon, annotate, sentences

clean = [tokens for article in articles for tokens in sentences(article)]
model = ErrorModel(Lexicon.of(clean))
source, corrections = annotate(clean[0], np.random.default_rng(1), model)
"""

from tasks.data.corruption import misspellings
from tasks.data.corruption.errors import Correction, annotate
from tasks.data.corruption.lexicon import Lexicon
from tasks.data.corruption.rules import ErrorModel
from tasks.data.corruption.tokens import sentences, tokens

__all__ = ["Correction", "ErrorModel", "Lexicon", "annotate", "misspellings", "sentences", "tokens"]
