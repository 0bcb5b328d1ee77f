#!/usr/bin/env python3
"""Prints the cases of plugin.yaml that have no reference in the host: rows stored as halves.

Keys and values are made from the hidden states, as the layer would, and attended to in float64. No
case writes: an input that changes is a fault to whoever runs them.

    python3 tests/cases.py >cases.yaml
"""
import math
import random
import struct

PANEL = 16


def sample(count, digits=3):
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


def project(x, w):
    return [sum(x[f] * w[f][c] for f in range(len(x))) for c in range(len(w[0]))]


def attend(query, keys, values, scale):
    scores = [scale * sum(a * b for a, b in zip(query, key)) for key in keys]
    weights = [math.exp(s - max(scores)) for s in scores]
    return [sum(w * v[i] for w, v in zip(weights, values)) / sum(weights) for i in range(len(values[0]))]


class Layer:
    """Weights of one layer of one head, and a pool of hidden states."""

    def __init__(self, width, size, blocks):
        self.width, self.size = width, size
        self.wk = [sample(size) for _ in range(width)]
        self.wv = [sample(size) for _ in range(width)]
        self.rows = [sample(width) for _ in range(16 * blocks)]

    def cache(self):
        return [x for row in self.rows for x in row]

    def weights(self):
        return {
            "key_weight": row_panels(self.wk, self.width, 1, self.size),
            "value_weight": column_panels(self.wv, self.width, 1, self.size),
        }

    def answer(self, query, rows):
        """Output of one token."""
        keys, values = [[project(x, w) for x in rows] for w in (self.wk, self.wv)]
        return attend(query, keys, values, 1 / math.sqrt(self.size))


def number(x):
    return repr(int(x)) if x == int(x) else "%.9g" % x


def show(name, operator, attributes, inputs, output):
    print(f"  - name: {name}\n    operator: {operator}\n    attributes: {attributes}\n    inputs:")
    for key, (shape, values) in inputs.items():
        kind = ", dtype: int32" if key in INTEGERS else ""
        print(f"      {key}: {{shape: {shape}{kind}, values: [{', '.join(map(number, values))}]}}")
    print(f"    expect:\n      values: {{{output[0]}: [{', '.join(map(number, output[1]))}]}}")
    print("    tolerance: {absolute: 1e-5, relative: 1e-4}")


INTEGERS = {"sequences", "shared_slots"}


def halves(storage, rounded, bits):
    layer = Layer(6, 2, 1)
    layer.rows = [[rounded(x) for x in row] for row in layer.rows]
    query = [sample(2), sample(2)]
    # Two halves make the bits of a float.
    packed = b"".join(bits(x) for x in layer.cache())
    floats = list(struct.unpack(f"<{len(packed) // 4}f", packed))
    inputs = {"query": ([2, 2], sum(query, [])), "cache": ([1, len(floats)], floats),
              "sequences": ([1, 8], [0, 2, 0, 3, 0, 0, 1, 0]), "shared_slots": ([3], [3, 8, 9]), **layer.weights()}
    rows = [layer.rows[s] for s in (3, 8, 9)]
    out = sum((layer.answer(q, rows[: i + 2]) for i, q in enumerate(query)), [])
    show(f"rows stored as {storage}", "ELAttention",
         f"{{num_heads: 1, head_size: 2, width: 6, storage: {storage}, output_rank: 2}}", inputs, ("output", out))


if __name__ == "__main__":
    random.seed(4)
    halves("float16", half, lambda x: struct.pack("<e", x))
    halves("bfloat16", brain, lambda x: struct.pack("<f", x)[2:])
