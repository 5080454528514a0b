"""CTranslate2 in a process of its own, as a user would run it. Imports no torch and nothing else of this project.

In a process that has prepared a task (with torch, the model and the rest loaded), CTranslate2's two threads sleep
between parallel regions. Measured once on two cores, a 6+6 model of width 256 with beam 5 took 250 ms a sentence there
and 56 ms in a process of its own (150,000 against 40 context switches for 20 sentences). With one thread it took 105 ms
in both. Which library does this to its OpenMP runtime was not found. `CTranslate2` exchanges one JSON line each way
with this process.

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
