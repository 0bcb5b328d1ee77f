#!/usr/bin/env python3
"""Prints the cases of plugin.yaml: random calls and the answers of plain multi-head attention.

Keys and values are made from the hidden states, as the layer would, and attended to in float64. No
case writes: an input that changes is a fault to whoever runs them.

    python3 tests/cases.py >cases.yaml
"""
import math
import random
import struct

PANEL = 16


def draw(count, digits=3):
    return [round(random.uniform(-1, 1), digits) for _ in range(count)]


def half(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def brain(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def row_panels(w, width, heads, size):
    panels = -(-width // PANEL)
    packed = [0.0] * (heads * panels * size * PANEL)
    for f in range(width):
        for g in range(heads):
            for c in range(size):
                packed[((g * panels + f // PANEL) * size + c) * PANEL + f % PANEL] = w[f][g * size + c]
    return [heads, panels, size, PANEL], packed


def column_panels(w, width, heads, size):
    panels = -(-size // PANEL)
    packed = [0.0] * (heads * panels * width * PANEL)
    for f in range(width):
        for g in range(heads):
            for i in range(size):
                packed[((g * panels + i // PANEL) * width + f) * PANEL + i % PANEL] = w[f][g * size + i]
    return [heads, panels, width, PANEL], packed


def project(x, w, b):
    return [sum(x[f] * w[f][c] for f in range(len(x))) + (b[c] if b else 0) for c in range(len(w[0]))]


def attend(query, keys, values, scale, softcap=0.0, bias=None, window=0):
    scores = []
    for j, key in enumerate(keys):
        distance = len(keys) - 1 - j
        if window and distance >= window:
            scores.append(-math.inf)
            continue
        s = scale * sum(a * b for a, b in zip(query, key))
        if softcap:
            s = softcap * math.tanh(s / softcap)
        if bias:
            s += bias[min(distance, len(bias) - 1)]
        scores.append(s)
    top = max(scores)
    weights = [math.exp(s - top) for s in scores]
    return [sum(w * v[i] for w, v in zip(weights, values)) / sum(weights) for i in range(len(values[0]))]


class Layer:
    """Weights of one layer, and pools of hidden states and of keys and values."""

    def __init__(self, width, heads, kv_heads, size, value_size, blocks, biased=False, kv_blocks=0):
        self.width, self.heads, self.kv_heads = width, heads, kv_heads
        self.size, self.value_size = size, value_size
        self.wk = [draw(kv_heads * size) for _ in range(width)]
        self.wv = [draw(kv_heads * value_size) for _ in range(width)]
        self.bk = draw(kv_heads * size) if biased else None
        self.bv = draw(kv_heads * value_size) if biased else None
        self.rows = [draw(width) for _ in range(16 * blocks)]
        self.kv = [(draw(kv_heads * size), draw(kv_heads * value_size)) for _ in range(16 * kv_blocks)]

    def cache(self):
        return [x for row in self.rows for x in row]

    def kv_cache(self):
        flat = []
        for block in range(len(self.kv) // 16):
            for part, size in ((0, self.size), (1, self.value_size)):
                for g in range(self.kv_heads):
                    for slot in range(16 * block, 16 * block + 16):
                        flat += self.kv[slot][part][g * size : (g + 1) * size]
        return flat

    def weights(self):
        shapes = {
            "key_weight": row_panels(self.wk, self.width, self.kv_heads, self.size),
            "value_weight": column_panels(self.wv, self.width, self.kv_heads, self.value_size),
        }
        if self.bk:
            shapes["key_bias"] = [len(self.bk)], self.bk
            shapes["value_bias"] = [len(self.bv)], self.bv
        return shapes

    def answer(self, query, rows, kv, bias=None, **scores):
        """Output of one token over hidden states and then over slots of the pool of keys and values."""
        pairs = [(project(x, self.wk, self.bk), project(x, self.wv, self.bv)) for x in rows]
        pairs += [self.kv[slot] for slot in kv]
        out = []
        for h in range(self.heads):
            g = h // (self.heads // self.kv_heads)
            keys = [k[g * self.size : (g + 1) * self.size] for k, _ in pairs]
            values = [v[g * self.value_size : (g + 1) * self.value_size] for _, v in pairs]
            q = query[h * self.size : (h + 1) * self.size]
            out += attend(q, keys, values, 1 / math.sqrt(self.size), bias=bias and bias[h], **scores)
        return out


def number(x):
    return repr(int(x)) if x == int(x) else "%.9g" % x


def show(name, operator, attributes, inputs, output, tolerance="{absolute: 1e-5, relative: 1e-4}"):
    print(f"  - name: {name}\n    operator: {operator}\n    attributes: {attributes}\n    inputs:")
    for key, (shape, values) in inputs.items():
        kind = ", dtype: int32" if key in INTEGERS else ""
        print(f"      {key}: {{shape: {shape}{kind}, values: [{', '.join(map(number, values))}]}}")
    print(f"    expect:\n      values: {{{output[0]}: [{', '.join(map(number, output[1]))}]}}")
    print(f"    tolerance: {tolerance}")


INTEGERS = {"steps", "shared", "own", "write", "kv_steps", "kv_shared", "kv_own", "kv_write"}


def cross():
    layer = Layer(3, 2, 2, 2, 2, 1, biased=True)
    query = [draw(4), draw(4)]
    slots = [9, 2, 3, 15, 4]
    inputs = {"query": ([2, 4], query[0] + query[1]), "cache": ([1, 48], layer.cache()),
              "steps": ([1, 8], [0, 2, 0, 5, 0, 0, 0, 0]), "shared": ([5], slots), **layer.weights()}
    rows = [layer.rows[s] for s in slots]
    show("cross attention, two beams that share scattered slots, biased projections", "ELAttention",
         "{num_heads: 2, head_size: 2, width: 3, output_rank: 2}", inputs,
         ("output", sum((layer.answer(q, rows, []) for q in query), [])))


def both():
    layer = Layer(4, 2, 1, 2, 3, 2, biased=True, kv_blocks=1)
    query, slots = [draw(4), draw(4)], [0, 1, 2, 16, 17, 18]
    bias = [draw(4), draw(4)]
    inputs = {"query": ([2, 1, 4], sum(query, [])), "cache": ([2, 64], layer.cache()),
              "steps": ([1, 8], [0, 2, 0, 6, 0, 0, 0, 0]), "shared": ([6], slots), **layer.weights(),
              "bias": ([2, 4], sum(bias, [])), "kv_cache": ([1, 80], layer.kv_cache()),
              "kv_steps": ([1, 8], [0, 2, 0, 1, 0, 2, 0, 0]), "kv_shared": ([1], [3]),
              "kv_own": ([4], [4, 6, 4, 7])}
    rows = [layer.rows[s] for s in slots]
    out = layer.answer(query[0], rows, [3, 4, 6], bias) + layer.answer(query[1], rows, [3, 4, 7], bias)
    show("a prompt kept as hidden states, what was generated as keys and values, with distances",
         "ELAttention", "{num_heads: 2, kv_num_heads: 1, head_size: 2, value_size: 3, width: 4}", inputs,
         ("output", out))


def prompt():
    layer = Layer(3, 1, 1, 4, 4, 1)
    query = [draw(4) for _ in range(3)]
    inputs = {"query": ([3, 1, 4], sum(query, [])), "cache": ([1, 48], layer.cache()),
              "steps": ([1, 8], [0, 3, 0, 4, 0, 0, 1, 0]), "shared": ([4], [5, 6, 7, 8]), **layer.weights()}
    rows = layer.rows[5:9]
    out = sum((layer.answer(q, rows[: i + 2], [], softcap=4.0, window=3) for i, q in enumerate(query)), [])
    show("a prompt after another token, with window and softcap", "ELAttention",
         "{num_heads: 1, head_size: 4, width: 3, window: 3, softcap: 4.0, output_rank: 3}", inputs,
         ("output", out))


def halves(storage, rounded, bits):
    layer = Layer(6, 1, 1, 2, 2, 1)
    layer.rows = [[rounded(x) for x in row] for row in layer.rows]
    query = [draw(2), draw(2)]
    # Two halves make the bits of a float.
    packed = b"".join(bits(x) for x in layer.cache())
    floats = list(struct.unpack(f"<{len(packed) // 4}f", packed))
    inputs = {"query": ([2, 2], sum(query, [])), "cache": ([1, len(floats)], floats),
              "steps": ([1, 8], [0, 2, 0, 3, 0, 0, 1, 0]), "shared": ([3], [3, 8, 9]), **layer.weights()}
    rows = [layer.rows[s] for s in (3, 8, 9)]
    out = sum((layer.answer(q, rows[: i + 2], []) for i, q in enumerate(query)), [])
    show(f"rows stored as {storage}", "ELAttention",
         f"{{num_heads: 1, head_size: 2, width: 6, storage: {storage}, output_rank: 2}}", inputs, ("output", out))


def store():
    inputs = {"rows": ([2, 1, 3], draw(6)), "cache": ([1, 64], [0] * 64), "write": ([2], [-1, -1])}
    show("no row stored", "StoreRows", "{width: 3, offset: 16}", inputs, ("count", [0]),
         "{absolute: 0, relative: 0}")


if __name__ == "__main__":
    random.seed(4)
    cross()
    both()
    prompt()
    halves("float16", half, lambda x: struct.pack("<e", x))
    halves("bfloat16", brain, lambda x: struct.pack("<f", x)[2:])
    store()
