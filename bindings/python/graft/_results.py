"""graft inspect and graft ab, as objects."""

from __future__ import annotations

import contextlib
import html
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from . import _binary
from ._errors import Error


class Result(Mapping):
    """A JSON object of the command line. Its keys are attributes too."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data

    def __getitem__(self, key: str) -> Any:
        return _wrapped(self._data[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_data" not in self.__dict__:
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no {name}, only {', '.join(self._data)}") from None

    def __dir__(self):
        return [*super().__dir__(), *self._data]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._data!r})"

    def to_dict(self) -> dict[str, Any]:
        """The object as json.loads gives it."""
        return json.loads(json.dumps(self._data))


def _wrapped(value: Any) -> Any:
    if isinstance(value, dict):
        return Result(value)
    if isinstance(value, list):
        return [_wrapped(v) for v in value]
    return value


def _table(head: list[str], rows: list[list[Any]]) -> str:
    def row(tag: str, cells: list[Any]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(c))}</{tag}>" for c in cells) + "</tr>"

    return "<table><thead>" + row("th", head) + "</thead><tbody>" + "".join(row("td", r) for r in rows) + "</tbody></table>"


def _times(x: float | None) -> str:
    return "" if x is None else f"{x:.2f}x"


class Inspection(Result):
    """What graft recognises in a model, and what would replace it. docs/cli.md of graft describes its keys."""

    @property
    def replaced(self) -> int:
        """How many blocks would be replaced."""
        return sum("operator" in b for b in self._data.get("blocks") or [])

    def __repr__(self) -> str:
        d = self._data
        return f"<graft.Inspection of {d.get('model')}: {len(d.get('blocks') or [])} blocks, {self.replaced} would be replaced{_gain(d)}>"

    def _repr_html_(self) -> str:
        d = self._data
        rows: dict[tuple, int] = {}
        for b in d.get("blocks") or []:
            row = (b.get("kind", ""), b.get("operator", "stays as it is"), b.get("plugin", ""), _times(b.get("expected_speedup")), b.get("reason", ""))
            rows[row] = rows.get(row, 0) + 1
        title = f"{html.escape(str(d.get('model')))}: {len(d.get('blocks') or [])} blocks recognised, {self.replaced} would be replaced{html.escape(_gain(d))}"
        return f"<p>{title}</p>" + _table(["blocks", "kind", "operator", "plugin", "expected", "reason"], [[n, *row] for row, n in rows.items()])


def _gain(d: dict[str, Any]) -> str:
    speedup = (d.get("whole_model") or {}).get("speedup")
    return f", {_times(speedup)} expected for the whole model" if speedup else ""


class Comparison(Result):
    """Answers and times of two or more sets of operators. docs/cli.md of graft describes its keys."""

    def _sides(self) -> list[dict[str, Any]]:
        """The other sides than a, of each cell, with their lengths."""
        d = self._data
        if "cells" not in d:
            return [dict(d.get("b") or {}, lengths={}, parity=d.get("parity") or {}, speedup=d.get("speedup") or {}, a=d.get("a") or {})]
        return [dict(s, name=side.get("name"), lengths=c.get("lengths") or {}, a=c.get("a") or {})
                for c in d["cells"] for side, s in zip(d.get("sides") or [], c.get("sides") or [])]

    @property
    def equal(self) -> bool:
        """Whether all answers are equal, within the tolerance."""
        sides = self._sides()
        return bool(sides) and all((s.get("parity") or {}).get("ok", False) for s in sides)

    def _lines(self) -> list[list[str]]:
        lines = []
        for s in self._sides():
            speedup, parity = s.get("speedup") or {}, s.get("parity") or {}
            interval = speedup.get("ci95") or []
            sure = "" if speedup.get("significant") else "~"
            lines.append([_lengths(s["lengths"]), str(s.get("name", "")), f"{s['a'].get('median_ms', 0):.3f}", f"{s.get('median_ms', 0):.3f}",
                          sure + _times(speedup.get("median")), " to ".join(f"{x:.2f}" for x in interval), "equal" if parity.get("ok") else "differ"])
        return lines

    def __repr__(self) -> str:
        a = (self._data.get("a") or {}).get("name")
        lines = [f"{(size + ': ') if size else ''}{name} is {speedup} as fast as {a}, answers {answers}"
                 for size, name, _, _, speedup, _, answers in self._lines()]
        return f"<graft.Comparison of {self._data.get('model')}: {'; '.join(lines)}>"

    def _repr_html_(self) -> str:
        a = (self._data.get("a") or {}).get("name")
        head = ["size", "operators", f"{a}, ms", "ms", f"times as fast as {a}", "95 %", "answers"]
        return f"<p>{html.escape(str(self._data.get('model')))}</p>" + _table(head, self._lines())


def _lengths(lengths: Any) -> str:
    if isinstance(lengths, dict):
        return ", ".join(f"{k}={v}" for k, v in lengths.items())
    return ", ".join(str(x) for x in lengths)


def inspect(model: Any, **options: Any) -> Inspection:
    """graft inspect of a model: a path, bytes, or a session.

    options are flags of the command by name: inspect(path, plugins=["flash-decode"], padding="ignore", profile=True).
    """
    with _path(model) as path:
        return Inspection(_json(["inspect", path, *_flags(options)], (0, 5)))


def ab(model: Any, feeds: Mapping[str, Any] | None = None, **options: Any) -> Comparison:
    """graft ab of a model: a path, bytes, or a session. It compares answers first, then times.

    feeds are the inputs, as for InferenceSession.run; those that are not given are synthetic. options are flags of the
    command by name: ab(session, feeds, rounds=30), ab(path, dim={"batch": [1, 8]}, b=["flash-decode", "auto"]).
    """
    with contextlib.ExitStack() as stack:
        path = stack.enter_context(_path(model))
        flags = _flags(options)
        if feeds is not None:
            flags += ["--inputs", _saved(stack, feeds)]
        return Comparison(_json(["ab", path, *flags], (0, 5)))


@contextlib.contextmanager
def _path(model: Any) -> Iterator[str]:
    data = None
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
    elif isinstance(model, bytes):
        data = model
    else:
        path, data = getattr(model, "_model_path", None), getattr(model, "_model_bytes", None)
        if path is None and data is None:
            raise Error(f"found {type(model).__name__}", needed="a path, bytes or a session")
    if data is None:
        yield os.path.abspath(path)  # never taken for a flag
        return
    with tempfile.TemporaryDirectory(prefix="graft-") as folder:
        path = os.path.join(folder, "model.onnx")
        with open(path, "wb") as f:
            f.write(data)
        yield path


def _saved(stack: contextlib.ExitStack, feeds: Mapping[str, Any]) -> str:
    import numpy

    arrays = {}
    for name, value in feeds.items():
        a = value.numpy() if hasattr(value, "numpy") else numpy.asarray(value)
        if a.dtype.hasobject or a.dtype.kind in "USV":
            raise Error(f"input {name}: found elements of type {a.dtype}", needed="numbers or booleans")
        arrays[name] = a
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="graft-"))
    path = os.path.join(folder, "inputs.npz")
    with open(path, "wb") as f:
        _savez(f, arrays)
    return path


def _savez(f, arrays: dict[str, Any]) -> None:
    """numpy.savez, which takes no array of the name "file"."""
    import zipfile

    import numpy

    with zipfile.ZipFile(f, "w", zipfile.ZIP_STORED) as z:
        for name, a in arrays.items():
            with z.open(name + ".npy", "w", force_zip64=True) as entry:
                numpy.lib.format.write_array(entry, a, allow_pickle=False)


def _flags(options: dict[str, Any]) -> list[str]:
    flags: list[str] = []
    for name, value in options.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if name in ("o", "output", "inputs", "save", "report", "write_plan"):
            raise Error(f"found the option {name}", needed="an option that changes no output", fix="use the command line for it")
        if value is None or value is False:
            continue
        if value is True:
            flags.append(flag)
        elif isinstance(value, Mapping):
            for k, v in value.items():
                flags += [flag, f"{k}={_joined(v)}"]
        else:
            flags += [flag, _joined(value)]
    return flags


def _joined(value: Any) -> str:
    return ",".join(str(v) for v in value) if isinstance(value, (list, tuple)) else str(value)


def _json(arguments: list[str], codes: tuple[int, ...]) -> dict[str, Any]:
    binary = _binary.find()
    out = _binary.call(binary, [*arguments, "-o", "json", "-q"], None, _binary.environment())
    if out.code in codes and out.out:
        try:
            return json.loads(out.out)
        except ValueError as e:
            raise Error(f"graft {arguments[0]} wrote no JSON: {e}", path=binary, needed="a command of this version of graft") from e
    try:
        said = json.loads(out.err.decode("utf-8", "replace").strip().splitlines()[-1])
        raise Error(said.get("found") or said["error"], path=said.get("path", ""), needed=said.get("needed", ""), fix=said.get("fix", ""))
    except (ValueError, IndexError, KeyError, AttributeError):
        text = " ".join(out.err.decode("utf-8", "replace").split())[:1000]
        raise Error(text.removeprefix("graft: ") or f"graft {arguments[0]} ended with {out.code}") from None
