"""Takes learned weights out of an exported graph.

The model was filled by seeded.initialise before it was exported, so each weight
is recognised by its values: a whole parameter, its transpose, or rows or columns
of parameters put side by side (what an optimizer packs). A tensor that is not
made of parameters (mask, rotary table, shape) is kept as the exporter wrote it.
"""

from collections import namedtuple

import numpy as np
import onnx
from onnx import numpy_helper

from seeded import Seeded

Kept = namedtuple("Kept", "name dims data_type count even")  # even: all values are equal
FLOATS = {onnx.TensorProto.FLOAT}
PREFIX = 4  # values that identify a row, a column or a run


class Parameters:
    """An index of parameters by content."""

    def __init__(self, seeded, seed=0):
        self.seeded = dict(seeded)
        self.values = {n: s.values(seed) for n, s in self.seeded.items()}
        self.whole = {}
        self.vectors = None
        for name, array in self.values.items():
            self.whole.setdefault(self._key(array), []).append((name, False))
            if array.ndim == 2:
                self.whole.setdefault(self._key(array.T), []).append((name, True))

    @staticmethod
    def _key(array):
        flat = array.reshape(-1) if array.flags.c_contiguous else array[:1].reshape(-1)
        return array.size, flat[:PREFIX].tobytes()

    def match(self, array):
        """[(name, transpose, slice or None)], axis: how array is made, or None."""
        if array.size < PREFIX:
            return None
        array = np.ascontiguousarray(array)
        for name, transpose in self.whole.get(self._key(array), []):
            value = self.values[name].T if transpose else self.values[name]
            if np.array_equal(array.reshape(-1), value.reshape(-1)):
                return [(name, transpose, None)], 0
        return self._packed(array)

    def _packed(self, array):
        if self.vectors is None:
            self.vectors = {}
            for name, value in self.values.items():
                for transpose in (False, True) if value.ndim == 2 else ():
                    rows = value.T if transpose else value
                    if rows.shape[1] < PREFIX:
                        continue
                    for i, prefix in enumerate(np.ascontiguousarray(rows[:, :PREFIX])):
                        self.vectors.setdefault(prefix.tobytes(), (name, transpose, i))
        if array.ndim == 1:
            return self._run(array)
        if array.ndim == 2:
            for axis in (0, 1):
                parts = self._rows(array if axis == 0 else array.T, axis)
                if parts:
                    return parts, axis
        return None

    def _rows(self, array, axis):
        """Rows of array as runs of rows of parameters (seen from the axis)."""
        if array.shape[1] < PREFIX:
            return None
        parts, i = [], 0
        while i < len(array):
            found = self.vectors.get(np.ascontiguousarray(array[i, :PREFIX]).tobytes())
            if not found and parts:
                raise SystemExit(f"a tensor of shape {array.shape} is made of parameters only in part: {parts}")
            if not found:
                return None
            name, transpose, start = found
            source = self.values[name].T if transpose else self.values[name]
            if source.shape[1] != array.shape[1]:
                return None
            n = min(len(source) - start, len(array) - i)
            equal = (source[start : start + n] == array[i : i + n]).all(axis=1)
            n = n if equal.all() else int(np.argmin(equal))
            if n == 0:
                return None
            # A column run of the packed tensor is a row run of its transpose.
            turned = transpose if axis == 0 else not transpose
            whole = start == 0 and n == len(source)
            parts.append((name, turned, None if whole else (axis, start, start + n)))
            i += n
        return parts

    def _run(self, array):
        """A vector as runs of one-dimensional parameters, with runs of zeros between."""
        parts, i, named = [], 0, False
        while i < len(array):
            best = None
            for name, value in self.values.items():
                if value.ndim != 1 or len(array) - i < PREFIX:
                    continue
                for start in np.flatnonzero(value == array[i]):
                    n = min(len(value) - start, len(array) - i)
                    equal = value[start : start + n] == array[i : i + n]
                    n = n if equal.all() else int(np.argmin(equal))
                    if n >= PREFIX and (best is None or n > best[0]):
                        best = n, name, int(start), len(value)
            if best is None:
                zero = array[i:] == 0
                n = len(zero) if zero.all() else int(np.argmin(zero))
                if n < PREFIX:
                    if named:
                        raise SystemExit(f"a tensor of {len(array)} values is made of parameters only in part: {parts}")
                    return None
                self.seeded.setdefault(f"zeros-{n}", Seeded(f"zeros-{n}", (n,), "constant", 0, 0))
                parts.append((f"zeros-{n}", False, None))
            else:
                n, name, start, size = best
                named = True
                parts.append((name, False, None if (start, n) == (0, size) else (0, start, start + n)))
            i += n
        return (parts, 0) if named else None


def instruct(tensor, seeded, parts, axis):
    """Replaces a tensor's data by the instruction that fills it (models/seed.go)."""
    for field in ("raw_data", "float_data", "int32_data", "int64_data", "uint64_data", "double_data"):
        tensor.ClearField(field)
    del tensor.external_data[:]
    tensor.data_location = onnx.TensorProto.EXTERNAL

    def add(key, value):
        tensor.external_data.add(key=key, value=str(value))

    add("location", "seed")
    if len(parts) > 1 and axis:
        add("axis", axis)
    for name, transpose, cut in parts:
        s = seeded[name]
        add("name", s.name)
        add("shape", ",".join(map(str, s.shape)))
        add("distribution", s.distribution)
        if s.distribution != "bytes":
            add("mean", f"{s.mean:g}")
        if s.distribution not in ("bytes", "constant"):
            add("scale", f"{s.scale:g}")
        if transpose:
            add("transpose", 1)
        if cut:
            add("slice", ":".join(map(str, cut)))


def tensors(graph):
    """All tensors with data in a graph, its nodes' attributes and its subgraphs."""
    yield from graph.initializer
    yield from node_tensors(graph.node)


def node_tensors(nodes):
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                yield from tensors(attribute.g)
            for graph in attribute.graphs:
                yield from tensors(graph)


def model_tensors(model):
    yield from tensors(model.graph)
    for function in model.functions:
        yield from node_tensors(function.node)


def take_out(model, seeded, seed=0, quantised=None):
    """Takes the learned weights out of model; returns (used names, kept tensors).

    quantised(tensor) may name a Seeded for tensors whose values cannot be found
    among the parameters because the exporter quantised them.
    """
    parameters = Parameters(seeded, seed)
    learned, kept = set(), []
    for tensor in model_tensors(model):
        special = quantised(tensor) if quantised else None
        if special:
            instruct(tensor, {special.name: special}, [(special.name, False, None)], 0)
            learned.add(special.name)
            continue
        if tensor.data_type in FLOATS:
            made = parameters.match(numpy_helper.to_array(tensor))
            if made:
                instruct(tensor, parameters.seeded, *made)
                learned.update(name for name, _, _ in made[0] if name in seeded)
                continue
        array = numpy_helper.to_array(tensor)
        kept.append(Kept(tensor.name, list(tensor.dims), tensor.data_type, array.size,
                         array.size > 0 and bool((array == array.flat[0]).all())))
    return learned, kept
