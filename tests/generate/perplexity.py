"""Writes testdata/perplexity.json: how likely PyTorch finds texts, in float64, with models of models/small.

    python perplexity.py

Needs models/export/requirements.txt. Decoders read windows of a text as https://huggingface.co/docs/transformers/perplexity does,
with its arithmetic in float64; encoder-decoders read an input and predict labels. Of every token that is predicted stand its
negative log-likelihood and the token that is most likely.
"""

import json
import random
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "models" / "export"))

import generation_subjects as subjects  # noqa: E402

WINDOW, STRIDE = 32, 12
DECODERS, ENCODER_DECODERS = ("gpt2", "llama"), ("bart", "t5")


def predictions(logits, targets):
    """Of rows of logits: the negative log-likelihoods of targets, and the most likely tokens."""
    log = torch.log_softmax(logits, -1)
    return (-log[torch.arange(len(targets)), torch.tensor(targets)]).tolist(), log.argmax(-1).tolist()


def windows(model, text):
    """The nll and the greedy tokens of a text, without its first token, which nothing is before."""
    nll, greedy, before = [], [], 0
    for begin in range(0, len(text), STRIDE):
        end = min(begin + WINDOW, len(text))
        first = max(before, begin + 1)
        if end > first:
            logits = model(torch.tensor([text[begin:end]])).logits[0]
            more = predictions(logits[first - begin - 1 : -1], text[first:end])
            nll, greedy = nll + more[0], greedy + more[1]
        before = end
        if end == len(text):
            break
    return nll, greedy


@torch.no_grad()
def main():
    chance, models = random.Random(17), []
    for name in (*DECODERS, *ENCODER_DECODERS):
        model = subjects.make(name, "eager")[0].double().eval()
        entry = {"model": name, "inputs": [], "references": [], "nll": [], "greedy": []}
        draw = lambda n: [chance.randrange(4, model.config.vocab_size) for _ in range(n)]  # noqa: E731
        for length in (25, 1, 90, 33):
            text = draw(length)
            if name in DECODERS:
                entry["inputs"].append(text)
                nll, greedy = windows(model, text)
            else:
                read = draw(7 + length % 5)
                start = model.config.decoder_start_token_id
                logits = model(input_ids=torch.tensor([read]), decoder_input_ids=torch.tensor([[start, *text[:-1]]])).logits[0]
                nll, greedy = predictions(logits, text)
                entry["inputs"].append(read)
                entry["references"].append(text)
            entry["nll"] += nll
            entry["greedy"] += greedy
        models.append(entry)
    out = {"schema_version": 1, "seed": subjects.SEED, "window": WINDOW, "stride": STRIDE, "models": models}
    (HERE / "testdata" / "perplexity.json").write_text(json.dumps(out, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
