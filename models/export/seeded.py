"""Seeded weights: the same numbers in Python (here) and in Go (models/seed.go).

A value depends on the seed, the parameter's name and its index alone, so that a
slice or a transpose of a parameter can be filled without making the rest.
Everything is integer arithmetic up to one multiplication and one addition in
float64, hence the same bits on every machine.
"""

import hashlib
import math
import re
from dataclasses import dataclass

import numpy as np

GOLDEN = 0x9E3779B97F4A7C15
# Standard deviation of the sum of four uniform 16-bit integers.
SUM_DEVIATION = math.sqrt((2**32 - 1) / 3)

POSITIONS = re.compile(r"(wpe|embed_positions|position_embeddings)$")
QUERY_KEY = re.compile(r"(c_attn|q_proj|k_proj|query|key)$")


@dataclass(frozen=True)
class Seeded:
    """One parameter: its name, its shape and how its values are distributed."""

    name: str
    shape: tuple
    distribution: str  # "normal": mean, deviation = scale; "uniform": mean +- scale; "constant": mean; "bytes"
    mean: float
    scale: float

    def values(self, seed):
        return fill(self, seed).reshape(self.shape)


def stream_key(seed, name):
    digest = hashlib.sha256(f"{seed}\n{name}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def words(key, start, count):
    """SplitMix64 with the index as its counter: one 64-bit word an index."""
    with np.errstate(over="ignore"):
        z = np.arange(start + 1, start + count + 1, dtype=np.uint64)
        z *= np.uint64(GOLDEN)
        z += np.uint64(key)
        z ^= z >> np.uint64(30)
        z *= np.uint64(0xBF58476D1CE4E5B9)
        z ^= z >> np.uint64(27)
        z *= np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return z


def fill(parameter, seed):
    count = math.prod(parameter.shape)
    key = stream_key(seed, parameter.name)
    if parameter.distribution == "bytes":
        return (words(key, 0, count) & np.uint64(255)).astype(np.uint8)
    if parameter.distribution == "constant":
        return np.full(count, parameter.mean, np.float32)
    out = np.empty(count, np.float32)
    step = 1 << 22
    for start in range(0, count, step):
        z = words(key, start, min(step, count - start))
        if parameter.distribution == "normal":
            mask = np.uint64(0xFFFF)
            total = z & mask
            for shift in (16, 32, 48):
                total += (z >> np.uint64(shift)) & mask
            centred = total.astype(np.int64) - 131070
            factor = parameter.scale / SUM_DEVIATION
        elif parameter.distribution == "uniform":
            centred = (z >> np.uint64(11)).astype(np.int64) - (1 << 52)
            factor = parameter.scale / (1 << 52)
        else:
            raise ValueError(f"distribution {parameter.distribution!r} is not known")
        out[start : start + len(z)] = centred.astype(np.float64) * factor + parameter.mean
    return out


def plan(model):
    """Says for each parameter of a torch model how it is drawn.

    Matrices have deviation 1/sqrt(fan in), those of queries and keys half as much
    again: scores of attention are spread (a uniform softmax would hide errors).
    Norms lie around 1; nothing is all zero, so that every bias matters. Embeddings
    have deviation 0.05, except where the model divides its scores by sqrt(width)
    itself (T5, tied): there 1. Positions have 0.2. With less of the two, a greedy
    continuation repeats one token; with this, half of its tokens are new.
    """
    config = model.config
    seeded = {}
    for module_name, module in model.named_modules():
        kind = type(module).__name__
        for leaf, parameter in module.named_parameters(recurse=False):
            name = f"{module_name}.{leaf}" if module_name else leaf
            mean, scale = 0.0, 0.05
            if "Norm" in kind:
                mean, scale = (1.0, 0.1) if leaf == "weight" else (0.0, 0.05)
            elif "relative_attention_bias" in module_name:
                scale = 0.5
            elif leaf == "weight" and POSITIONS.search(module_name):
                scale = 0.2
            elif "Embedding" in kind:
                tied_t5 = config.model_type == "t5" and config.tie_word_embeddings
                scale = 1.0 if tied_t5 else 0.05
            elif parameter.dim() == 2:
                fan_in = parameter.shape[0 if kind == "Conv1D" else 1]
                if config.model_type == "t5" and module_name.endswith(".q"):
                    fan_in = config.d_model * config.d_kv
                scale = fan_in**-0.5 * (1.5 if QUERY_KEY.search(module_name) else 1)
            elif parameter.dim() == 3:
                scale = (parameter.shape[1] * parameter.shape[2]) ** -0.5
            seeded[name] = Seeded(name, tuple(parameter.shape), "normal", mean, float(f"{scale:.4g}"))
    return seeded


def initialise(model, seed=0):
    """Fills a torch model; returns {name: Seeded} without tied duplicates."""
    import torch

    seeded, result = plan(model), {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(seeded[name].values(seed)))
            result[name] = seeded[name]
    return result
