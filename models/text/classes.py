"""Writes host/generate/text/unicode.bin: how the pinned tokenizers release sees Unicode.

The release mixes Unicode versions (its regular expressions, its punctuation and
its normal forms each come from another library), so every code point is asked
for every property. Layout, all numbers as unsigned varints:

  for each of classes(): the number of ranges, then per range the gap since the
      last one and its length
  the number of lower-cased code points, then per code point the gap since the
      last one, the number of code points it becomes, and those
  the number of CATEGORIES, then per category the length of its name, the name,
      and its ranges as above
"""

import argparse
import sys
from pathlib import Path

from tokenizers import Regex, normalizers, pre_tokenizers


# What regular expressions of files ask for by name; "w" is \w.
CATEGORIES = ["L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "Nd", "P", "S", "w"]
# Others, of which planes without characters are asked for one code point alone.
MORE = """Mn Mc Me Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Z Zs Zl Zp Cc Cf Alpha Alnum Blank Graph Lower Print Punct Space Upper
    Han Hiragana Katakana Hangul Bopomofo Latin Cyrillic Greek Arabic Hebrew Thai Devanagari""".split()
EMPTY = [(0x32400, 0xE0000), (0xE0200, 0xF0000), (0xF0000, 0xFFFFE), (0x100000, 0x10FFFE)]


def points():
    return (c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF)


def removed(splitter):
    return [c for c in points() if not splitter.pre_tokenize_str(chr(c))]


def vanishing(normalizer):
    return [c for c in points() if normalizer.normalize_str("a" + chr(c)) == "a"]


def words():
    joined = pre_tokenizers.Whitespace()
    return [c for c in points() if len(joined.pre_tokenize_str("a" + chr(c))) == 1 and not chr(c).isspace()
            and joined.pre_tokenize_str("a" + chr(c))[0][0] == "a" + chr(c)]


def numeric():
    split = pre_tokenizers.Digits(individual_digits=True)
    return [c for c in points() if len(split.pre_tokenize_str("a" + chr(c))) == 2]


def inert(form):
    """Code points that the normal form leaves alone: no decomposition and no reordering."""
    out = []
    for c in points():
        s = chr(c)
        moves = form.normalize_str("a" + s + "\u0334") != "a" + s + "\u0334" or form.normalize_str("a\u0345" + s) != "a\u0345" + s
        if not moves and form.normalize_str(s) == s:
            out.append(c)
    return out


def classes():
    bert = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    yield "letter", removed(pre_tokenizers.Split(Regex(r"\p{L}"), "removed"))
    yield "number", removed(pre_tokenizers.Split(Regex(r"\p{N}"), "removed"))
    yield "space", removed(pre_tokenizers.WhitespaceSplit())
    yield "word", words()
    yield "punctuation", removed(pre_tokenizers.Punctuation("removed"))
    yield "numeric", numeric()
    yield "control", vanishing(normalizers.BertNormalizer(**{**bert, "clean_text": True}))
    yield "nonspacing", [c for c in points() if normalizers.BertNormalizer(**{**bert, "strip_accents": True}).normalize_str(chr(c)) == ""]
    yield "mark", [c for c in points() if normalizers.StripAccents().normalize_str(chr(c)) == ""]
    yield "inert", inert(normalizers.NFKD())


def varint(n: int) -> bytes:
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def ranges(members) -> bytes:
    spans = []
    for c in members:
        if spans and spans[-1][1] == c:
            spans[-1][1] = c + 1
        else:
            spans.append([c, c + 1])
    out, last = bytearray(varint(len(spans))), 0
    for first, after in spans:
        out += varint(first - last) + varint(after - first)
        last = after
    return bytes(out)


def lower() -> bytes:
    form = normalizers.Lowercase()
    pairs = [(c, form.normalize_str(chr(c))) for c in points()]
    pairs = [(c, s) for c, s in pairs if s != chr(c)]
    out, last = bytearray(varint(len(pairs))), 0
    for c, s in pairs:
        out += varint(c - last) + varint(len(s)) + b"".join(varint(ord(x)) for x in s)
        last = c
    return bytes(out)


def matched(expression):
    """Code points that an expression matches, found in one text of all."""
    asked = [c for c in points() if not any(first < c < after for first, after in EMPTY)]
    left = pre_tokenizers.Split(Regex(expression), "removed").pre_tokenize_str("".join(map(chr, asked)))
    members = set(range(len(asked))).difference(*(range(a, b) for _, (a, b) in left))
    for i in sorted(members):
        yield from range(asked[i], dict(EMPTY).get(asked[i], asked[i] + 1))


def categories() -> bytes:
    out = bytearray(varint(len(CATEGORIES) + len(MORE)))
    for name in CATEGORIES:
        expression = r"\w" if name == "w" else r"\p{" + name + "}"
        out += varint(len(name)) + name.encode() + ranges(removed(pre_tokenizers.Split(Regex(expression), "removed")))
    for name in MORE:
        out += varint(len(name)) + name.encode() + ranges(matched(r"\p{" + name + "}"))
    return bytes(out)


def scripts() -> bytes:
    split, firsts, spans = pre_tokenizers.UnicodeScripts(), [], []
    known = [c for c in points() if split.pre_tokenize_str(chr(c))]
    for _, (a, b) in split.pre_tokenize_str("".join(map(chr, known))):
        number = next((i for i, c in enumerate(firsts) if len(split.pre_tokenize_str(chr(c) + chr(known[a]))) == 1), len(firsts))
        if number == len(firsts):
            firsts.append(known[a])
        for c in known[a:b]:
            if spans and spans[-1][1:] == [c, number]:
                spans[-1][1] = c + 1
            else:
                spans.append([c, c + 1, number])
    out, last = bytearray(varint(len(spans))), 0
    for first, after, number in spans:
        out += varint(first - last) + varint(after - first) + varint(number)
        last = after
    return bytes(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "host/generate/text/unicode.bin")
    out = parser.parse_args().out
    data = bytearray()
    for name, members in classes():
        print(f"{name}: {len(members)} code points", file=sys.stderr)
        data += ranges(members)
    data += lower() + categories() + scripts()
    out.write_bytes(data)
    print(f"{out}: {len(data)} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
