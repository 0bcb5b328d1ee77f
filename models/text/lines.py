"""A seeded generator of lines of varied Unicode, for the tests of the tokenizers.

A line is a row of fragments; each fragment comes from one kind: words of many
scripts, letters drawn from whole Unicode blocks, emoji with joiners, stacked
combining marks, controls, spaces of all kinds, numbers, code, very long words,
special tokens in the text. The first lines are fixed cases.
"""

import random
import unicodedata
from collections import Counter

FIXED = [
    "", " ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "\u200b", "\ufeff", "\x00", "a", "A", "\u00e9", "e\u0301",
    "\u00c5 \u212b A\u030a", "\ufb01ne \ufb03", "\u1e9b\u0323", "I\u0307 \u0130 \u0131", "\u03a3\u03a3\u03c2 \u039f\u0394\u039f\u03a3",
    "Hello, world!", " Hello", "Hello ", "  Hello  world  ", "don't you'll I've we're he'd I'm it's",
    "DON'T YOU'LL I'VE WE'RE HE'D I'M IT'S", "'\u017f \u017f\u017f", "it 's a test . Is n't it ? Yes ! We 've , they 're ' so ' .",
    "a<mask>b <mask> c  <mask>", "<s>a</s>", "</s></s>", "<unk>", "[CLS] x [SEP]", "<|endoftext|>x<|endoftext|>",
    ">>fra<< Hello", ">>deu<<Hello", "x >>fra<< y", "\u2581a\u2581\u2581b", "a \u2581 b", "##a ##b", "\u0120a \u010a",
    "<0x41><0xE4>", "\r\n\r\n a\r\n", "a\u0000b", "\ud7ff\ue000\ufffd\uffff\U0010ffff", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f1eb\U0001f1f7\U0001f1e9\U0001f1ea", "\u0915\u094d\u0937\u093f", "\u1112\u1161\u11ab\ud55c", "\u0e01\u0e33\u0e01\u0e4d\u0e32",
    "\uff8a\uff9e\uff8a\uff9f\u30cf\u3099", "\u2460\u2167\u00bd\u0664\u0967\U0001d7d8", "\uff21\uff22\uff23\u3000\uff11", "x\u0301\u0302\u0303\u0304",
    "12345 1234567 3.14159 1,000,000", "  def f(x):\n\treturn x  # ok\n\n\n", "http://a.b/c?d=e&f=g", "\u2028\u2029\u0085\u001c\u001f",
]

WORDS = """
And he said unto them Behold the children of Israel shall inherit the land which I gave
Emma Woodhouse handsome clever and rich with a comfortable home and happy disposition
L'\u00e9t\u00e9 commence d\u00e9j\u00e0 \u00e0 no\u00ebl o\u00f9 \u00e7a c\u0153ur \u00e9l\u00e8ve na\u00efve gar\u00e7on
Stra\u00dfe \u00fcber sch\u00f6n M\u00e4dchen gr\u00f6\u00dfer Donaudampfschifffahrtsgesellschaft \u1e9e
se\u00f1or ma\u00f1ana coraz\u00f3n \u00bfqu\u00e9? \u00a1hola! ping\u00fcino
\u0141\u00f3d\u017a \u017c\u00f3\u0142w za\u017c\u00f3\u0142\u0107 g\u0119\u015bl\u0105 ja\u017a\u0144 \u010de\u0161tina \u0159eka \u016fst\u00ed
\u0130stanbul \u0131\u015f\u0131k a\u011fa\u00e7 \u015feker \u00e7\u0131nar
\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u0433\u043e\u0432\u043e\u0440\u0438\u0442\u044c \u0443\u043a\u0440\u0430\u0457\u043d\u0441\u044c\u043a\u0430 \u0401\u043b\u043a\u0430 \u0451\u0436
\u039a\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1 \u03ba\u03cc\u03c3\u03bc\u03b5 \u1f08\u03b8\u1fc6\u03bd\u03b1\u03b9 \u03c0\u03bf\u03bb\u03cd\u03c4\u03c1\u03bf\u03c0\u03bf\u03bd
\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd \u05d1\u05bc\u05b0\u05e8\u05b5\u05d0\u05e9\u05b4\u05c1\u05d9\u05ea
\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u0633\u064e\u0644\u064e\u0627\u0645\u064c \u0641\u0627\u0631\u0633\u06cc \u06a9\u062a\u0627\u0628\u200c\u0647\u0627
\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0939\u093f\u0928\u094d\u0926\u0940 \u0995\u09cd\u09b7 \u09ac\u09be\u0982\u09b2\u09be \u0ba4\u0bae\u0bbf\u0bb4\u0bcd \u0c24\u0c46\u0c32\u0c41\u0c17\u0c41
\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01 \u0e99\u0ea5\u0eb2\u0ea7 \u1019\u103c\u1014\u103a\u1019\u102c \u1781\u17d2\u1798\u17c2\u179a
\u4f60\u597d\u4e16\u754c \u7e41\u9ad4\u4e2d\u6587 \u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8 \u3072\u3089\u304c\u306a \u30ab\u30bf\u30ab\u30ca \u795e\u2f08\u9f8d
\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4 \ud55c\uad6d\uc5b4 \u1112\u1161\u11ab\u1100\u1173\u11af
\u10e1\u10d0\u10e5\u10d0\u10e0\u10d7\u10d5\u10d4\u10da\u10dd \u1c90\u1c91 \u0540\u0561\u0575\u0561\u057d\u057f\u0561\u0576 \u12a0\u121b\u122d\u129b \u13a0\u13b4\u13a9 \ua59e
\U00010400\U00010428 \U0001d4d0\U0001d4ea \U00020000\U0002a6df \U00010330\U00010331 \U0001e900\U0001e922
""".split()

