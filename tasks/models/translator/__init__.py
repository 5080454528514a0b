"""LSTM translators trained here."""
