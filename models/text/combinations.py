"""Writes host/generate/text/testdata/combinations.json.gz: tokenizer.json files of random parts, and what the pinned tokenizers
release makes of texts with them.

  python models/text/combinations.py [--count N] [--seed N] [--full EVERY]

The vocabularies are few, and stand once in the file: a case's model names one by its number ("base"), and a Precompiled normaliser
one of the kinds of testdata. A part that the release cannot read, and a text in which it panics, is left out. "checks" has, in
base64, three bytes a text: the low bytes of a CRC-32 over answers(). "full" has the answers themselves for some cases: --full 1
for all, to see what differs.
"""

import argparse
import base64
import copy
import gzip
import json
import os
import random
import struct
import sys
import zlib
from pathlib import Path

import tokenizers
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from lines import common, lines

DATA = Path(__file__).resolve().parents[2] / "host/generate/text/testdata"
TEXTS, TEXTS_EACH = 400, 8
MORE = ["a" * 40, "the The THE the", "\u0301", "e\u0301e\u0301", "<s>", " <s> ", "x<mask>y", "hello hello  hello", "\u0130\u0130", "\u00df\u1e9e", "12 3\u00b2\u0664", "don't", "\u2581", " \u2581 a", "##a", "a</w>",
        "<0x41>", "<0x+1>", "\u0120", "\U0001f600\U0001f600", "\ufffd", "\u6f22\u5b57\u304b\u306a", "\t\n\r", "a\u00a0b", "\u200d", "A\u030aB", "\ufb01", "\u0e01\u0e33", "a.b,c!d", "  ", "do not", "x y  z"]
ADDED = ["<s>", "</s>", "<mask>", "[MASK]", "<pad>", "hello", "Hello", "HELLO", "the", "The", "newword", " ", "  ", "\n", "\u00e9", "E\u0301", "\u0301", "don", "<0x41>", "\u2581", "\u0120the", "\u4f60", "A", "a", "\u0130", "##a",
         "s", "1", ".", " a", "a ", "\u00df", "SS", "\U0001f600", "\ufb01", "x<mask>", "do not", "\u200b", "<unk>", "[UNK]", "\u0664", "\u2581a", "ab\u0301"]
EXPRESSIONS = [r"\s+", r"\w+|[^\w\s]+", r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+", r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\s+(?!\S)|\s+", r"\d", r"[aeiou]", r"(?i)[a-k]+", r"\p{Lu}", r"\b", r"^", r"$",
               r"(?=[A-Z])", r"[\p{Han}]", r"[[:punct:]]", r".", r"\S", r"x*", r"'s|'t", r"(?<=l)o", r"\p{M}+", r"[^a-z ]+", r"\n", r" {2,}"]
# Those that match no empty text. A normaliser that puts something before the first character makes the release lose its place: a
# ByteLevel after it panics, or gives tokens that are not in the text.
FULL_EXPRESSIONS = [x for x in EXPRESSIONS if x not in (r"\b", "^", "$", "(?=[A-Z])", "x*")]
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
STRINGS = [" ", "a", "the", "e", "\u2581", "'", "\n", "\u00e9", "ll", "", "\u4f60", "."]


