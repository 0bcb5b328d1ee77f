"""What the cases have in common: models, inputs, commands that misbehave."""

import contextlib
import glob
import logging
import os
import shutil
import stat
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.join(TREE, "bindings", "python"))

import graft  # noqa: E402

BINARY = os.environ["GRAFT_BINARY"]
MODEL = os.path.join(TREE, "models", "tiny-gpt2", "model.onnx")
MERGED = os.path.join(TREE, "models", "g2p", "decoder_model_merged.onnx")
ENCODER = os.path.join(TREE, "models", "g2p", "encoder_model.onnx")
EMBEDDER = os.path.join(TREE, "models", "encoders", "embedder", "onnx", "model.onnx")
CPU = ["CPUExecutionProvider"]
VERSION = tuple(int(x) for x in ort.__version__.split(".")[:2])

LENGTHS = {"batch": 2, "past_decoder": 4, "past_encoder": 6, "encoder_sequence": 6, "past": 5, "sequence": 3, "decoder_sequence": 3}
TYPES = {"tensor(int64)": np.int64, "tensor(float)": np.float32, "tensor(bool)": np.bool_}


def length(axis):
    if isinstance(axis, int):
        return axis
    if "+" in axis or "total" in axis:
        return LENGTHS["past"] + LENGTHS["sequence"]
    return next(n for name, n in LENGTHS.items() if axis.startswith(name))


def feeds(session, seed=0):
    """Random inputs of a model as optimum exports them."""
    rng = np.random.default_rng(seed)
    made = {}
    for i in session.get_inputs():
        shape, kind = [length(a) for a in i.shape], TYPES[i.type]
        if "mask" in i.name:
            value = np.ones(shape, kind)
            value[0, -1 if "attention_mask" == i.name and not has_past(session) else 0] = 0
        elif kind is np.int64:
            value = np.zeros(shape, kind) if "type" in i.name else rng.integers(0, 30, shape)
        elif kind is np.bool_:
            value = np.ones(shape, kind)
        else:
            value = rng.standard_normal(shape).astype(kind)
        made[i.name] = value
    return made


def has_past(session):
    return any("past" in i.name for i in session.get_inputs())


def plain(model, *arguments, **keywords):
    """A session without graft."""
    before = graft._sessions._process.enabled
    graft.disable()
    try:
        return ort.InferenceSession(model, *arguments, providers=CPU, **keywords)
    finally:
        graft._sessions._process.enabled = before


def agree(a, b):
    """Whether outputs agree as docs/same-answers.md says, and are something."""
    assert len(a) == len(b) and any(x.size for x in a)
    for x, y in zip(a, b):
        assert x.shape == y.shape and x.dtype == y.dtype, (x.shape, y.shape)
        assert np.isfinite(x).all()
        np.testing.assert_allclose(y, x, rtol=1e-4, atol=1e-5)
    return True


def differ(a, b):
    return any(x.shape != y.shape or not np.allclose(x, y, rtol=1e-3, atol=1e-3) for x, y in zip(a, b))


def last():
    return graft.status().sessions[-1]


class Warnings(logging.Handler):
    """Notes what graft warns of."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []
        logging.getLogger("graft").addHandler(self)

    def emit(self, record):
        self.texts.append(record.getMessage())


@contextlib.contextmanager
def script(text):
    """GRAFT_BINARY is a shell script, in which $GRAFT_REAL is the command itself."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "graft")
        with open(path, "w") as f:
            f.write("#!/bin/sh\n" + text + "\n")
        os.chmod(path, stat.S_IRWXU)
        os.environ["GRAFT_REAL"] = BINARY
        with environment(GRAFT_BINARY=path):
            yield folder


@contextlib.contextmanager
def environment(**values):
    before = {name: os.environ.get(name) for name in values}
    put(values)
    try:
        yield
    finally:
        put(before)


def put(values):
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextlib.contextmanager
def copied(model=MODEL):
    """A copy of a model, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        yield shutil.copy(model, os.path.join(folder, "model.onnx"))


def perturbed(model, path):
    """Another version of a model: its largest weight is doubled."""
    m = onnx.load(model)
    largest = max(m.graph.initializer, key=lambda t: len(t.raw_data))
    largest.raw_data = (2 * np.frombuffer(largest.raw_data, np.float32)).tobytes()
    onnx.save(m, path)


def stored():
    """The files in the cache of graphs."""
    return sorted(glob.glob(os.path.join(graft._cache.user_folder(), "*")))


def raises(kind, text, call, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
    except kind as e:
        assert text in str(e), f"found {e!r}, needed {text!r}"
        return e
    raise AssertionError(f"no {kind.__name__} with {text!r}")
