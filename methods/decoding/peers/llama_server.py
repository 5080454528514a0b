"""llama.cpp in a process of its own (`methods.decoding.peers.served` says why), without torch.

Its server is called as a library; it listens on a Unix socket besides, because xllamacpp knows no server that does not,
but nothing is sent there.

    python -m methods.decoding.peers.llama_server SETTINGS
"""

from __future__ import annotations

import json
import sys
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from methods.decoding.peers.served import Answerer, serve

ALWAYS = {  # greedy: of all samplers only the one that takes the best token at temperature 0
    "temperature": 0, "samplers": ["temperature"], "cache_prompt": False, "return_tokens": True, "verbose": True,
}  # fmt: skip


def main(settings: str) -> None:
    """settings, in JSON: `draft`, a type of `common_speculative_type`; `float32`, whether attention is computed in it;
    `params`, values of `CommonParams` by their path.

    Answers requests, which are those of llama.cpp's `/completion`, with `tokens`, `drafted`, `accepted`; and where
    `n_probs` is asked for, with `log_probs` of the last position as pairs of token and log-probability, best first.
    """
    given = json.loads(settings)

    def start() -> Answerer:
        import xllamacpp

        params = xllamacpp.CommonParams()
        # read into memory, which may have huge pages. From a mapped file, the default, decoding takes 1.03 (Q4_K_M) to
        # 1.06 (BF16) times as long.
        params.load_mode = xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_NONE
        params.speculative.types = [
            getattr(xllamacpp.common_speculative_type, f"COMMON_SPECULATIVE_TYPE_{given['draft']}")
        ]
        if given["float32"]:  # flash attention rounds keys and values to float16, whatever the type of their cache
            params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
            params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        for path, value in given["params"].items():
            *owners, name = path.split(".")
            setattr(reduce(getattr, owners, params), name, value)
        with TemporaryDirectory() as folder:
            params.hostnames = [str(Path(folder, "server.sock"))]
            server = xllamacpp.Server(params)

        def answer(request: dict[str, Any]) -> dict[str, Any]:
            found = server.handle_completions(ALWAYS | request)
            if "choices" not in found:
                raise RuntimeError(found.get("message") or str(found))
            timings, tokens = found["timings"], found["__verbose"]["tokens"]
            logs = (found["choices"][0]["logprobs"] or {}).get("content", [])
            return {
                "tokens": tokens,
                "drafted": timings.get("draft_n", 0), "accepted": timings.get("draft_n_accepted", 0),
                # none are told of a token that ends within a character
                "log_probs": [[one["id"], one["logprob"]] for one in logs[-1]["top_logprobs"]]
                if logs and tokens and logs[-1]["id"] == tokens[-1] else [],
            }  # fmt: skip

        return answer

    serve(start)


if __name__ == "__main__":
    main(*sys.argv[1:])
