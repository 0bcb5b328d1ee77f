"""What tokenizers are to give for pairs of texts: the pinned packages' answers, in host/generate/text/testdata/pairs.json.gz.

  python models/text/pairs.py

For every tokenizer.json of host/generate/text/testdata, pairs of its lines are encoded with every combination of CASES: ids and
types, the longer text cut first. "checks" has, in base64, three bytes a pair: the low bytes of a CRC-32 over the answers to all
cases. "full" has the answers themselves for some.
"""

import base64
import gzip
import itertools
import json
import struct
import zlib
from pathlib import Path

import tokenizers
from tokenizers import Tokenizer

DATA = Path(__file__).resolve().parents[2] / "host/generate/text/testdata"
PAIRS, FULL_EVERY = 800, 100
# Lengths, 0 for no limit; cut on the left; special tokens.
CASES = list(itertools.product((0, 9, 16, 31), (False, True), (True, False)))


def answer(tokenizer, first, second, length, left, special):
    if length:
        tokenizer.enable_truncation(length, strategy="longest_first", direction="left" if left else "right")
    else:
        tokenizer.no_truncation()
    pair = tokenizer.encode(first, second, add_special_tokens=special)
    single = tokenizer.encode(first, add_special_tokens=special)
    return [pair.ids, pair.type_ids, single.ids, single.type_ids]


def check(answers):
    data = b"".join(struct.pack(f"<{len(row) + 1}i", *row, -1) for answer in answers for row in answer)
    return zlib.crc32(data) & 0xFFFFFF


def main():
    lines = json.loads(gzip.decompress((DATA / "lines.json.gz").read_bytes()))
    kinds = {}
    for path in sorted(DATA.glob("*/tokenizer.json.gz")):
        tokenizer = Tokenizer.from_str(gzip.decompress(path.read_bytes()).decode())
        tokenizer.no_padding()
        checks, full = bytearray(), {}
        for i in range(PAIRS):
            first, second = lines[i], lines[(i * 7 + 3) % len(lines)]
            answers = [answer(tokenizer, first, second, *case) for case in CASES]
            checks += check(answers).to_bytes(3, "little")
            if i % FULL_EVERY == 0:
                full[i] = answers
        kinds[path.parent.name] = {"checks": base64.b64encode(checks).decode(), "full": full}
    data = json.dumps({"versions": f"tokenizers {tokenizers.__version__}", "kinds": kinds}).encode()
    with open(DATA / "pairs.json.gz", "wb") as f, gzip.GzipFile("", "wb", 9, f, mtime=0) as g:
        g.write(data)


if __name__ == "__main__":
    main()
