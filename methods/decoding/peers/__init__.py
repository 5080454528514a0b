"""What a user could install instead: `generate` and its drafts in `lookup` (transformers), `ctranslate` and its process
`ctranslate_server` (CTranslate2), `economize_lookup` (economize), `suffix_decoding` (arctic-inference)."""
