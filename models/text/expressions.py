"""Writes host/generate/text/testdata/expressions.json.gz: how the pinned tokenizers release splits texts by expressions in
Oniguruma's syntax: those of known models, and random ones. python expressions.py"""

import gzip
import json
import random
from pathlib import Path

from tokenizers import Regex, pre_tokenizers

KNOWN = [r" ?[^(\s|[.,!?…。，、।۔،])]+",
         r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|\%[0-9]{2}|[0-9])",
         r"[\p{L}[\p{N}]]+", r"[\p{L}&&[^\p{Han}]]+|[\p{Han}]+", r"l{,2}o", r"[[:alpha:]]+", r"[[:^alpha:]&&[^\s]]+", r"[[:punct:]]",
         r"[^[:alnum:][:space:]]+", r"[a-z&&[^aeiou]]+", r"[^a-z&&[^aeiou]]+", r"[]a]+", r"[a\]-]+", r"[\w-]+", r"[\w-.]+", r"\h+", r"\H+",
         r"\R", r"\bh", r"o\b", r"\B.", r"^.", r".$", r"^", r"(?i)hello|W", r"a(?i)b|c", r"(?i:[a-k]+)", r"(?i:k)", r"(?<word>\w+)", r"\x41|\x{4e00}|\u00e9",
         r"(?>l+)o", r"(?<=l)o", r"(?<!l)o", r"l{2}", r"l{1,}o", r"l{1,2}?", r"l{x}", r"[\x41-\x5a]+", r"\p{^L}+", r"\P{L}+", r"[^\P{L}]+",
         r"\p{Alpha}+|\p{Digit}", r"\p{Letter}+", r"[\p{Lu}&&[A-Z]]", r"\s+(?!\S)|\s+", r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\A.", r".\z", r".\Z", r"(?#x)l", r"[&&a]", r"[a&&]"]
TEXTS = ["hello world", " hello  world, ok?", "C[C@H](N)C(=O)O %12", "漢字 hello漢字 ひらがな", "Hello, World (x) [y-z] l{x}\n", "Å é e\u0301 ß \u017f\u212a ² Ⅷ ½ ١٢\r\nAB-cd_ef.gh\n\nend\t",
         "", "\n", "don't 12,345 x&&y ^$|\\ «q» 😀"]
ATOMS = ["a", "l", "o", "e", "é", "漢", "1", "-", " ", ",", r"\s", r"\S", r"\w", r"\W", r"\d", r"\p{L}", r"\p{N}", r"\p{Lu}", r"\p{P}", r"\p{^L}", r"\P{N}", r"\p{Han}",
         r"\h", r"\n", r"\.", r"\[", r"\]", r"\x41", r"\u00e9"]
POSIX = ["[:alpha:]", "[:digit:]", "[:upper:]", "[:lower:]", "[:punct:]", "[:space:]", "[:alnum:]", "[:word:]", "[:xdigit:]", "[:^space:]", "[:^alpha:]", "[:blank:]", "[:ascii:]", "[:graph:]", "[:print:]", "[:cntrl:]"]


def a_set(r, depth):
    parts = []
    for _ in range(r.randint(1, 3)):
        parts.append(r.choice([lambda: r.choice(ATOMS), lambda: r.choice(["a-m", "k-z", "A-Z", "0-5", "é-ÿ", "一-龥"]), lambda: r.choice(POSIX),
                               lambda: a_set(r, depth + 1) if depth < 2 else "x"])())
    if r.random() < 0.25:
        parts.insert(r.randint(1, len(parts)), "&&")
    return "[" + r.choice(["", "", "^"]) + "".join(parts) + "]"


def expression(r, depth=0):
    out = ""
    for _ in range(r.randint(1, 3)):
        kind = r.random()
        if kind < 0.35 or depth > 2:
            one = r.choice(ATOMS)
        elif kind < 0.7:
            one = a_set(r, 0)
        elif kind < 0.8:
            one = r.choice(["(", "(?:", "(?>", "(?i:"]) + expression(r, depth + 1) + ")"
        elif kind < 0.9:
            out += r.choice(["(?=", "(?!"]) + expression(r, depth + 1) + ")" if r.random() < 0.5 else r.choice([r"\b", r"\B", "^", "$", r"(?<=\s)", r"(?<!l)"])
            continue
        else:
            one = r.choice([".", r"\R", r"\p{Alpha}"])
        out += one + r.choice(["", "", "+", "*", "?", "{2}", "{1,3}", "{,2}", "{2,}", "+?", "*?", "??"])
    return out + ("|" + expression(r, depth + 1) if r.random() < 0.3 and depth < 3 else "")


def main():
    r = random.Random(35)
    cases = []
    for x in KNOWN + [expression(r) for _ in range(240)]:
        try:
            split = pre_tokenizers.Split(Regex(x), "isolated")
            cases.append({"expression": x, "parts": [[part for part, _ in split.pre_tokenize_str(t)] for t in TEXTS]})
        except KeyboardInterrupt:
            raise
        except BaseException:  # Oniguruma refuses it, or gives up on a text, which is a panic of Rust
            continue
    out = Path(__file__).parents[2] / "host/generate/text/testdata/expressions.json.gz"
    out.write_bytes(gzip.compress(json.dumps({"texts": TEXTS, "cases": cases}, ensure_ascii=False).encode(), mtime=0))
    print(f"{out}: {len(cases)} expressions")


if __name__ == "__main__":
    main()
