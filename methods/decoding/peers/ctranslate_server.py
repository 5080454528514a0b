"""CTranslate2 in a process of its own (`methods.decoding.peers.served` says why), without torch.

python -m methods.decoding.peers.ctranslate_server FOLDER DEVICE COMPUTE INTER_THREADS INTRA_THREADS
"""

from __future__ import annotations

import sys
from typing import Any

from methods.decoding.peers.served import Answerer, serve


def main(folder: str, device: str, compute: str, inter: str, intra: str) -> None:
    """Answer requests (`sources`, and arguments of `translate_batch` as `settings`) with `hypotheses`."""

    def start() -> Answerer:
        import ctranslate2

        translator = ctranslate2.Translator(
            folder, device=device, compute_type=compute, inter_threads=int(inter), intra_threads=int(intra)
        )

        def answer(request: dict[str, Any]) -> dict[str, Any]:
            results = translator.translate_batch(request["sources"], **request["settings"])
            return {"hypotheses": [result.hypotheses[0] for result in results]}

        return answer

    serve(start)


if __name__ == "__main__":
    main(*sys.argv[1:])
