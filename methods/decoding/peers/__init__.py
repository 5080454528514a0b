"""What a user could install instead: `generate` and its drafts in `lookup` (transformers), `ctranslate` and its process
`ctranslate_server` (CTranslate2), `llama_cpp`, its process `llama_server` and its files `gguf_copies` (llama.cpp),
`economize_lookup` (economize), `suffix_decoding` (arctic-inference). `served` runs a peer in a process of its own;
`compared` is the base of those with our module."""
