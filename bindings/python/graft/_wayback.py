"""The way back: where an operator of a patched session fails, the run is repeated in a session of the program's model, which answers from then on.

The objects are those that the program has. Runs go to the other session with the same arguments; what is bound to an IOBinding is bound to the other session
too, and the IOBinding gives the outputs of that.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy

from . import _cache, _options
from ._errors import short

if TYPE_CHECKING:
    from ._sessions import Session, Settings

# What ONNX Runtime says where an operator failed, and not the program's inputs.
_OPERATOR_FAILED = "Non-zero status code returned while running"
_ENDED = "terminate flag"

# Bytes of an element, by ONNX's numbers of types. No type that is not listed has more than one.
_BYTES = {1: 4, 4: 2, 5: 2, 6: 4, 7: 8, 10: 2, 11: 8, 12: 4, 13: 8, 14: 8, 15: 16, 16: 2}


class State:
    """What a patched session needs beside it."""

    __slots__ = ("session", "settings", "entry", "path", "options", "arguments", "keywords", "lock", "unpatched", "plain")

    def __init__(self, session: Session, settings: Settings, entry: _cache.Entry, path: str | None, options, arguments: tuple, keywords: dict) -> None:
        self.session, self.settings, self.entry = session, settings, entry
        self.path, self.options = path, options  # of the model, and as the program's were: both may mean something else by then
        self.arguments, self.keywords = arguments, keywords  # of _create_inference_session
        self.lock = threading.Lock()
        self.unpatched = None  # a session of the program's model, made when an operator fails
        self.plain = None  # the same, once it answered: from then on it runs


def wrappers(collection, create: Callable, reverted: Callable[[State], None]) -> dict[tuple[type, str], Callable]:
    """What takes the place of methods, by class and name. create makes a session, and reverted notes that one has taken the way back."""
    cls, C = collection.InferenceSession, collection.C
    run, bound_run, vector_run, async_run = (
        getattr(cls, name) for name in ("run", "run_with_iobinding", "run_with_ortvaluevector", "run_async"))
    bind = collection.IOBinding.__init__
    Recorded = _recorded(C)

    def again(self, state: State, failure: Exception, call: Callable) -> Any:
        """Repeats a run that failed, and stays there if that answers. What the program's model refuses too is the program's own error."""
        other = _unpatched(cls, create, self, state)
        if other is None:
            raise failure
        result = call(other)
        with state.lock:
            first, state.plain = state.plain is None, other
        if first:
            state.session.reverted = short(failure)
            reverted(state)
        return result

    def like(original: Callable, call: Callable, possible: Callable = lambda *_, **__: True) -> Callable:
        """A run in a patched session, which call repeats in another where that is possible."""
        @functools.wraps(original)
        def wrapper(self, *arguments, **keywords):
            state = self.__dict__.get("_graft")
            if state is None:
                return original(self, *arguments, **keywords)
            if state.plain is not None:
                return call(self, state.plain, *arguments, **keywords)
            try:
                return original(self, *arguments, **keywords)
            except Exception as e:
                state = self.__dict__.get("_graft")  # ONNX Runtime may have made the session anew
                if state is None or not _operator_failed(str(e)) or not possible(*arguments, **keywords):
                    raise
                failure = e
            return again(self, state, failure, lambda other: call(self, other, *arguments, **keywords))

        return wrapper

    def elsewhere(original: Callable) -> Callable:
        def call(self, other, *arguments, **keywords):
            return original(other, *(_sessionless(collection, a) for a in arguments), **{k: _sessionless(collection, a) for k, a in keywords.items()})

        return call

    def bound(self, other, iobinding, *arguments, **keywords):
        of = getattr(iobinding._iobinding, "session", None)
        if of is not other._sess:
            if of is not self._sess:
                return bound_run(self, iobinding, *arguments, **keywords)  # the program's error
            iobinding._iobinding = iobinding._iobinding.bound_to(other._sess)
        twin = collection.IOBinding.__new__(collection.IOBinding)  # ONNX Runtime compares sessions
        twin.__dict__.update(iobinding.__dict__, _session=other._sess)
        return bound_run(other, twin, *arguments, **keywords)

    def run_async(self, output_names, input_feed, callback, user_data, run_options=None):
        state = self.__dict__.get("_graft")
        if state is None:
            return async_run(self, output_names, input_feed, callback, user_data, run_options)
        if state.plain is not None:
            return async_run(state.plain, output_names, _sessionless(collection, input_feed), callback, user_data, run_options)

        def done(results, data, err):
            if err and _operator_failed(err):
                try:
                    results = again(self, state, RuntimeError(err), lambda other: elsewhere(run)(self, other, output_names, input_feed, run_options))
                    err = ""
                except Exception as e:
                    err = str(e)
            callback(results, data, err)

        return async_run(self, output_names, input_feed, done, user_data, run_options)

    def possible_bound(iobinding, *_, **__) -> bool:
        return isinstance(iobinding._iobinding, Recorded) and not iobinding._iobinding.overlaps()

    def recorded_bind(self, session):
        bind(self, session)
        if getattr(session, "_graft", None) is not None:
            self._iobinding = Recorded(session._sess)

    return {
        (cls, "run"): like(run, elsewhere(run)),
        (cls, "run_with_ort_values"): like(cls.run_with_ort_values, elsewhere(cls.run_with_ort_values)),
        (cls, "run_with_iobinding"): like(bound_run, bound, possible_bound),
        (cls, "run_with_ortvaluevector"): like(vector_run, lambda _, other, *arguments, **keywords: vector_run(other, *arguments, **keywords), _apart),
        (cls, "run_async"): functools.wraps(async_run)(run_async),
        (collection.IOBinding, "__init__"): functools.wraps(bind)(recorded_bind),
    }


def _operator_failed(text: str) -> bool:
    return _OPERATOR_FAILED in text and _ENDED not in text


def _unpatched(cls: type, create: Callable, self, state: State):
    """A session of the program's model and options, for runs that failed; None where it cannot be made."""
    with state.lock:
        if state.unpatched is not None:
            return state.unpatched
        if state.settings.strict or state.entry.changed():
            return None
        other = cls.__new__(cls)  # of no subclass, whose __del__ would end what belongs to self
        other.__dict__.update(self.__dict__, _sess=None, _sess_options=state.options, _model_path=state.path, _enable_fallback=False)
        del other.__dict__["_graft"]
        try:
            create(other, *state.arguments, **state.keywords)
        except Exception:
            return None
        if state.entry.changed():
            return None
        state.unpatched = other
        return other


