"""What a tokenizer is to give for lines: the pinned packages' answers, packed.

expected() returns JSON: "checks", in base64 three bytes a line (the low bytes
of a CRC-32 over everything compared), and "full", the answers themselves for
the first lines and some later ones.
"""

import base64
import json
import struct
import zlib

import tokenizers
import transformers
from transformers import MarianTokenizer, PreTrainedTokenizerBase

EXPECTED_LINES = 10_000
EXPECTED_SEED = 1
FULL_EVERY = 200


class Marian:
    """transformers' MarianTokenizer behind the calls of tokenizers.Tokenizer that answers() makes."""

    def __init__(self, folder):
        self.inner = MarianTokenizer.from_pretrained(folder)

    def ids(self, line, special=True):
        return self.inner(line, add_special_tokens=special)["input_ids"]

    def target(self, line):
        return self.inner(text_target=line)["input_ids"]

    def text(self, ids, skip):
        return self.inner.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)


class Fast:
    def __init__(self, inner: tokenizers.Tokenizer):
        self.inner = inner
        inner.no_truncation()
        inner.no_padding()

    def ids(self, line, special=True):
        return self.inner.encode(line, add_special_tokens=special).ids

    def target(self, line):
        return self.ids(line)

    def text(self, ids, skip):
        return self.inner.decode(ids, skip_special_tokens=skip)


def answers(tokenizer, line: str) -> dict:
    ids = tokenizer.ids(line)
    skipped = tokenizer.text(ids, True)
    return {
        "ids": ids,
        "bare": tokenizer.ids(line, special=False),
        "target": tokenizer.target(line),
        "decoded": tokenizer.text(ids, False),
        "skipped": skipped,
        "cleaned": PreTrainedTokenizerBase.clean_up_tokenization(skipped),
    }


def check(answer: dict) -> int:
    data = b""
    for key in ("ids", "bare", "target"):
        data += struct.pack(f"<{len(answer[key]) + 1}i", *answer[key], -1)
    for key in ("decoded", "skipped", "cleaned"):
        data += answer[key].encode() + b"\xff"
    return zlib.crc32(data) & 0xFFFFFF


def wrapped(tokenizer):
    return Fast(tokenizer) if isinstance(tokenizer, tokenizers.Tokenizer) else tokenizer


def expected(tokenizer, lines: list[str]) -> bytes:
    tokenizer = wrapped(tokenizer)
    checks, full = bytearray(), {}
    for i, line in enumerate(lines):
        answer = answers(tokenizer, line)
        checks += check(answer).to_bytes(3, "little")
        if i % FULL_EVERY == 0 or i < 20:
            full[i] = answer
    versions = f"tokenizers {tokenizers.__version__}, transformers {transformers.__version__}"
    return json.dumps({"versions": versions, "checks": base64.b64encode(checks).decode(), "full": full}, ensure_ascii=False).encode()
