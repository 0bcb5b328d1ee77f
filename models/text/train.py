"""Trains the tokenizers of host/generate/text/testdata and writes what they are to give.

  python models/text/train.py --work DIR [--only NAME ...]
  python models/text/train.py --answers-only [--only NAME ...]

Training anew does not give the same vocabulary for every kind (the trainers
break ties by hash); --answers-only leaves the files and asks for their answers
again, which are the same.

The training text is that of models/tiny-gpt2 (public domain) and generated
lines. Every kind gets a folder: its files, compressed, and expected.gz.
"""

import argparse
import gzip
import json
import sys
import tempfile
from pathlib import Path

import kinds
from expect import EXPECTED_LINES, EXPECTED_SEED, Marian, expected
from lines import lines

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tiny-gpt2"))
import corpus  # noqa: E402

TRAINING_SEED = 2
# Source code points, a tab, what they become: keys of one and of several characters, a deletion, a space.
RULES = """\
41\t61
45\t65 301
65 301\tE9
66 69\tFB01
FF21\t41
FF21 301\tC1
200B\t
9\t20
A\t20
D\t20
A0\t20
3000\t20
41 308\t61 65
D A\t20 20
"""


def training_text(work: Path) -> list[str]:
    documents = [d for d in corpus.load(work) if not d.held_out]
    prose = [line for d in documents[::12] for line in d.text.split("\n")]
    return prose[:5000] + [line for line in lines(3000, TRAINING_SEED) if "\x00" not in line]


def pack(data: bytes, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as f, gzip.GzipFile("", "wb", 9, f, mtime=0) as g:
        g.write(data)


def train_marian(text: list[str], folder: Path) -> None:
    source = kinds.proto(text, 600, unk_surface=" ?? ")
    target = kinds.proto(text[::-2], 500, normalization_rule_tsv=str(kinds.RULES), user_defined_symbols="newword,\u00e9t", remove_extra_whitespaces=False)
    pieces = dict.fromkeys(["</s>", "<unk>", ">>fra<<", ">>deu<<"])
    for model in (source, target):
        pieces.update(dict.fromkeys(p.piece for p in model.pieces if p.type in (1, 4)))
    vocabulary = {p: i for i, p in enumerate(pieces)}
    vocabulary["<pad>"] = len(vocabulary)
    pack(source.SerializeToString(), folder / "source.spm.gz")
    pack(target.SerializeToString(), folder / "target.spm.gz")
    pack(json.dumps(vocabulary, ensure_ascii=False).encode(), folder / "vocab.json.gz")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="folder for downloaded packages")
    parser.add_argument("--answers-only", action="store_true", help="train nothing: read the files that are there")
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "host/generate/text/testdata")
    parser.add_argument("--only", nargs="*", help="kinds to train; all without")
    args = parser.parse_args()
    if not args.answers_only:
        if args.work is None:
            parser.error("--work is needed to train")
        args.work.mkdir(parents=True, exist_ok=True)
        pack(json.dumps(lines(EXPECTED_LINES, EXPECTED_SEED), ensure_ascii=False).encode(), args.out / "lines.json.gz")
        text = training_text(args.work)
        kinds.RULES = args.work / "rules.tsv"
        kinds.RULES.write_text(RULES)
    compared = json.loads(gzip.decompress((args.out / "lines.json.gz").read_bytes()))
    for name in args.only or [*kinds.KINDS, "marian"]:
        folder = args.out / name
        if not args.answers_only:
            if name == "marian":
                train_marian(text, folder)
            else:
                pack(kinds.KINDS[name](text).to_str().encode(), folder / "tokenizer.json.gz")
        pack(expected(opened(folder), compared), folder / "expected.gz")
        print(name, file=sys.stderr)


def opened(folder: Path):
    """What is compared is the files as they are read, not the trained object."""
    if (folder / "tokenizer.json.gz").exists():
        return kinds.Tokenizer.from_str(gzip.decompress((folder / "tokenizer.json.gz").read_bytes()).decode())
    with tempfile.TemporaryDirectory() as plain:
        for path in folder.glob("*.gz"):
            if path.name != "expected.gz":
                (Path(plain) / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        return Marian(plain)


if __name__ == "__main__":
    main()