def bases():
    """Vocabularies: each a model of a tokenizer.json, and what kind of text it is made of."""
    text = [line for line in lines(500, 11) if len(line) < 200] + MORE
    marked = ["\u2581" + line.replace(" ", "\u2581") for line in text]
    out = []

    def trained(model, trainer, of, pre, normalizer=None):
        t = Tokenizer(model)
        t.pre_tokenizer, t.normalizer = pre, normalizer
        t.train_from_iterator(of, trainer)
        return json.loads(t.to_str())["model"]

    quiet = {"show_progress": False}
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = pre_tokenizers.Whitespace()
    parts = pre_tokenizers.Split(Regex("\u2581?[^\u2581]{1,8}"), "isolated")
    for size in (340, 420):
        out.append(("bytes", trained(models.BPE(), trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, special_tokens=["<s>", "</s>", "<unk>"], **quiet), text,
                                     pre_tokenizers.ByteLevel(add_prefix_space=False))))
    out.append(("bytes", trained(models.BPE(), trainers.BpeTrainer(vocab_size=380, initial_alphabet=alphabet[:-20], end_of_word_suffix="</w>", special_tokens=["<unk>"], **quiet), text,
                                 pre_tokenizers.ByteLevel(add_prefix_space=False))))
    hexes = [f"<0x{b:02X}>" for b in range(256)]
    for special, limit in ((["<unk>", "<s>", "</s>"] + hexes, 90), (["<unk>", "<s>"] + hexes[:200] + ["<0xe4>", "<0x+1>", "<0x-1>", "<0x 1>", "<0xG1>", "<0x1>"], 60), (["<unk>"], 120)):
        out.append(("marks", trained(models.BPE(), trainers.BpeTrainer(vocab_size=len(special) + 260, limit_alphabet=limit, special_tokens=special, **quiet), marked, parts)))
    for affix in ({"continuing_subword_prefix": "##"}, {"end_of_word_suffix": "</w>"}, {"continuing_subword_prefix": "@", "end_of_word_suffix": "$"}, {}):
        m = trained(models.BPE(**affix), trainers.BpeTrainer(vocab_size=300, limit_alphabet=100, special_tokens=["<unk>", "</s>"], **affix, **quiet), text, words)
        out.append(("words", m | affix))
    for prefix, limit in (("##", 80), ("##", 150), ("", 80), ("_", 80)):
        m = trained(models.WordPiece(unk_token="[UNK]", continuing_subword_prefix=prefix),
                    trainers.WordPieceTrainer(vocab_size=320, limit_alphabet=limit, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], continuing_subword_prefix=prefix, **quiet), text, words, normalizers.BertNormalizer())
        out.append(("words", m))
    for size in (200, 300):
        m = trained(models.WordLevel(unk_token="<unk>"), trainers.WordLevelTrainer(vocab_size=size, special_tokens=["<unk>", "<s>"], **quiet), text, words)
        out.append(("words", m))
    m = copy.deepcopy(m)  # ids with gaps
    m["vocab"] = {token: i * 3 // 2 for i, token in enumerate(m["vocab"])}
    out.append(("words", m))
    m = copy.deepcopy(out[10][1])
    for token in list(m["vocab"])[7::9]:
        del m["vocab"][token]
    out.append(("words", m))
    for size, more in ((260, []), (220, hexes), (220, hexes[:128] + ["<0x+1>"])):
        m = trained(models.Unigram(), trainers.UnigramTrainer(vocab_size=size, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", **quiet), common(marked, size // 3), parts)
        m["vocab"] = [[token, round(score, 3)] for token, score in m["vocab"]] + [[token, 0.0] for token in more]
        out.append(("marks", m))
    m = trained(models.Unigram(), trainers.UnigramTrainer(vocab_size=240, special_tokens=["<unk>"], unk_token="<unk>", **quiet), common(text, 80), words)
    out.append(("words", m))
    return out


class Maker:
    def __init__(self, r, base):
        self.r = r
        self.number, (self.kind, self.base) = base
        self.vocab = [t for t, _ in self.base["vocab"]] if self.base["type"] == "Unigram" else list(self.base["vocab"])

    def some(self, chance=0.5):
        return self.r.random() < chance

    def sequence(self, make, key, name, depth=0):
        n = self.r.choice((0, 1, 2, 2, 3, 4)) if depth else self.r.choice((1, 2, 2, 3, 3, 4))
        return {"type": name, key: [self.sequence(make, key, name, depth + 1) if depth < 2 and self.some(0.07) else make() for _ in range(n)]}

    def pattern(self, empty=True):
        if self.some(0.4):
            return {"String": self.r.choice(STRINGS) or " " * (not empty)}
        return {"Regex": self.r.choice(EXPRESSIONS if empty else FULL_EXPRESSIONS)}

    def normalizer(self):
        r = self.r
        make = r.choice([lambda: {"type": "NFC"}, lambda: {"type": "NFD"}, lambda: {"type": "NFKC"}, lambda: {"type": "NFKD"}, lambda: {"type": "Lowercase"}, lambda: {"type": "Lowercase"},
                         lambda: {"type": "Strip", "strip_left": self.some(), "strip_right": self.some()}, lambda: {"type": "StripAccents"}, lambda: {"type": "Nmt"},
                         lambda: {"type": "ByteLevel"} if self.kind == "bytes" or self.some(0.1) else {"type": "Nmt"},
                         lambda: {"type": "Prepend", "prepend": r.choice(["\u2581", "x", " ", "<s>", "\u00e9"])},
                         lambda: {"type": "Replace", "pattern": self.pattern(empty=False), "content": r.choice(["", " ", "\u2581", "x", "ab", "\u00e9"])},
                         lambda: {"type": "Precompiled", "precompiled_charsmap": r.choice(["umt5", "t5"])},
                         lambda: {"type": "BertNormalizer", "clean_text": self.some(), "handle_chinese_chars": self.some(), "strip_accents": r.choice([None, True, False]), "lowercase": self.some()}])
        return make()

    def pre_tokenizer(self):
        r = self.r
        make = r.choice([lambda: self.byte_level(), lambda: self.byte_level(), lambda: self.metaspace(), lambda: self.metaspace(), lambda: {"type": "Whitespace"}, lambda: {"type": "WhitespaceSplit"},
                         lambda: {"type": "BertPreTokenizer"}, lambda: {"type": "Punctuation"} | ({"behavior": r.choice(BEHAVIORS)} if self.some(0.8) else {}),
                         lambda: {"type": "Digits", "individual_digits": self.some()}, lambda: {"type": "CharDelimiterSplit", "delimiter": r.choice([" ", "e", "\u2581", "\u4f60"])},
                         lambda: {"type": "Split", "pattern": self.pattern(), "behavior": r.choice(BEHAVIORS), "invert": self.some(0.35)},
                         lambda: {"type": "Split", "pattern": self.pattern(), "behavior": r.choice(BEHAVIORS), "invert": self.some(0.35)},
                         lambda: {"type": "FixedLength", "length": r.choice([1, 3, 5])},
                         lambda: {"type": "UnicodeScripts" if self.some(0.1) else "Whitespace"}])
        return make()

    def byte_level(self):
        c = {"type": "ByteLevel", "add_prefix_space": self.some(), "trim_offsets": self.some()}
        return c | ({"use_regex": self.some()} if self.some(0.7) else {})

    def metaspace(self):
        c = {"type": "Metaspace", "replacement": self.r.choice(["\u2581", "\u2581", "\u2581", "_", "\u00e9"])}
        if self.some(0.8):
            c["prepend_scheme"] = self.r.choice(["always", "first", "never"])
        if self.some(0.6):
            c["split"] = self.some()
        if self.some(0.2):
            c["add_prefix_space"] = c.get("prepend_scheme") != "never"
        return c

    def usual_pre(self):
        r = self.r
        if self.kind == "bytes":
            return self.byte_level() if self.some(0.6) else {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": self.pattern(), "behavior": "Isolated", "invert": False},
                                                                                                 {"type": "ByteLevel", "add_prefix_space": self.some(0.3), "trim_offsets": True, "use_regex": False}]}
        if self.kind == "marks":
            return r.choice([None, self.metaspace(), {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, self.metaspace()]}])
        return r.choice([{"type": "Whitespace"}, {"type": "BertPreTokenizer"}, {"type": "WhitespaceSplit"}, {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, self.pre_tokenizer()]}])

    def token(self):
        """A token and its id."""
        t = self.r.choice(self.vocab[:4] if self.some() else self.vocab)
        return [t, self.vocab.index(t) if self.base["type"] == "Unigram" else self.base["vocab"][t]]

    def processor(self):
        r = self.r
        kind = r.choice(["Bert", "Roberta", "ByteLevel", "Template", "Template", "Template"])
        if kind == "Bert":
            return {"type": "BertProcessing", "sep": self.token(), "cls": self.token()}
        if kind == "Roberta":
            return {"type": "RobertaProcessing", "sep": self.token(), "cls": self.token(), "trim_offsets": self.some(), "add_prefix_space": self.some()}
        if kind == "ByteLevel":
            return self.byte_level()
        special = {}

        def around(texts):
            out = []
            for text in texts:
                for _ in range(r.choice([0, 0, 1, 1, 2])):
                    out.append(one())
                out.append({"Sequence": {"id": text, "type_id": r.choice([0, 0, 1, 2]) if self.some(0.3) else int(text == "B")}})
            for _ in range(r.choice([0, 1, 1, 2])):
                out.append(one())
            return out

        def one():
            name, number = self.token()
            special[name] = {"id": name, "ids": [number], "tokens": [name]}
            if self.some(0.1):
                other = self.token()
                special[name]["ids"].append(other[1])
                special[name]["tokens"].append(other[0])
            return {"SpecialToken": {"id": name, "type_id": r.choice([0, 0, 0, 1])}}

        c = {"type": "TemplateProcessing", "single": around(r.choice(["A"] * 30 + ["AA"])), "pair": around(r.choice(["AB"] * 10 + ["BA"]))}
        return c | {"special_tokens": special}

    def decoder(self):
        r = self.r
        make = r.choice([lambda: {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, lambda: {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                         lambda: {"type": "ByteFallback"}, lambda: {"type": "Fuse"}, lambda: self.metaspace(), lambda: {"type": "WordPiece", "prefix": r.choice(["##", "_", "", "@"]), "cleanup": self.some()},
                         lambda: {"type": "BPEDecoder", "suffix": r.choice(["</w>", "$", "a"])},
                         lambda: {"type": "Strip", "content": r.choice([" ", "\u2581", "a"]), "start": r.choice([0, 1, 2]), "stop": r.choice([0, 0, 0, 1])},
                         lambda: {"type": "Replace", "pattern": self.pattern(), "content": r.choice(["", " ", "x", "\u00e9"])},
                         lambda: {"type": "Fuse"} if self.some(0.9) else {"type": "CTC", "pad_token": r.choice(self.vocab[:3]), "word_delimiter_token": r.choice(["|", "\u2581", "a"]), "cleanup": self.some()}])
        return make()

    def usual_decoder(self):
        if self.kind == "bytes":
            return {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
        if self.kind == "marks":
            return self.r.choice([self.metaspace(), {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                                                                                   {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}])
        return {"type": "WordPiece", "prefix": self.base.get("continuing_subword_prefix") or "##", "cleanup": self.some()}

    def added(self):
        r = self.r
        n = r.choice([0, 1, 2, 3, 5, 8])
        contents = [r.choice(ADDED) if self.some(0.7) else r.choice(self.vocab) for _ in range(n)]
        if not self.some(0.05):
            contents = list(dict.fromkeys(contents))
        plain = self.some(0.3)
        return [{"id": 1000 + i, "content": c, "single_word": self.some(0.2 * (not plain)), "lstrip": self.some(0.25 * (not plain)), "rstrip": self.some(0.25 * (not plain)),
                 "normalized": self.some(), "special": self.some(0.4)} for i, c in enumerate(contents)]

    def model(self):
        r, m = self.r, {"base": self.number}
        kind = self.base["type"]
        if kind == "BPE":
            m["unk_token"] = r.choice([None, "<unk>", "<unk>", "<unk>", "</s>", r.choice(self.vocab)] + ["[gone]"] * self.some(0.2))
            m |= {"fuse_unk": self.some(), "byte_fallback": self.some(0.6 if self.kind == "marks" else 0.2), "ignore_merges": self.some(0.3), "dropout": r.choice([None, None, 0.0])}
            for key in ("continuing_subword_prefix", "end_of_word_suffix"):
                m[key] = self.base.get(key)
                if self.some(0.1):
                    m[key] = r.choice(["", None])
            m["merges"] = r.choice(["lines", "pairs"])
        elif kind == "WordPiece":
            m |= {"unk_token": r.choice(["[UNK]"] * 5 + ["[PAD]", r.choice(self.vocab)]), "max_input_chars_per_word": r.choice([100, 100, 6, 1, 0])}
            if self.some(0.15):
                m["continuing_subword_prefix"] = r.choice(["", "##", "a"])
        elif kind == "WordLevel":
            m["unk_token"] = r.choice(["<unk>"] * 5 + ["<s>", "[gone]", r.choice(self.vocab)])
        else:
            m |= {"unk_id": r.choice([0, 0, 0, 0, 1, 5, None]), "byte_fallback": self.some()}
        return m

    def maybe(self, usual, random_one, sequence, none=0.2):
        x = self.r.random()
        if x < none:
            return None
        if x < none + 0.3 and usual:
            return usual()
        return sequence() if self.some() else random_one()

    def tokenizer(self):
        r = self.r
        truncation = padding = None
        if self.some(0.7):
            length = r.choice([4, 6, 7, 9, 12, 20])
            truncation = {"direction": r.choice(["Right", "Left"]), "max_length": length, "strategy": r.choice(["LongestFirst", "LongestFirst", "OnlyFirst"]), "stride": r.choice([0, 0, 1, 2])}
        if self.some(0.3):
            padding = {"strategy": r.choice(["BatchLongest", {"Fixed": 16}]), "direction": r.choice(["Left", "Right"]), "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": self.vocab[0]}
        return {"version": "1.0", "truncation": truncation, "padding": padding, "added_tokens": self.added(),
                "normalizer": self.maybe(None, self.normalizer, lambda: self.sequence(self.normalizer, "normalizers", "Sequence"), 0.35),
                "pre_tokenizer": self.maybe(self.usual_pre, self.pre_tokenizer, lambda: self.sequence(self.pre_tokenizer, "pretokenizers", "Sequence"), 0.12),
                "post_processor": self.maybe(None, self.processor, lambda: {"type": "Sequence", "processors": [self.byte_level(), self.processor()] if self.some(0.97) else [self.processor(), self.processor()]}, 0.3),
                "decoder": self.maybe(self.usual_decoder, self.decoder, lambda: self.sequence(self.decoder, "decoders", "Sequence"), 0.1),
                "model": self.model()}


def whole(spec, all_bases, charsmaps):
    """The tokenizer.json of a case. combinations_test.go does the same."""
    spec = copy.deepcopy(spec)
    m = copy.deepcopy(all_bases[spec["model"].pop("base")])
    merges = spec["model"].pop("merges", None)
    m |= spec["model"]
    if merges == "lines":
        m["merges"] = [" ".join(pair) for pair in m["merges"]]
    spec["model"] = m

    def fill(x):
        if isinstance(x, dict):
            if "precompiled_charsmap" in x:
                x["precompiled_charsmap"] = charsmaps[x["precompiled_charsmap"]]
            for v in x.values():
                fill(v)
        elif isinstance(x, list):
            for v in x:
                fill(v)

    fill(spec["normalizer"])
    return json.dumps(spec, ensure_ascii=False)


def answers(t, spec, number, k, first, second):
    """What is compared of a pair of texts: rows of numbers and strings; None where the release gives an error."""
    truncation = spec["truncation"]

    def encoded(*texts, special=True, cut=False):
        if cut:
            if special and truncation["max_length"] < t.num_special_tokens_to_add(len(texts) == 2):
                raise ValueError  # the release's count wraps around, so that it cuts nothing
            t.enable_truncation(truncation["max_length"], stride=truncation["stride"], strategy={"OnlyFirst": "only_first"}.get(truncation["strategy"], "longest_first"), direction=truncation["direction"].lower())
        else:
            t.no_truncation()
        return t.encode(*texts, add_special_tokens=special)

    def row(make):
        try:
            return make()
        except Exception:
            return None

    out = []
    whole_ids = []
    for cut in (False, True) if truncation else (False,):
        for special in (True, False):
            one, two = row(lambda: encoded(first, special=special, cut=cut)), row(lambda: encoded(first, second, special=special, cut=cut))
            for e in (one, two):
                out += [None, None] if e is None else [e.ids, e.type_ids]
                assert e is None or all(e.attention_mask)
            out.append(None if one is None else [x for place in one.offsets for x in place])
            if two is not None and not whole_ids:
                whole_ids = two.ids
    drawn = [(i * i * 31 + number * 17 + k * 101 + i * 7) % 450 for i in range(16)]
    for ids in (whole_ids, drawn):
        for skip in (False, True):
            out.append(row(lambda: t.decode(ids, skip_special_tokens=skip)))
    return out


def check(answer):
    data = b""
    for row in answer:
        if isinstance(row, str):
            data += row.encode() + b"\xff"
        elif row is None:
            data += b"\xfe"
        else:
            data += struct.pack(f"<{len(row) + 1}i", *row, -1)
    return zlib.crc32(data) & 0xFFFFFF


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="how many cases (%(default)s)")
    parser.add_argument("--seed", type=int, default=35, help="seed of the generator (%(default)s)")
    parser.add_argument("--full", type=int, default=100, help="every how many cases have their answers whole (%(default)s)")
    parser.add_argument("--out", type=Path, default=DATA / "combinations.json.gz")
    args = parser.parse_args()
    sys.stderr = os.fdopen(os.dup(2), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # on which Rust's panics speak
    texts = lines(TEXTS, 12) + MORE
    all_bases = bases()
    only = [m for _, m in all_bases]
    charsmaps = {name: find(json.loads(gzip.decompress((DATA / name / "tokenizer.json.gz").read_bytes()))["normalizer"]) for name in ("umt5", "t5")}
    r = random.Random(args.seed)
    cases, refused, panicked = [], 0, 0
    while len(cases) < args.count:
        number = r.randrange(len(all_bases))
        spec = Maker(r, (number, all_bases[number])).tokenizer()
        try:
            t = Tokenizer.from_str(whole(spec, only, charsmaps))
            t.no_padding()
            if spec["truncation"] and spec["truncation"]["stride"] >= spec["truncation"]["max_length"] - max(t.num_special_tokens_to_add(False), t.num_special_tokens_to_add(True)):
                spec["truncation"]["stride"] = 0  # which is refused when it is set, or a panic
        except KeyboardInterrupt:
            raise
        except BaseException:
            refused += 1
            continue
        checks, full, used = bytearray(), [], []
        for k in range(TEXTS_EACH):
            i, j = r.randrange(len(texts)), r.randrange(len(texts))
            try:
                a = answers(t, spec, len(cases), k, texts[i], texts[j])
            except KeyboardInterrupt:
                raise
            except BaseException:  # a panic of Rust
                panicked += 1
                continue
            used.append([i, j, k])
            checks += check(a).to_bytes(3, "little")
            full.append(a)
        if not used:
            continue
        case = {"tokenizer": {key: value for key, value in spec.items() if value is not None}, "texts": used, "checks": base64.b64encode(checks).decode()}
        if len(cases) % args.full == 0:
            case["full"] = full
        cases.append(case)
    data = json.dumps({"versions": f"tokenizers {tokenizers.__version__}", "texts": texts, "bases": only, "cases": cases}, ensure_ascii=False, separators=(",", ":"))
    args.out.write_bytes(gzip.compress(data.encode(), 9, mtime=0))
    print(f"{args.out}: {len(cases)} cases, {refused} that the release does not read, {panicked} texts in which it panics")


def find(normalizer):
    """The charsmap of a normaliser."""
    if normalizer["type"] == "Sequence":
        return next(c["precompiled_charsmap"] for c in normalizer["normalizers"] if "precompiled_charsmap" in c)
    return normalizer["precompiled_charsmap"]


if __name__ == "__main__":
    sys.exit(main())