def _sessionless(collection, feed):
    """A feed without the marks of values by which ONNX Runtime refuses them in another session. On the CPU any session can read them."""
    if not isinstance(feed, Mapping) or all(getattr(v, "_session", None) is None for v in feed.values()):
        return feed
    return {name: collection.OrtValue(v._ortvalue) if getattr(v, "_session", None) is not None else v for name, v in feed.items()}


def _recorded(C) -> type:
    class Recorded(C.SessionIOBinding):
        """Notes what is bound to a session, to bind it to another."""

        def __init__(self, session) -> None:
            super().__init__(session)
            self.session, self.inputs, self.outputs = session, {}, {}

        def bind_input(self, name, *value):
            value = tuple(_kept(v) for v in value)
            super().bind_input(name, *value)
            self.inputs[name] = "bind_input", value

        def bind_ortvalue_input(self, name, value):
            super().bind_ortvalue_input(name, value)
            self.inputs[name] = "bind_ortvalue_input", (value,)

        def bind_output(self, name, *value):
            value = tuple(_kept(v) for v in value)
            super().bind_output(name, *value)
            self.outputs[name] = "bind_output", value

        def bind_ortvalue_output(self, name, value):
            super().bind_ortvalue_output(name, value)
            self.outputs[name] = "bind_ortvalue_output", (value,)

        def clear_binding_inputs(self):
            super().clear_binding_inputs()
            self.inputs.clear()

        def clear_binding_outputs(self):
            super().clear_binding_outputs()
            self.outputs.clear()

        def bound_to(self, session) -> Recorded:
            other = Recorded(session)
            for calls in (self.inputs, self.outputs):
                for name, (method, value) in calls.items():
                    getattr(other, method)(name, *value)
            return other

        def overlaps(self) -> bool:
            """Whether the run that failed may have overwritten its inputs."""
            return _overlap(*([span for _, value in calls.values() for span in _spans(value)] for calls in (self.inputs, self.outputs)))

    return Recorded


def _kept(value):
    """What was bound as it is now: ONNX Runtime copies an array that is in pieces, and the program may change a shape."""
    if isinstance(value, numpy.ndarray):
        return numpy.ascontiguousarray(value) if value.ndim else value
    return list(value) if isinstance(value, (list, tuple)) else value


def _apart(run_options, feed_names, feeds, fetch_names, fetches, fetch_devices) -> bool:
    """Whether the outputs of run_with_ortvaluevector overwrite none of its inputs."""
    return not _overlap(*([span for value in values for span in _spans((value,))] for values in (feeds, fetches)))


def _spans(value: tuple) -> Iterator[tuple[int, int]]:
    """Where memory begins and ends that was bound: an array, an OrtValue, or device, type, shape and address."""
    first = value[0]
    if isinstance(first, numpy.ndarray):
        yield first.ctypes.data, first.ctypes.data + first.nbytes
    elif len(value) == 4:
        _, kind, shape, begin = value
        yield begin, begin + _size(kind, shape)
    elif hasattr(first, "has_value") and first.has_value() and first.is_tensor():
        yield first.data_ptr(), first.data_ptr() + _size(first.element_type(), first.shape())


def _size(kind, shape: Iterable[int]) -> int:
    return math.prod(shape) * (_BYTES.get(kind, 1) if isinstance(kind, int) else numpy.dtype(kind).itemsize)


def _overlap(inputs: list[tuple[int, int]], outputs: list[tuple[int, int]]) -> bool:
    return any(a < d and c < b for a, b in inputs for c, d in outputs)
