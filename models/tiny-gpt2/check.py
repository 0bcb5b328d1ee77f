"""Checks the files in this folder against the trained checkpoint.

    python check.py WORK

Logits of onnxruntime against torch over the whole context, step by step with
past up to the last position, and with padding on the left; then the same
greedy tokens for every prompt. Prints the figures and fails beyond the limits.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from tokenizers import Tokenizer
from transformers import GPT2LMHeadModel

import corpus
import model
from session import Session

HERE = Path(__file__).resolve().parent
ABSOLUTE, RELATIVE = 1e-5, 1e-4
NEW_TOKENS = 256
SAMPLES = (0, 1, 30, 31)


def check_close(name: str, found: np.ndarray, wanted: np.ndarray) -> None:
    difference = np.abs(found - wanted)
    worst = float(difference.max() / np.abs(wanted).max())
    print(f"{name}: max absolute difference {difference.max():.3g} over {found.size} logits, "
          f"{worst:.3g} of the largest")
    # The relative part is measured against the row's largest logit: a logit near zero is a difference of large terms.
    allowed = ABSOLUTE + RELATIVE * np.abs(wanted).max(-1, keepdims=True)
    if not np.isfinite(found).all() or (difference > allowed).any():
        sys.exit(f"{name}: found a difference of {difference.max():.3g}, needed {ABSOLUTE:g} + {RELATIVE:g} relative")


@torch.no_grad()
def torch_logits(net: GPT2LMHeadModel, ids: np.ndarray) -> np.ndarray:
    return net(input_ids=torch.from_numpy(ids), use_cache=False).logits.numpy()


def torch_agrees(net: GPT2LMHeadModel, prompt: list[int], tokens: list[int]) -> bool:
    """Whether torch, given the prompt and the tokens so far, would choose each of the tokens too."""
    logits = torch_logits(net, np.array([prompt + tokens[:-1]], np.int64))
    return logits[0, len(prompt) - 1:].argmax(-1).tolist() == tokens


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python check.py WORK")
    work = Path(sys.argv[1])
    torch.set_num_threads(2)
    graph = onnx.load(HERE / "model.onnx")
    onnx.checker.check_model(graph, full_check=True)
    print(f"onnxruntime {onnxruntime.__version__}, onnx IR {graph.ir_version}, opset {graph.opset_import[0].version}, "
          f"{len(graph.graph.node)} nodes")
    session = Session(HERE / "model.onnx")
    net = GPT2LMHeadModel.from_pretrained(work / "checkpoint").eval()
    tokenizer = Tokenizer.from_file(str(HERE / "tokenizer.json"))

    held_out = [model.encode(tokenizer, [d]) for d in corpus.load(work) if d.held_out]
    rows = np.stack([ids[:model.CONTEXT] for ids in held_out if len(ids) >= model.CONTEXT][-2:])
    wanted = torch_logits(net, rows)
    check_close("whole context at once", session.step(rows, session.empty_past(2))[0], wanted)

    found, past = session.step(rows[:, :8], session.empty_past(2))
    steps = [found]
    for at in range(8, model.CONTEXT):
        found, past = session.step(rows[:, at:at + 1], past)
        steps.append(found)
    check_close("one token a step with past up to 1,023", np.concatenate(steps, 1), wanted)

    short = 300
    padded = np.stack([rows[0, :512], np.concatenate([np.zeros(512 - short, np.int64), rows[1, :short]])])
    mask = np.ones_like(padded)
    mask[1, :512 - short] = 0
    found, past = session.step(padded, session.empty_past(2), mask)
    check_close("row padded on the left", found[1, 512 - short:], wanted[1, :short])
    following = np.stack([rows[0, 512:513], rows[1, short:short + 1]])
    found, _ = session.step(following, past, np.concatenate([mask, np.ones((2, 1), np.int64)], 1))
    check_close("a step after padding", found[1, 0], wanted[1, short])

    prompts = json.loads((HERE / "prompts.json").read_text())
    texts = (HERE / "prompts.txt").read_text().splitlines()
    if len(prompts) != 64 or [tokenizer.encode(text).ids for text in texts] != prompts:
        sys.exit("prompts.json: found ids that are not those of the 64 lines of prompts.txt; run export.py again")
    continuations, margins = session.greedy(prompts, NEW_TOKENS)
    for text, ids, tokens in zip(texts, prompts, continuations):
        if not torch_agrees(net, ids, tokens):
            sys.exit(f"prompt {text!r}: found other greedy tokens in onnxruntime than in torch")
    print(f"{len(prompts)} prompts, {NEW_TOKENS} greedy tokens each: equal in onnxruntime and torch; "
          f"narrowest gap between the two best logits {min(margins):.3g}")
    for at in SAMPLES:
        print(f"---\n{texts[at]}|{tokenizer.decode(continuations[at][:80])}")


if __name__ == "__main__":
    main()
