#!/usr/bin/env python3
"""Prints the cases of plugin.yaml that have no reference in the host: folds, and attention with rotary
positions and skipping (needs numpy).

Keys and values are made from a layer's inputs, and weights are inverted, by numpy.

    python3 tests/cases.py >cases.yaml
"""
import numpy as np

rng = np.random.default_rng(4)


def r3(*shape, scale=1.0): return np.round(rng.uniform(-1, 1, shape) * scale, 3)


def f32(x): return np.asarray(x, np.float32).astype(np.float64)


def lst(x, digits=None):
    x = np.asarray(x).ravel()
    out = []
    for v in x:
        if digits is not None: v = float(f"{v:.{digits}g}")
        else: v = float(v)
        out.append(str(int(v)) if v == int(v) else repr(v))
    return "[" + ", ".join(out) + "]"


def panels_cols(w, heads):
    d, c = w.shape; n = c // heads; p = (n + 15) // 16
    out = np.zeros((heads, p, d, 16))
    for h in range(heads):
        for j in range(n): out[h, j // 16, :, j % 16] = w[:, h * n + j]
    return out


def panels_rows(w, heads):
    d, c = w.shape; n = c // heads; p = (d + 15) // 16
    out = np.zeros((heads, p, n, 16))
    for h in range(heads):
        for f in range(d): out[h, f // 16, :, f % 16] = w[f, h * n:(h + 1) * n]
    return out


def half(x, pos, cos, sin, hs):
    x = x.copy(); r = cos.shape[1]
    for h in range(len(x) // hs):
        for j in range(r):
            a, b = x[h*hs+j], x[h*hs+j+r]
            x[h*hs+j], x[h*hs+j+r] = a*cos[pos, j] - b*sin[pos, j], b*cos[pos, j] + a*sin[pos, j]
    return x


def attend(q, keys, values, heads, hs, vs, scale):
    out = []; n = len(keys)
    for h in range(heads):
        s = np.array([scale * q[h*hs:(h+1)*hs] @ k[h*hs:(h+1)*hs] for k in keys])
        p = np.exp(s - s.max()); p /= p.sum()
        out.append(sum(p[j] * values[j][h*vs:(h+1)*vs] for j in range(n)))
    return np.concatenate(out)


def emit(s): print(s)


# 1. The fold, with biases.
wk = np.round(np.eye(4) + r3(4, 4, scale=.4), 3); wv = r3(4, 4); bk = r3(4); bv = r3(4)
wkv = np.linalg.solve(wk, wv); bkv = bv - bk @ wkv
emit(f"""  - name: values out of keys
    operator: KeyAttention
    attributes: {{num_heads: 2, head_size: 2}}
    fold:
      constants:
        key_weight: {{shape: [4, 4], values: {lst(wk)}}}
        value_weight: {{shape: [4, 4], values: {lst(wv)}}}
        key_bias: {{shape: [4], values: {lst(bk)}}}
        value_bias: {{shape: [4], values: {lst(bv)}}}
    expect:
      values:
        value_weight: {lst(panels_cols(wkv, 2), 12)}
        value_bias: {lst(bkv, 12)}
    tolerance: {{absolute: 1e-10, relative: 1e-10}}""")
# 2. rotary, both ways, prompt.
wk2 = np.round(np.eye(4) + r3(4, 4, scale=.4), 3); wv2 = r3(4, 4)
pos = 5; cos = np.round(np.cos(np.arange(pos)[:, None] * np.array([[1.0]])), 6); sin = np.round(np.sin(np.arange(pos)[:, None] * np.array([[1.0]])), 6)
cos, sin = f32(cos), f32(sin)
x = r3(5, 4, scale=2); kraw = f32(x @ wk2); v = x @ wv2; wkv2 = np.linalg.solve(wk2, wv2)
krot = np.array([half(kraw[j], j, cos, sin, 2) for j in range(5)])
q = r3(3, 4, scale=2)
o = [attend(q[i], krot[:3 + i], v[:3 + i], 2, 2, 2, 1/np.sqrt(2)) for i in range(3)]
for rotated, kept in ((0, kraw), (1, f32(krot))):
    cache = np.full((1, 16, 4), 9.5); cache[0, :5] = kept
    emit(f"""  - name: a prompt over keys that are kept {'turned' if rotated else 'as projected'}
    operator: KeyAttention
    attributes: {{num_heads: 2, head_size: 2, rotary: half, rotated: {rotated}, output_rank: 2}}
    inputs:
      query: {{shape: [3, 4], values: {lst(q)}}}
      cache: {{shape: [1, 64], values: {lst(cache, 9)}}}
      sequences: {{shape: [1, 8], dtype: int32, values: [0, 3, 0, 5, 0, 0, 1, 0]}}
      shared_slots: {{shape: [5], dtype: int32, values: [0, 1, 2, 3, 4]}}
      value_weight: {{shape: [2, 1, 4, 16], values: {lst(panels_cols(wkv2, 2), 9)}}}
      cos: {{shape: [5, 1], values: {lst(cos, 9)}}}
      sin: {{shape: [5, 1], values: {lst(sin, 9)}}}
    outputs: [output, skipped]
    expect:
      values: {{output: {lst(np.concatenate(o), 8)}, skipped: [0, 0, 0, 0, 0, 0]}}
    tolerance: {{absolute: 1e-5, relative: 1e-4}}""")
# 3. skip: one head of 1, all probability on one key.
emit("""  - name: keys of little probability are skipped and what they had is reported
    operator: KeyAttention
    attributes: {num_heads: 1, head_size: 1, scale: 1.0, skip: 0.001, output_rank: 2}
    inputs:
      query: {shape: [1, 1], values: [1]}
      cache: {shape: [1, 16], values: [10, 1, 1, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]}
      sequences: {shape: [1, 8], dtype: int32, values: [0, 1, 0, 4, 0, 0, 0, 0]}
      shared_slots: {shape: [4], dtype: int32, values: [0, 1, 2, 3]}
      value_weight: {shape: [1, 1, 1, 16], values: [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]}
    outputs: [output, skipped]
    expect:
""" + (lambda p: f"      values: {{output: [{2*(10*p[0]+9*p[3])/p.sum():.9g}], skipped: [{(p[1]+p[2])/p.sum():.9g}]}}")(np.exp(np.array([10., 1, 1, 9]) - 10)) + """
    tolerance: {absolute: 1e-5, relative: 1e-4}""")
# 4. wide fold.
wk = np.round(np.concatenate([np.eye(2), r3(2, 2, scale=.6)], 1), 3); wv = r3(2, 4)
wkv = wk.T @ np.linalg.solve(wk @ wk.T, wv)
emit(f"""  - name: values out of keys that are wider than the layer's input
    operator: KeyAttention
    attributes: {{num_heads: 2, head_size: 2}}
    fold:
      constants:
        key_weight: {{shape: [2, 4], values: {lst(wk)}}}
        value_weight: {{shape: [2, 4], values: {lst(wv)}}}
    expect:
      values:
        value_weight: {lst(panels_cols(wkv, 2), 12)}
        value_bias: [0, 0, 0, 0]
    tolerance: {{absolute: 1e-10, relative: 1e-10}}
  - name: keys of rank 1 leave nothing to compute values from
    operator: KeyAttention
    attributes: {{num_heads: 1, head_size: 2}}
    fold:
      constants:
        key_weight: {{shape: [2, 2], values: [1, 2, 2, 4]}}
        value_weight: {{shape: [2, 2], seed: 1}}
    expect: {{refused: singular}}
  - name: keys narrower than the input leave too little
    operator: KeyAttention
    attributes: {{num_heads: 1, head_size: 1}}
    fold:
      constants:
        key_weight: {{shape: [2, 1], seed: 1}}
        value_weight: {{shape: [2, 1], seed: 2}}
    expect: {{refused: has fewer columns than rows}}
  - name: keys that float32 holds too roughly
    operator: KeyAttention
    attributes: {{num_heads: 1, head_size: 2}}
    fold:
      constants:
        key_weight: {{shape: [2, 2], values: [1, 1, 1, 1.000001]}}
        value_weight: {{shape: [2, 2], values: [1, 0, 0, 1]}}
    expect: {{refused: 'for float32; the key weight has a condition number of about 4e+06'}}
  - name: keys that float16 holds too roughly
    operator: KeyAttention
    attributes: {{num_heads: 1, head_size: 2, storage: float16}}
    fold:
      constants:
        key_weight: {{shape: [2, 2], values: [1, 1, 1, 1.01]}}
        value_weight: {{shape: [2, 2], values: [1, 0, 0, 1]}}
    expect: {{refused: for float16}}""")
# 5. InputAttention's fold.
wk, wv = r3(3, 2), r3(3, 1)
emit(f"""  - name: weights in panels
    operator: InputAttention
    attributes: {{num_heads: 2, kv_num_heads: 1, head_size: 2, value_size: 1}}
    fold:
      constants:
        key_weight: {{shape: [3, 2], values: {lst(wk)}}}
        value_weight: {{shape: [3, 1], values: {lst(wv)}}}
    expect:
      values:
        key_weight: {lst(panels_rows(wk, 1))}
        value_weight: {lst(panels_cols(wv, 1))}
    tolerance: {{absolute: 0, relative: 0}}""")
w1 = np.round(np.eye(3) + r3(3, 3, scale=.4), 3)
emit(f"""  - name: weights for keys of another layer in place of inputs
    operator: InputAttention
    attributes: {{num_heads: 2, kv_num_heads: 1, head_size: 2, value_size: 1}}
    fold:
      constants:
        key_weight: {{shape: [3, 2], values: {lst(wk)}}}
        value_weight: {{shape: [3, 1], values: {lst(wv)}}}
        base_key_weight: {{shape: [3, 3], values: {lst(w1)}}}
    expect:
      values:
        key_weight: {lst(panels_rows(np.linalg.solve(w1, wk), 1), 12)}
        value_weight: {lst(panels_cols(np.linalg.solve(w1, wv), 1), 12)}
    tolerance: {{absolute: 1e-10, relative: 1e-10}}
  - name: keys of another layer that are singular
    operator: InputAttention
    attributes: {{num_heads: 1, head_size: 2}}
    fold:
      constants:
        key_weight: {{shape: [2, 2], seed: 1}}
        value_weight: {{shape: [2, 2], seed: 2}}
        base_key_weight: {{shape: [2, 2], values: [1, 1, 1, 1]}}
    expect: {{refused: singular}}""")
