"""Compares host/generate/text with Hugging Face's packages on tokenizers of any origin.

  python models/text/check.py [--lines N] [--seed N] [--text FILE] PATH ...

A PATH is a tokenizer.json (of any name), or a folder with one or with Marian's
files. Lines are generated (lines.py), or those of --text. Prints for every path
how many lines differ, and the first ones that do; fails if any does. Needs Go.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tokenizers import Tokenizer

from expect import EXPECTED_LINES, Marian, answers, wrapped
from lines import lines

ROOT = Path(__file__).parents[2]
COMPARED = ("ids", "bare", "target", "decoded", "skipped")


def reference(path: Path):
    if path.is_file():
        return wrapped(Tokenizer.from_file(str(path)))
    if (path / "tokenizer.json").exists():
        return wrapped(Tokenizer.from_file(str(path / "tokenizer.json")))
    return Marian(str(path))


def compare(encode: str, path: Path, compared: list[str], show: int) -> int:
    run = subprocess.run([encode, str(path)], input=json.dumps(compared).encode(), stdout=subprocess.PIPE, check=True)
    results = [json.loads(line) for line in run.stdout.splitlines()]
    if len(results) != len(compared):
        raise ValueError(f"{path}: found {len(results)} results, needed {len(compared)}")
    tokenizer = reference(path)
    bad = 0
    for line, got in zip(compared, results):
        want = answers(tokenizer, line)
        differing = [key for key in COMPARED if want[key] != got[key]]
        bad += bool(differing)
        if differing and bad <= show:
            print(f"{path}: {ascii(line)}")
            for key in differing:
                print(f"  {key}\n    want {ascii(want[key])}\n    got  {ascii(got[key])}")
    print(f"{path}: {len(compared) - bad} of {len(compared)} lines equal")
    return bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--lines", type=int, default=EXPECTED_LINES, help="how many lines to generate (%(default)s)")
    parser.add_argument("--seed", type=int, default=3, help="seed of the generator (%(default)s; 1 is that of the tests)")
    parser.add_argument("--text", type=Path, help="compare the lines of this file instead")
    parser.add_argument("--show", type=int, default=5, help="how many differing lines to print (%(default)s)")
    args = parser.parse_args()
    compared = args.text.read_text(encoding="utf-8").split("\n") if args.text else lines(args.lines, args.seed)
    with tempfile.TemporaryDirectory() as folder:
        encode = str(Path(folder) / "encode")
        subprocess.run(["go", "build", "-o", encode, "./models/text/encode"], cwd=ROOT, check=True)
        bad = sum(compare(encode, path.resolve(), compared, args.show) for path in args.paths)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
