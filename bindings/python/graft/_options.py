"""Copies of session options, and what programs did to the options that no copy shows."""

from __future__ import annotations

import functools
import threading
import weakref

from ._errors import Error, Left

FOLDER = "session.model_external_initializers_file_folder_path"
DOMAIN = "graft.domain.v1"  # through which libraries of operators find each other; it holds an address

# Calls by which a program gives initializers of its own: those are not what the graph was made of.
_GIVERS = ("add_initializer", "add_external_initializers", "add_external_initializers_from_files_in_memory")

_lock = threading.RLock()  # a handler of a signal may make options too
_libraries: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
_given: weakref.WeakSet = weakref.WeakSet()
_known: weakref.WeakSet = weakref.WeakSet()  # options of which everything was noted that was given to them


def _number(n: int) -> bytes:
    return bytes([n])


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


def _value(name: bytes) -> bytes:  # float[1]
    shape = _field(2, _field(1, b"\x08\x01"))
    return _field(1, name) + _field(2, _field(1, b"\x08\x01" + shape))


# A model of one node. A session of it that is not initialized hands out copies of its options.
_TINY = b"\x08\x07" + _field(7, _field(1, _field(1, b"x") + _field(2, b"y") + _field(4, b"Identity")) + _field(2, b"tiny")
                             + _field(11, _value(b"x")) + _field(12, _value(b"y"))) + _field(8, _field(1, b"") + b"\x10\x0d")


def forked() -> None:
    """In a forked process: a lock that another thread held is free."""
    global _lock
    _lock = threading.RLock()


def watch(C) -> None:
    """Notes from now on which options programs make, and which libraries and initializers they give to them."""
    cls = C.SessionOptions
    init, register = cls.__init__, cls.register_custom_ops_library

    @functools.wraps(init)
    def __init__(self, *arguments, **keywords):
        init(self, *arguments, **keywords)
        with _lock:
            _known.add(self)

    @functools.wraps(register)
    def register_custom_ops_library(self, *arguments, **keywords):
        register(self, *arguments, **keywords)
        with _lock:
            _libraries.setdefault(self, []).extend([*arguments, *keywords.values()])

    def giver(give):
        @functools.wraps(give)
        def call(self, *arguments, **keywords):
            with _lock:
                _given.add(self)  # one that fails may have given some
            give(self, *arguments, **keywords)

        return call

    cls.__init__, cls.register_custom_ops_library = __init__, register_custom_ops_library
    for name in _GIVERS:
        if hasattr(cls, name):  # onnxruntime 1.22 has not all
            setattr(cls, name, giver(getattr(cls, name)))


def default(C):
    """The options of a session for which a program has none."""
    options = C.get_default_session_options()
    with _lock:
        _known.add(options)
    return options


def entry(options, name: str) -> str:
    """A session config entry, or ""."""
    try:
        return options.get_session_config_entry(name)
    except RuntimeError:
        return ""


def usable(options) -> None:
    """Raises Left for options with which a session is made from the program's model alone, and Error for those that may be such."""
    with _lock:
        known, given = options in _known, options in _given
    if given:
        raise Left("its options have initializers of the program")
    if getattr(options, "has_providers", bool)():
        raise Left("its options name execution providers")
    if options.optimized_model_filepath:
        raise Left("ONNX Runtime writes the optimized model to a file")
    if entry(options, "session.load_model_format").upper() == "ORT":
        raise Left("the model is in ORT's own format")
    if entry(options, DOMAIN):
        raise Left("the program registered graft's operators with its options")
    if entry(options, FOLDER):
        raise Left(f"its options set {FOLDER}")
    if not known:  # and nothing tells what they hold
        raise Error("its options were made before graft was imported", needed="options of which graft knows what the program gave to them",
                    fix="import graft before", kind="options")


def handed_on(options, copy) -> None:
    """Notes of a copy that ONNX Runtime made of options what is known of these. Initializers are in it, the operators of libraries are not."""
    with _lock:
        for noted in (_known, _given):
            if options in noted:
                noted.add(copy)


def copies(C, options, n: int) -> list:
    """n copies of options, which share nothing with them. The operators of libraries are in none."""
    with _lock:  # another thread may copy them too
        profiling = options.enable_profiling
        if profiling:
            options.enable_profiling = False  # a session begins its profile when it is constructed
        try:
            session = C.InferenceSession(options, _TINY, False, False)
        finally:
            if profiling:
                options.enable_profiling = True
    made = []
    for _ in range(n):
        copy = session.session_options
        if profiling:
            copy.enable_profiling = True
        if not _alike(copy, options):
            raise Left("its options cannot be copied")
        handed_on(options, copy)
        made.append(copy)
    return made


def _alike(a, b) -> bool:
    if a is b:
        return False
    for name in dir(type(a)):
        if name.startswith("_") or not isinstance(getattr(type(a), name), property):
            continue
        if getattr(a, name) != getattr(b, name):
            return False
    return True


def libraries(options) -> list[str]:
    """The libraries of operators that the program registered with options."""
    with _lock:
        return list(_libraries.get(options, ()))
