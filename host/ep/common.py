"""What the scripts of this folder share. They need the environment of the tests, and

    GRAFT_BINARY    the command graft
    GRAFT_EP        libgraft_ep.so
    MODEL           all-minilm-l6-v2.onnx, which tests/zoo/fetch.sh brings
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "host", "python"))

import numpy as np
import onnxruntime as ort

import graft

CPU = ["CPUExecutionProvider"]
VOCAB = 20000
LIB = os.environ["GRAFT_EP"]
MINILM = os.environ["MODEL"]

registered = set()

def register(name="graft"):
    if name in registered:
        return
    registered.add(name)
    ort.register_execution_provider_library(name, LIB)

def options(name="graft", **o):
    so = ort.SessionOptions()
    devices = [d for d in ort.get_ep_devices() if d.ep_name == name]
    so.add_provider_for_devices(devices[:1], {})
    for k, v in o.items():
        setattr(so, k, v)
    return so

def inputs(session, rows, n, seen=True, seed=1):
    rng = np.random.default_rng(seed)
    lengths = np.exp(rng.normal(0, 0.5, rows))
    lengths = np.maximum(1, np.round(lengths / lengths.max() * n)).astype(np.int64)
    mask = (np.arange(n) < lengths[:, None]).astype(np.int64) if seen else np.ones((rows, n), np.int64)
    return {i.name: mask if "mask" in i.name else np.zeros_like(mask) if "type" in i.name else rng.integers(1, VOCAB, mask.shape)
            for i in session.get_inputs()}
