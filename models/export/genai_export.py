"""Graphs as the model builder of onnxruntime-genai writes them."""

import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import onnx

import seeded
import store
import subjects

# Fixture: subject, precision.
TINY = {"llama": ("llama", "fp32"), "llama-int4": ("llama", "int4")}


def quantised(tensor):
    """Weights of four bits and their scales: quantised, so not found by value.

    The bytes of a MatMulNBits weight are random; with scales around
    0.025 and the zero point in the middle they are weights of deviation 0.12.
    """
    if tensor.data_type == onnx.TensorProto.UINT8 and len(tensor.dims) == 3:
        return seeded.Seeded(tensor.name, tuple(tensor.dims), "bytes", 0, 0)
    if tensor.name.endswith(("_scales", ".scales", "_scale")):
        return seeded.Seeded(tensor.name, tuple(tensor.dims), "uniform", 0.025, 0.005)
    return None


def run(fixture):
    subject, precision = TINY[fixture]
    model, parameters = subjects.make(subject, "eager")
    with tempfile.TemporaryDirectory() as scratch:
        source, target = Path(scratch) / "source", Path(scratch) / "target"
        model.save_pretrained(source)
        subprocess.run(
            [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", source, "-o", target,
             "-p", precision, "-e", "cpu", "-c", Path(scratch) / "cache"], check=True)
        made_by = {p: version(p) for p in ("onnxruntime-genai", "transformers", "torch", "onnx")}
        store.save(
            target / "model.onnx", parameters, "genai", fixture, subjects.published(subject, model), made_by,
            quantised=quantised if precision == "int4" else None, keep=(r"^(cos|sin)_cache$",))