# First and last code point of blocks from which letters are drawn.
BLOCKS = [
    (0x20, 0x7E), (0x20, 0x7E), (0xA0, 0xFF), (0x100, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F),
    (0x530, 0x58F), (0x590, 0x5FF), (0x600, 0x6FF), (0x700, 0x7BF), (0x900, 0x97F), (0x980, 0xDFF), (0xE00, 0xEFF),
    (0xF00, 0xFFF), (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x139F), (0x13A0, 0x167F), (0x1680, 0x17FF),
    (0x1800, 0x1AFF), (0x1B00, 0x1CFF), (0x1D00, 0x1DFF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x209F), (0x20A0, 0x20FF),
    (0x2100, 0x218F), (0x2190, 0x23FF), (0x2400, 0x25FF), (0x2600, 0x27BF), (0x27C0, 0x2BFF), (0x2C00, 0x2DFF), (0x2E00, 0x2FFF),
    (0x3000, 0x30FF), (0x3100, 0x33FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA000, 0xA6FF), (0xA700, 0xABFF), (0xAC00, 0xD7A3),
    (0xE000, 0xF8FF), (0xF900, 0xFAFF), (0xFB00, 0xFDFF), (0xFE00, 0xFE6F), (0xFE70, 0xFEFF), (0xFF00, 0xFFFF),
    (0x10000, 0x103FF), (0x10400, 0x10FFF), (0x11000, 0x11FFF), (0x12000, 0x16FFF), (0x1B000, 0x1BCFF), (0x1D000, 0x1D3FF),
    (0x1D400, 0x1D7FF), (0x1E000, 0x1EFFF), (0x1F000, 0x1F2FF), (0x1F300, 0x1FAFF), (0x20000, 0x2FA1F), (0xE0000, 0xE01EF), (0x10FF00, 0x10FFFF),
]
SPACES = [" ", " ", " ", "  ", "   ", "      ", "\t", "\n", "\n\n", "\r\n", "\r", "\x0b", "\x0c", "\x85", "\u00a0", "\u1680", "\u2002",
          "\u2003", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\u200b", "\u2060", "\ufeff", "\u180e"]
EMOJI = ["\U0001f600", "\u2764\ufe0f", "\U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f469\u200d\U0001f466", "\U0001f3f3\ufe0f\u200d\U0001f308",
         "\U0001f1fa\U0001f1f8", "1\ufe0f\u20e3", "\u00a9\ufe0f", "\U0001f9d1\U0001f3ff\u200d\U0001f680", "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e007f",
         "\u2615", "\U0001fae0", "\U0001f926\U0001f3fc\u200d\u2642\ufe0f"]
CODE = ["for (int i = 0; i < n; ++i) {", "if x != None and y >= 3:", "return a[i] * b[j];", "</div>", "std::vector<float>", "$HOME/.bashrc",
        "&amp;", "user@example.com", "https://example.com/a-b_c?q=1#x", "0xDEADBEEF", "1e-5", "\\u00e9", "{'k': [1, 2]}", "a&&b||!c", "#include <x.h>",
        "-->", "...", "!!!???", "--flag=value", "__init__", "camelCaseWord", "snake_case_word", "\u2026\u2014\u2013", "\u201cquoted\u201d", "\u00ab\u00bb"]
SPECIAL = ["<s>", "</s>", "<pad>", "<unk>", "<mask>", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|0.02|>",
           "<|begin_of_text|>", "<|eot_id|>", "<extra_id_0>", "<extra_id_12>", ">>fra<<", "<0x0A>", "\u2581", "##ing", "[DAY]", "newword", "</w>"]
SUFFIXES = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "n't", "\u2019s", "-", "."]
PUNCTUATION = [".", ",", "!", "?", ";", ":", " .", " ,", " !", " ?", " ' ", "'", '"', "(", ")", " n't", " 's", " 'm", " 've", " 're"]


