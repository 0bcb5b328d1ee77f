"""Exports the trained model and picks the prompts, into this folder.

    python export.py WORK

writes model.onnx, config.json and generation_config.json (optimum, TorchScript,
with past), tokenizer.json, prompts.txt and prompts.json. Fails if the folder
grows beyond its limit.
"""

import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from optimum.exporters.onnx import main_export
from tokenizers import Tokenizer

import corpus
import model
from session import Session

HERE = Path(__file__).resolve().parent
LIMIT = 6_000_000
OPSET = 18
PROMPTS = 64
NEW_TOKENS = 256
BATCH = 16
# A prompt is left out if greedy decoding passes a near-tie: below this gap the
# rounding of another correct kernel may choose the other token.
MARGIN = 5e-3


def export(work: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        main_export(str(work / "checkpoint"), folder, task="text-generation-with-past", opset=OPSET,
                    library_name="transformers", do_validation=False)
        for name in ("model.onnx", "config.json", "generation_config.json"):
            shutil.copyfile(Path(folder) / name, HERE / name)
    shutil.copyfile(model.tokenizer_path(work), HERE / "tokenizer.json")


def candidates(documents: list[corpus.Document]) -> list[str]:
    """Openings of held-out verses and paragraphs, 4 to 12 words long, the two sources in turn."""
    generator = random.Random(model.SEED)
    turns = []
    for source in ("bible", "austen"):
        lines = [line.split(" ") for d in documents if d.held_out and d.source == source
                 for line in d.text.split("\n")[1:]]  # without the heading
        generator.shuffle(lines)
        lengths = [4 + i % 9 for i in range(len(lines))]
        turns.append([" ".join(words[:length]) for words, length in zip(lines, lengths)
                      if len(words) > 2 * length and words[0][0].isalpha()])
    return [opening for pair in zip(*turns) for opening in pair]


def pick_prompts(texts: list[str], tokenizer: Tokenizer) -> tuple[list[str], list[list[int]], int]:
    session = Session(HERE / "model.onnx")
    prompts: list[str] = []
    encoded: list[list[int]] = []
    near_ties = 0
    for at in range(0, len(texts), BATCH):
        batch = texts[at:at + BATCH]
        ids = [tokenizer.encode(text).ids for text in batch]
        _, margins = session.greedy(ids, NEW_TOKENS)
        for text, row, margin in zip(batch, ids, margins):
            if margin < MARGIN:
                near_ties += 1
                continue
            prompts.append(text)
            encoded.append(row)
            if len(prompts) == PROMPTS:
                return prompts, encoded, near_ties
    raise ValueError(f"prompts: found {len(prompts)} without a near-tie, needed {PROMPTS}")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python export.py WORK")
    work = Path(sys.argv[1])
    export(work)
    tokenizer = Tokenizer.from_file(str(HERE / "tokenizer.json"))
    prompts, encoded, near_ties = pick_prompts(candidates(corpus.load(work)), tokenizer)
    (HERE / "prompts.txt").write_text("".join(text + "\n" for text in prompts))
    (HERE / "prompts.json").write_text("[\n" + ",\n".join(json.dumps(ids) for ids in encoded) + "\n]\n")
    sizes = {path.name: path.stat().st_size for path in sorted(HERE.iterdir()) if path.is_file()}
    for name, size in sizes.items():
        print(f"{size:>9} {name}")
    print(f"{sum(sizes.values()):>9} in all; {near_ties} candidate prompts left out for a near-tie")
    if sum(sizes.values()) > LIMIT:
        sys.exit(f"{HERE}: found {sum(sizes.values())} bytes, needed at most {LIMIT}")


if __name__ == "__main__":
    main()
