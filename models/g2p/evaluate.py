"""Error rates on the held-out words, with Hugging Face generate.

    python evaluate.py WORK            # the checkpoint that train.py left in WORK
    python evaluate.py WORK --onnx     # the exported files in this folder

prints the figures, and writes them to WORK/evaluation.json or WORK/evaluation-onnx.json.

A word is wrong if the answer is none of its pronunciations. Phoneme errors are
insertions, deletions and replacements against the pronunciation nearest to the
answer, over that pronunciation's phonemes.
"""

import argparse
import json
import re
import time
from pathlib import Path

import torch

import decode
import dictionary
import model

RETURNED = 4  # of beam search: how often the dictionary's answer is among them


def distance(a: list[str], b: list[str]) -> int:
    """Levenshtein's."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (x != y))
    return row[-1]


def plain(phonemes: str) -> str:
    return re.sub(r"\d", "", phonemes)


def rates(entries: list[dictionary.Entry], answers: list[str], strip=lambda text: text) -> dict:
    wrong = errors = phonemes = 0
    for entry, answer in zip(entries, answers):
        wanted = [strip(p).split() for p in entry.pronunciations]
        found = strip(answer).split()
        wrong += found not in wanted
        least, length = min((distance(found, p), len(p)) for p in wanted)
        errors, phonemes = errors + least, phonemes + length
    return {"wrong_words": wrong, "word_error_rate": round(100 * wrong / len(entries), 2),
            "phoneme_errors": errors, "phonemes": phonemes, "phoneme_error_rate": round(100 * errors / phonemes, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(usage="python evaluate.py WORK [--onnx]")
    parser.add_argument("work", type=Path)
    parser.add_argument("--onnx", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    entries = dictionary.held_out(arguments.work)
    words = [entry.word for entry in entries]
    if arguments.onnx:
        net, tokenizer = decode.exported(), model.fast_tokenizer(decode.HERE / "tokenizer.json")
    else:
        net = decode.checkpoint(arguments.work)
        tokenizer = model.fast_tokenizer(arguments.work / "checkpoint" / "tokenizer.json")

    result: dict = {"words": len(words), "pronunciations": sum(len(e.pronunciations) for e in entries)}
    print(f"{result['words']} words, {result['pronunciations']} pronunciations")
    for name, options in decode.OPTIONS.items():
        if name == "beam":
            options = options | {"num_return_sequences": RETURNED}
        began = time.monotonic()
        answers = decode.decode(net, tokenizer, words, options)
        best = [found[0] for found in answers]
        result[name] = {"stress": rates(entries, best), "no_stress": rates(entries, best, plain),
                        "seconds": round(time.monotonic() - began, 1)}
        if name == "beam":
            result[name]["right_among_returned"] = sum(
                any(p in found for p in e.pronunciations) for e, found in zip(entries, answers))
        print(name, json.dumps(result[name]), flush=True)
    target = arguments.work / ("evaluation-onnx.json" if arguments.onnx else "evaluation.json")
    target.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