def drawn(r: random.Random) -> str:
    """Characters of one block, assigned or not; surrogates do not occur."""
    first, last = r.choice(BLOCKS)
    return "".join(chr(r.randint(first, last)) for _ in range(r.randint(1, 6)))


def marked(r: random.Random) -> str:
    out = []
    for _ in range(r.randint(1, 4)):
        out.append(r.choice("aeiounAEIOUszx\u0438\u03b1\u0915\u304b"))
        out.extend(chr(r.randint(0x300, 0x36F)) for _ in range(r.randint(0, 3)))
    return "".join(out)


def word(r: random.Random) -> str:
    w = r.choice(WORDS)
    case = r.random()
    if case < 0.1:
        w = w.upper()
    elif case < 0.2:
        w = w.capitalize()
    elif case < 0.25:
        w = unicodedata.normalize(r.choice(["NFD", "NFC", "NFKD"]), w)
    if r.random() < 0.15:
        w += r.choice(SUFFIXES)
    return w


def number(r: random.Random) -> str:
    digits = "".join(r.choice("0123456789") for _ in range(r.randint(1, 9)))
    return r.choice([digits, digits + ".5", "1," + digits, "-" + digits, "\u0663\u0664" + digits, digits + "\u00b2", "\u216b", "\u00be", "\uff15" + digits])


def long_word(r: random.Random) -> str:
    return r.choice(["a", "ab", "\u00e9", "xyz", "\u4e2d", "ha", "-", "=", "0", "qwertyuiop"]) * r.randint(10, 60)


KINDS = [(word, 40), (drawn, 16), (lambda r: r.choice(SPACES), 10), (marked, 4), (lambda r: r.choice(EMOJI), 5), (number, 6), (lambda r: r.choice(CODE), 6),
         (lambda r: r.choice(SPECIAL), 6), (lambda r: r.choice(PUNCTUATION), 6), (lambda r: chr(r.randint(0, 0x9F)), 2), (long_word, 0.4)]


def lines(count: int, seed: int) -> list[str]:
    """count lines, the same for a seed; the fixed cases come first."""
    r = random.Random(seed)
    kinds, weights = [k for k, _ in KINDS], [w for _, w in KINDS]
    out = FIXED[:count]
    while len(out) < count:
        parts = []
        for kind in r.choices(kinds, weights, k=min(40, 1 + int(r.expovariate(0.2)))):
            parts.append(kind(r))
            if r.random() < 0.7:
                parts.append(" ")
        line = "".join(parts)
        out.append(line if r.random() < 0.3 else line.strip(" "))
    return out


def common(text, count):
    """text without all but its most common characters: every one of these gets a piece."""
    kept = {c for c, _ in Counter("".join(text)).most_common(count)}
    return ["".join(c for c in line if c in kept) for line in text]
