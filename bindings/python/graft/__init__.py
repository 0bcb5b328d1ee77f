"""Makes ONNX models run faster in ONNX Runtime; the model file, the program and its answers stay as they are.

    import graft

    graft.enable()  # sessions that onnxruntime makes from now on are patched

A session that cannot be patched is made as without graft, and a warning says why. https://github.com/opgraft/graft has the manual.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence

from . import _sessions
from ._errors import Error
from ._results import Comparison, Inspection, Result, ab, inspect
from ._sessions import Session, Status

__all__ = ["Comparison", "Error", "Inspection", "Result", "Session", "Status", "ab", "disable", "enable", "enabled", "inspect", "status"]


def enable(*, padding: str | None = None, plugins: Sequence[str] | None = None, except_: Sequence[str] | None = None, strict: bool = False,
           logger: logging.Logger | None = None) -> None:
    """Patches every session that onnxruntime.InferenceSession makes from now on, on the CPU. Calling it again replaces the options.

    padding says what becomes of tokens that the attention mask hides: "exact", which is the default, leaves them out where no output
    depends on them; "ignore" leaves them out, and outputs are zeros there; "keep" computes them. plugins are the only ones to use, and
    except_ those never to use, by name. With strict, a session that cannot be patched is an Error, and so is an operator that fails.
    logger is told of every session at level INFO, and warned of each cause of failure once; it is logging.getLogger("graft") without.

    Error says that an option is wrong, that onnxruntime is missing or too old, or, with strict, that nothing can be patched here.
    """
    _sessions.enable(_sessions.settings(padding=padding, plugins=plugins, except_=except_, strict=strict, logger=logger))


def disable() -> None:
    """Undoes enable. Sessions that are there stay as they are."""
    _sessions.disable()


@contextlib.contextmanager
def enabled(*, padding: str | None = None, plugins: Sequence[str] | None = None, except_: Sequence[str] | None = None, strict: bool = False,
            logger: logging.Logger | None = None) -> Iterator[None]:
    """enable for the sessions that the block makes, in this thread or task; what holds elsewhere stays as it is."""
    with _sessions.inside(_sessions.settings(padding=padding, plugins=plugins, except_=except_, strict=strict, logger=logger)):
        yield


def status() -> Status:
    """What became of the sessions that were made."""
    return _sessions.status()


_sessions.watch()
