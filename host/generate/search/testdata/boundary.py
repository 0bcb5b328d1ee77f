"""Writes boundary.json.gz: logits whose top-p, min-p or typical-p lies at a boundary, with the tokens that the warpers of
transformers 5.24.0 keep, as PyTorch 2.9.1 computes them on the CPU. A case in which the order of a sum of float32
decides, which is another on every processor, is left out. At most 14 logits: PyTorch does not sort more stably.
pip install torch==2.9.1 transformers==5.24.0 numpy; python boundary.py | gzip -n >boundary.json.gz"""
import json
import random
import sys

import numpy as np
import torch

try:
    from transformers.generation.logits_process import MinPLogitsWarper, TopPLogitsWarper, TypicalLogitsWarper
except ImportError:
    sys.exit("needed transformers==5.24.0")


def kept(warper, logits):
    ids = torch.zeros(1, 1, dtype=torch.long)
    return (warper(ids, torch.tensor(logits[None, :]))[0] > -np.inf).nonzero().ravel().tolist()


def sums(logits):
    """The sum of exponentials, added in several orders."""
    weights = np.exp((logits - logits.max()).astype(np.float64)).astype(np.float32)
    lanes = list(weights) + [np.float32(0)] * (16 - len(weights))
    lanes = [lanes[i] + lanes[i + 8] for i in range(8)]
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [lanes[i] + lanes[i + half] for i in range(half)]
    forward = np.float32(0)
    for w in weights:
        forward += w
    return {float(lanes[0]), float(forward), float(np.float32(weights.astype(np.float64).sum()))}


random.seed(35)
cases = []
while len(cases) < 600:
    n, parts = random.randint(2, 14), random.choice([4, 5, 8, 10, 16, 20, 50, 100, 1000])
    cuts = sorted(random.sample(range(1, parts), min(n, parts) - 1))
    weights = [b - a for a, b in zip([0] + cuts, cuts + [parts])]
    random.shuffle(weights)
    logits = np.log(np.array(weights) / parts).astype(np.float32)
    if random.random() < 0.5:
        logits = (logits + np.float32(random.uniform(-5, 15))).astype(np.float32)
    gone = sum(sorted(weights)[:random.randint(1, len(weights))])
    name = random.choice(["top_p", "top_p", "min_p", "typical_p"])
    number = round(random.choice(weights) / max(weights) if name == "min_p" else 1 - gone / parts, 6)
    if not 0 < number < 1 or len(sums(logits)) > 1:
        continue
    warper = {"top_p": TopPLogitsWarper, "min_p": MinPLogitsWarper, "typical_p": TypicalLogitsWarper}[name]
    cases.append({"warper": name, "number": number, "logits": [float(x) for x in logits], "kept": kept(warper(number), logits)})
print("[" + ",\n".join(json.dumps(c) for c in cases) + "]")
