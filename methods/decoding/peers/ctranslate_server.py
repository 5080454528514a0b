"""CTranslate2 in a process of its own, as one who installs it alone runs it. Imports nothing else of ours, and no
torch.

In a process that has prepared a task of ours (torch, the model and the rest loaded), CTranslate2's two threads sleep
between regions: measured once on two cores, a 6+6 model of width 256 took 250 ms a sentence with beam 5 there and 56 ms
in a process of its own (150,000 context switches against 40 for 20 sentences); with one thread it took 105 ms in
either. Which library does this to its OpenMP runtime was not found. `CTranslate2` talks to this process by one JSON
line each way.

    python -m methods.decoding.peers.ctranslate_server FOLDER DEVICE COMPUTE THREADS
"""

from __future__ import annotations

import json
import sys


def main(folder: str, device: str, compute: str, threads: str) -> None:
    """Answer requests (`sources`, `most`, `settings`) from standard input with `hypotheses` or an `error`, until it
    ends."""
    import ctranslate2

    answers = sys.stdout
    try:
        translator = ctranslate2.Translator(folder, device=device, compute_type=compute, intra_threads=int(threads))
    except (RuntimeError, ValueError) as error:
        print(json.dumps({"error": str(error)}), file=answers, flush=True)
        return
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            found = translator.translate_batch(
                request["sources"], max_decoding_length=request["most"], **request["settings"]
            )
            answer: dict[str, object] = {"hypotheses": [result.hypotheses[0] for result in found]}
        except (RuntimeError, ValueError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
