"""Held-out perplexity of the model and of the baselines, over the same tokens.

    python evaluate.py WORK

reads what train.py left in WORK and writes WORK/evaluation.json. A document is
read from its end-of-text token on, in windows of the whole context; later
windows overlap the one before by half, and only their new tokens count.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import GPT2LMHeadModel

import corpus
import model
from bigram import Bigram


@torch.no_grad()
def model_losses(net: GPT2LMHeadModel, ids: np.ndarray) -> np.ndarray:
    """-log p of ids[1:], in nats."""
    losses = np.zeros(len(ids) - 1)
    done = 0
    for start in range(0, len(ids) - 1, model.CONTEXT // 2):
        inputs = torch.from_numpy(ids[start:start + model.CONTEXT])
        targets = torch.from_numpy(ids[start + 1:start + model.CONTEXT + 1])
        logits = net(input_ids=inputs[None], use_cache=False).logits[0, :len(targets)]
        window = torch.nn.functional.cross_entropy(logits, targets, reduction="none").numpy()
        losses[done:start + len(window)] = window[done - start:]
        done = start + len(window)
        if done == len(ids) - 1:
            break
    return losses


@torch.no_grad()
def losses_by_position(net: GPT2LMHeadModel, rows: list[np.ndarray]) -> dict[str, float]:
    """Mean loss by the number of tokens before, over the first full window of long documents."""
    inputs = torch.from_numpy(np.stack([ids[:model.CONTEXT + 1] for ids in rows if len(ids) > model.CONTEXT]))
    total = torch.zeros(model.CONTEXT)
    for row in inputs:
        logits = net(input_ids=row[None, :-1], use_cache=False).logits[0]
        total += torch.nn.functional.cross_entropy(logits, row[1:], reduction="none")
    mean = total / len(inputs)
    edges = (0, 32, 128, 256, 512, 768, model.CONTEXT)
    return {f"{a}-{b - 1}": round(float(mean[a:b].mean()), 4) for a, b in zip(edges, edges[1:])}


def summary(losses: np.ndarray, characters: int) -> dict:
    return {"perplexity": round(math.exp(losses.mean()), 2), "nats_per_token": round(float(losses.mean()), 4),
            "bits_per_character": round(float(losses.sum()) / math.log(2) / characters, 3)}


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python evaluate.py WORK")
    work = Path(sys.argv[1])
    torch.set_num_threads(2)
    documents = corpus.load(work)
    tokenizer = Tokenizer.from_file(str(model.tokenizer_path(work)))
    net = GPT2LMHeadModel.from_pretrained(work / "checkpoint").eval()
    bigram = Bigram(model.encode(tokenizer, [d for d in documents if not d.held_out]), model.CONFIG["vocab_size"])

    result: dict = {"bigram_discount": round(bigram.discount, 4), "sources": {}}
    everything: dict[str, list[np.ndarray]] = {"model": [], "bigram": [], "unigram": []}
    characters, rows = 0, []
    for source in ("bible", "austen"):
        held_out = [d for d in documents if d.held_out and d.source == source]
        encoded = [model.encode(tokenizer, [d]) for d in held_out]
        rows.extend(encoded)
        found = {"model": [model_losses(net, ids) for ids in encoded],
                 "bigram": [bigram.losses(ids) for ids in encoded],
                 "unigram": [bigram.unigram_losses(ids) for ids in encoded]}
        length = sum(len(d.text) for d in held_out)
        characters += length
        result["sources"][source] = {"documents": len(held_out), "tokens": sum(len(ids) - 1 for ids in encoded)}
        for name, losses in found.items():
            everything[name].extend(losses)
            result["sources"][source][name] = summary(np.concatenate(losses), length)
    result["tokens"] = sum(len(ids) - 1 for ids in rows)
    for name, losses in everything.items():
        result[name] = summary(np.concatenate(losses), characters)
    result["model_nats_by_position"] = losses_by_position(net, rows)
    text = json.dumps(result, indent=1)
    (work / "evaluation.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
