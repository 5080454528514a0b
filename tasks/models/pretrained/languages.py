"""Source and target language of a multilingual translation model."""

from __future__ import annotations

from typing import Any

from harness.common.errors import RequestError


def choose_languages(module: Any, tokenizer: Any, source: str | None, target: str | None, name: str) -> None:
    """Make the tokenizer mark sources as `source`, and the model begin its outputs with the token of `target`.

    M2M100, NLLB and mBART-50 force the language's token as the first one (`forced_bos_token_id`); the first mBART
    starts the decoder with it. Raises `RequestError` for a model without a choice of languages, for languages unknown
    to its tokenizer, and for a missing target.
    """
    several = hasattr(tokenizer, "set_src_lang_special_tokens")
    if not several:
        if source or target:
            raise RequestError(f"the tokenizer of {name} has no languages to choose from: leave them out")
        return
    if source:
        _language_id(tokenizer, source, name)
        tokenizer.src_lang = source
    starts = type(tokenizer).__name__.startswith("MBartTokenizer")
    if target:
        setting = "decoder_start_token_id" if starts else "forced_bos_token_id"
        setattr(module.generation_config, setting, _language_id(tokenizer, target, name))
    elif not starts and module.generation_config.forced_bos_token_id is None:
        raise RequestError(
            f"{name} translates between several languages: name them, such as "
            "--set task.source_language=en --set task.target_language=de"
        )


def _language_id(tokenizer: Any, language: str, name: str) -> int:
    """Id of a language's token, by its name in the model's tokenizer (de, de_DE, deu_Latn)."""
    known = getattr(tokenizer, "lang_code_to_id", None) or {}
    number = known.get(language)
    if number is None and not known:
        number = tokenizer.convert_tokens_to_ids(language)
        number = number if number in tokenizer.all_special_ids else None  # else `de` is a piece of words
    if number is None or number == tokenizer.unk_token_id:
        some = f": {', '.join(sorted(known)[:5])}, ..." if known else ", such as de, de_DE or deu_Latn"
        raise RequestError(f"the tokenizer of {name} knows no language {language!r}; name it as the model does{some}")
    return int(number)
