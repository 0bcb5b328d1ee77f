"""A folder of a trained model whose linear layers and embedding have the numbers of one of
llama.cpp's types, as float32: rounded as its tools do it, and opened like any export. It
generates nothing: the folder is among the settings that it says.
"""

import os
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import cached
import gguf_model


def matrices(graph):
    """Constant matrices by name: whether their columns, and not their rows, are summed over."""
    constants = {t.name: t for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT and len(t.dims) == 2}
    turned = {n.output[0]: n.input[0] for n in graph.node if n.op_type == "Transpose" and n.input[0] in constants}
    found = {}
    for node in graph.node:
        if node.op_type == "Gather" and node.input[0] in constants:
            found[node.input[0]] = "embedding"
        elif node.op_type == "MatMul" and node.input[1] in constants:
            found.setdefault(node.input[1], "first axis")
        elif node.op_type == "MatMul" and node.input[1] in turned:
            found.setdefault(turned[node.input[1]], "last axis")
    return {constants[name].name: (constants[name], role) for name, role in found.items()}


def write(folder, kind, to):
    """Writes the rounded model of a folder into another, which exists."""
    for path in Path(folder).iterdir():
        if path.is_file() and path.suffix != ".safetensors":
            shutil.copy(path, to)
    (to / "onnx").mkdir()
    model = onnx.load(Path(folder) / "onnx" / "model.onnx")
    vocabulary = max(d for t, role in matrices(model.graph).values() for d in t.dims)
    for tensor, role in matrices(model.graph).values():
        values = numpy_helper.to_array(tensor)
        logits = role == "embedding" or vocabulary in tensor.dims
        qtype = gguf_model.type_of(kind, gguf_model.EMBEDDING if logits else tensor.name)
        rows = values.T if role == "first axis" else values
        made = gguf_model.rounded(rows, qtype)
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(made.T if role == "first axis" else made), tensor.name))
    onnx.save(model, to / "onnx" / "model.onnx")


class Peer:
    def __init__(self, subject, way, threads):
        name, _, folder = subject.partition("@")
        made = cached.folder(f"dequantized-{way}", name, version("gguf"), [gguf_model, sys.modules[__name__]], lambda _, to: write(folder, way, to))
        self.settings = {"folder": os.fspath(made)}
        self.versions = {"gguf": version("gguf"), "onnx": onnx.__version__}

    def run(self, request):
        raise NotImplementedError("the folder is all that there is")
