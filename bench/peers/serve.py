"""Generates or encodes with another engine, for bench/peer.go and bench/encoder_peer.go.

    serve.py PEER SUBJECT WAY THREADS

It makes the subject's model in the peer's format (once, into the user's cache),
says on one line that it is ready, and answers each request, a JSON object on a
line of standard input, with the tokens of the best sequences, or the vectors of
texts, and the seconds that the peer took, conversion of arguments left out (and,
where the peer says so, those until every input had its first token). Between
answers it does nothing.
"""

import importlib
import json
import os
import sys
import traceback


def main(peer, subject, way, threads):
    # Libraries print what they like; the answers go elsewhere.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(value):
        print(json.dumps(value), file=answers)

    try:
        p = importlib.import_module(peer).Peer(subject, way, int(threads))
        answer({"settings": p.settings, "versions": {"python": sys.version.split()[0], **p.versions}})
        for line in sys.stdin:
            result, seconds = p.run(json.loads(line))
            answer({getattr(p, "gives", "tokens"): result, "seconds": seconds,
                    "processor": getattr(p, "processor", None), "first": getattr(p, "first", 0)})
    except Exception as error:  # the caller records why a way is impossible
        traceback.print_exc()
        answer({"error": f"{type(error).__name__}: {error}"})
        return 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
