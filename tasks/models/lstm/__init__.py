"""Word-level LSTM language models trained here."""
