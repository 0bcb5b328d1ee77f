"""A rewritten graph, parted: its structure, and a file of weights that ONNX Runtime maps.

Only the parts of an ONNX file that hold weights are read; everything else is handed on as it came.
"""

from __future__ import annotations

import os
from typing import Iterator, NamedTuple

from ._errors import Error

# The numbers of fields in onnx.proto.
_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_INITIALIZER = 1, 5
_NODE_ATTRIBUTE = 5
_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS = 6, 11
_TENSOR_RAW, _TENSOR_EXTERNAL, _TENSOR_LOCATION = 9, 13, 14
_ENTRY_KEY, _ENTRY_VALUE = 1, 2

_BYTES = 2  # the wire type of what has a length

ALIGNMENT = 64
"""Bytes at a multiple of which every weight begins."""

SMALLEST = 4096
"""Weights of fewer bytes stay in the structure: ONNX Runtime reads them to infer shapes."""

ROOT = "/"
"""The folder to which the names of files in a structure are relative."""


class Payload(NamedTuple):
    """Bytes of a weight: of the graph's own file where path is None."""

    path: str | None
    offset: int
    length: int


class Structure(NamedTuple):
    """A graph whose large weights lie in a file at target, in this order."""

    model: bytes
    weights: list[Payload]
    size: int  # of that file


def _varint(b, i: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        x = b[i]
        i += 1
        value |= (x & 127) << shift
        if x < 128:
            return value, i
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _fields(b, begin: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """The fields of a message: number, wire type, and where it, its value and its end are. A number's value is in place of its beginning."""
    i = begin
    while i < end:
        start = i
        tag, i = _varint(b, i)
        wire = tag & 7
        if wire == 0:
            value, i = _varint(b, i)
            yield tag >> 3, wire, start, value, i
            continue
        if wire == _BYTES:
            length, i = _varint(b, i)
        elif wire == 1:
            length = 8
        elif wire == 5:
            length = 4
        else:
            raise ValueError(f"wire type {wire}")
        if i + length > end:
            raise ValueError("a field is longer than its message")
        yield tag >> 3, wire, start, i, i + length
        i += length


def _number(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def _field(number: int, value: bytes) -> bytes:
    return _number(number << 3 | _BYTES) + _number(len(value)) + value


class Splitter:
    """Parts a graph. folder is where the files are that it refers to; owned says of a path whether its weights go to the target too."""

    def __init__(self, graph, folder: str, target: str, owned) -> None:
        self.graph, self.folder, self.owned = graph, folder, owned
        self.target = os.fsencode(os.path.relpath(target, ROOT))
        self.weights: list[Payload] = []
        self.size = 0
        self.read = None  # of a payload that stays in the structure

    def split(self, read) -> Structure:
        """read gives the bytes of a payload."""
        self.read = read
        try:
            model = self._message(0, len(self.graph), {_MODEL_GRAPH: self._graph})
        except (ValueError, IndexError, KeyError) as e:
            raise Error(f"found no ONNX graph: {e}", needed="what graft graph writes", fix="remove the file", kind="cache") from e
        return Structure(model, self.weights, self.size)

    def _message(self, begin: int, end: int, inner) -> bytes:
        b, parts, done = self.graph, [], begin  # what is not changed is copied in one piece
        for number, wire, start, value, stop in _fields(b, begin, end):
            change = inner.get(number) if wire == _BYTES else None
            if change is None:
                continue
            new = change(value, stop)
            if new is not None:
                parts += [b[done:start], _field(number, new)]
                done = stop
        parts.append(b[done:end])
        return b"".join(parts)

    def _graph(self, begin: int, end: int) -> bytes:
        return self._message(begin, end, {_GRAPH_NODE: self._node, _GRAPH_INITIALIZER: self._tensor})

    def _node(self, begin: int, end: int) -> bytes | None:
        for number, wire, _, value, stop in _fields(self.graph, begin, end):
            if number == _NODE_ATTRIBUTE and wire == _BYTES and self._has_graph(value, stop):
                return self._message(begin, end, {_NODE_ATTRIBUTE: self._attribute})
        return None

    def _has_graph(self, begin: int, end: int) -> bool:
        return any(number in (_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS) for number, *_ in _fields(self.graph, begin, end))

    def _attribute(self, begin: int, end: int) -> bytes | None:
        if not self._has_graph(begin, end):
            return None
        return self._message(begin, end, {_ATTRIBUTE_GRAPH: self._graph, _ATTRIBUTE_GRAPHS: self._graph})

    def _tensor(self, begin: int, end: int) -> bytes | None:
        b, rest, done = self.graph, [], begin
        raw, external = None, {}
        for number, wire, start, value, stop in _fields(b, begin, end):
            if number == _TENSOR_RAW and wire == _BYTES:
                raw = (value, stop)
            elif number == _TENSOR_EXTERNAL and wire == _BYTES:
                entry = {n: bytes(b[v:s]) for n, w, _, v, s in _fields(b, value, stop) if w == _BYTES}
                external[entry.get(_ENTRY_KEY, b"")] = entry.get(_ENTRY_VALUE, b"")
            elif number != _TENSOR_LOCATION:
                continue
            rest.append(b[done:start])
            done = stop
        rest.append(b[done:end])
        described = b"".join(rest)
        if external:
            path = os.path.join(self.folder, os.fsdecode(external[b"location"]))
            payload = Payload(path, int(external.get(b"offset", b"0")), int(external[b"length"]))
            if not self.owned(path):
                return described + self._at(os.fsencode(os.path.relpath(path, ROOT)), payload.offset, payload.length)
        elif raw is not None and raw[1] - raw[0] >= SMALLEST:
            payload = Payload(None, raw[0], raw[1] - raw[0])
        else:
            return None
        if payload.length < SMALLEST:
            return described + _field(_TENSOR_RAW, self.read(payload))
        self.size += -self.size % ALIGNMENT
        at = self.size
        self.weights.append(payload)
        self.size += payload.length
        return described + self._at(self.target, at, payload.length)

    @staticmethod
    def _at(location: bytes, offset: int, length: int) -> bytes:
        entries = ((b"location", location), (b"offset", b"%d" % offset), (b"length", b"%d" % length))
        external = b"".join(_field(_TENSOR_EXTERNAL, _field(_ENTRY_KEY, k) + _field(_ENTRY_VALUE, v)) for k, v in entries)
        return external + _number(_TENSOR_LOCATION << 3) + b"\x01"
