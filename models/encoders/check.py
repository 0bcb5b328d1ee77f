"""Compares `graft embed` with tokenizers, onnxruntime and numpy on the lines of a file.

    python models/encoders/check.py FOLDER TEXTS --pooling mean [--graft bin/graft] [--longest 256]

FOLDER holds model.onnx and tokenizer.json, and no modules.json. Texts run one by one, so that nothing is padded. Prints the
least cosine; ends with 1 where it is not above 0.99999.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--pooling", choices=("mean", "cls"), required=True)
    parser.add_argument("--longest", type=int, default=256)
    parser.add_argument("--graft", default="bin/graft")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "vectors.npy"
        subprocess.run([args.graft, "embed", args.folder, "--input", args.texts, "--pooling", args.pooling, "--normalize",
                        "--max-input-tokens", str(args.longest), "-o", out], check=True)
        ours = np.load(out)
    tokenizer = Tokenizer.from_file(str(args.folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(args.longest)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(args.folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    least = 1.0
    lines = args.texts.read_text().split("\n")
    for line, vector in zip(lines, ours):
        e = tokenizer.encode(line.strip())
        feeds = {"input_ids": e.ids, "attention_mask": e.attention_mask, "token_type_ids": e.type_ids}
        states = session.run(None, {n: np.array([feeds[n]], np.int64) for n in names})[0][0]
        theirs = states[0] if args.pooling == "cls" else states.mean(0)
        least = min(least, float(vector @ theirs / np.linalg.norm(vector) / np.linalg.norm(theirs)))
    print(f"{args.folder.name}: {len(ours)} texts, least cosine {least:.8f}")
    sys.exit(least <= 0.99999)


if __name__ == "__main__":
    main()
