"""How onnxruntime.InferenceSession is patched.

Every session of Python's ONNX Runtime, of whatever subclass and whoever makes it, comes from the method
InferenceSession._create_inference_session: the constructor calls it, set_providers does, and so do both when providers fail. It is
replaced on the class, so that names which a program imported before see it too. While it runs, the object has the rewritten graph in
place of the program's model and a copy of its options; afterwards it has the program's again.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import functools
import json
import logging
import os
import platform
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from . import _binary, _cache, _graph, _options
from ._errors import Error, Left, short

if TYPE_CHECKING:
    from ._wayback import State

DISABLE = "GRAFT_DISABLE"
PADDINGS = ("exact", "ignore", "keep")
CPUINFO = "/proc/cpuinfo"
OLDEST = (1, 22)

_CPU = {"CPUExecutionProvider", "AzureExecutionProvider"}  # the latter computes nothing of a model but its own operators


class Settings(NamedTuple):
    """What the options of enable mean."""

    flags: tuple[str, ...]
    strict: bool
    logger: logging.Logger
    binary: str
    obstacle: Error | None  # why no session can be patched


class Session:
    """What became of one session: patched, or why not."""

    __slots__ = ("model", "patched", "reason", "failed", "replaced", "blocks", "reverted")

    def __init__(self, model: str, *, patched: bool = False, reason: str = "", failed: bool = False, replaced: int = 0, blocks: int = 0) -> None:
        self.model, self.patched, self.reason, self.failed = model, patched, reason, failed
        self.replaced, self.blocks = replaced, blocks
        self.reverted = ""  # the error after which it runs the program's model

    def __repr__(self) -> str:
        if self.reverted:
            return f"{self.model}: runs as it is since an operator failed: {self.reverted}"
        if self.patched:
            return f"{self.model}: {self.replaced} of {self.blocks} blocks replaced"
        return f"{self.model}: as it is: {self.reason}"


class Status:
    """The sessions that were made since the first enable, and how many of them were patched.

    sessions has the last thousand; patched, plain, failed and reverted count all. failed are those among the plain ones that could
    not be patched; a session that reverted was patched, and runs the program's model since an operator failed.
    """

    def __init__(self, enabled: bool, counts: dict[str, int], sessions: list[Session]) -> None:
        self.enabled, self.sessions = enabled, sessions
        self.patched, self.plain = counts["patched"], counts["plain"]
        self.failed, self.reverted = counts["failed"], counts["reverted"]

    def __repr__(self) -> str:
        state = "enabled" if self.enabled else "not enabled"
        lines = [f"graft is {state}: {self.patched} sessions patched, {self.plain} plain, {self.failed} of these failed, {self.reverted} reverted"]
        return "\n".join(lines + [f"  {s!r}" for s in self.sessions])


class _Process:
    """What there is once a process."""

    def __init__(self) -> None:
        self.enabled: Settings | None = None
        self.cache = _cache.Cache()
        self.warned: set[str] = set()
        self.create: Callable | None = None  # _create_inference_session as it was
        self.begin()

    def begin(self) -> None:
        self.lock = threading.RLock()  # a handler of a signal may ask for the status
        self.sessions: deque[Session] = deque(maxlen=1000)
        self.counts = {"patched": 0, "plain": 0, "failed": 0, "reverted": 0}

    def forked(self) -> None:
        """In a forked process: locks that other threads held are free, and its parent's sessions are not its own to count."""
        self.begin()
        self.cache.reset()
        _options.forked()


_process = _Process()
_UNSET = object()
_inside: contextvars.ContextVar = contextvars.ContextVar("graft", default=_UNSET)
os.register_at_fork(after_in_child=lambda: _process.forked())


def settings(*, padding: str | None = None, plugins=None, except_=None, strict: bool = False, logger: logging.Logger | None = None) -> Settings:
    """Checks the options of enable."""
    flags: list[str] = []
    named: dict[str, str] = {}
    if padding is not None:
        flags = _with(flags, "--padding", _padding(padding))
    for name, flag, value in (("plugins", "--plugins", plugins), ("except_", "--except", except_)):
        if value is not None:
            named[name] = _names(name, value)
            flags = _with(flags, flag, named[name])
    logger = logger if logger is not None else logging.getLogger("graft")
    for method in ("info", "warning"):
        if not callable(getattr(logger, method, None)):
            raise Error(f"logger: found {type(logger).__name__}", needed="a logging.Logger")
    _binary.deadline()
    obstacle, binary = _obstacle(), ""
    if obstacle is None:
        try:
            binary = _binary.find()
        except Error as e:
            obstacle = e
    if obstacle is not None and strict:
        raise obstacle
    if obstacle is None:
        for option, names in named.items():
            _known(binary, option, names.split(","))
    return Settings(tuple(flags), bool(strict), logger, binary, obstacle)


def _padding(value: str) -> str:
    if value not in PADDINGS:
        raise Error(f"padding: found {value!r}", needed=f"one of {', '.join(PADDINGS)}")
    return value


def _with(flags: list[str], flag: str, value: str) -> list[str]:
    """Flags with one set. The default is not said: what it gives is in the cache once."""
    if flag in flags:
        at = flags.index(flag)
        flags = flags[:at] + flags[at + 2:]
    return flags if (flag, value) == ("--padding", PADDINGS[0]) else [*flags, flag, value]


def _names(option: str, value) -> str:
    if isinstance(value, str):
        value = [value]
    names = list(value)
    if not names or not all(isinstance(n, str) and n and "," not in n for n in names):
        raise Error(f"{option}: found {value!r}", needed="names of plugins")
    return ",".join(names)


_seen: set[tuple[str, str]] = set()  # names of plugins that a command found


def _known(binary: str, option: str, names: list[str]) -> None:
    """Raises for a name that is of no plugin. Where the command gives no list, sessions say why."""
    if all((binary, n) in _seen for n in names):
        return
    try:
        out = _binary.call(binary, ["plugin", "list", "-o", "json"], _binary.deadline(), _binary.environment())
        there = sorted({p["name"] for p in json.loads(out.out)["plugins"]})
    except (Error, ValueError, KeyError, TypeError):
        return
    for name in names:
        if name not in there:
            raise Error(f"{option}: found {name!r}, which is no plugin", needed=f"one of {', '.join(there)}" if there else "plugins",
                        fix="see graft plugin list", kind="plugins")
    _seen.update((binary, n) for n in names)


def _obstacle() -> Error | None:
    """Why no session of this machine can be patched."""
    if platform.system() != "Linux":
        return Error(f"found {platform.system()}", needed="Linux", kind="system")
    if platform.machine() in ("x86_64", "AMD64") and not _has_avx2():
        return Error("the processor has no AVX2", needed="it for graft's operators", kind="processor")
    return None


def _has_avx2() -> bool:
    try:
        with open(CPUINFO, encoding="ascii", errors="replace") as f:
            for line in f:
                if line.startswith("flags"):
                    return "avx2" in line.partition(":")[2].split()
    except OSError:
        pass
    return True  # nothing says otherwise, and operators choose their instructions themselves


def enable(s: Settings) -> None:
    _install()
    with _process.lock:
        _process.enabled = s
        _process.cache.forget()
    if s.obstacle is not None:
        _warn(s, s.obstacle, "")


def disable() -> None:
    with _process.lock:
        _process.enabled = None


@contextlib.contextmanager
def inside(s: Settings):
    """Sessions that this thread makes in the block have these settings."""
    _install()
    if s.obstacle is not None:
        _warn(s, s.obstacle, "")
    token = _inside.set(s)
    try:
        yield
    finally:
        _inside.reset(token)


def active() -> Settings | None:
    s = _inside.get()
    return _process.enabled if s is _UNSET else s


def status() -> Status:
    with _process.lock:
        return Status(active() is not None, dict(_process.counts), list(_process.sessions))


def watch() -> None:
    """Begins to note what programs give to options, if onnxruntime is there: enable may come after. What is wrong here, enable says."""
    with contextlib.suppress(Exception):
        _install()


def _install() -> None:
    """Replaces methods of InferenceSession, once a process. They stay, and do nothing while graft is not enabled: others may have
    replaced them in turn, and patched sessions need theirs."""
    try:
        import onnxruntime
        from onnxruntime.capi import onnxruntime_inference_collection as collection

        from . import _wayback
    except ImportError as e:
        raise Error("onnxruntime cannot be imported", needed="it, 1.22 or newer", fix="pip install onnxruntime", kind="onnxruntime") from e
    version = tuple(int(p) for p in onnxruntime.__version__.split(".")[:2] if p.isdigit())
    if len(version) == 2 and version < OLDEST:
        raise Error(f"found onnxruntime {onnxruntime.__version__}", needed="1.22 or newer", fix="pip install --upgrade onnxruntime", kind="onnxruntime")
    cls, C = collection.InferenceSession, collection.C
    runs = ("run", "run_with_ort_values", "run_with_iobinding", "run_with_ortvaluevector", "run_async")
    needed = [*((cls, name) for name in ("_create_inference_session", *runs)), (collection, "IOBinding"), (C, "SessionIOBinding"),
              (C, "get_default_session_options"), (C, "get_available_providers"), (C.InferenceSession, "session_options")]
    missing = [name for owner, name in needed if not hasattr(owner, name)]
    if missing:
        raise Error(f"onnxruntime {onnxruntime.__version__} has no {', '.join(missing)}", needed="a version that graft knows",
                    fix="upgrade graft, or install an older onnxruntime", kind="onnxruntime")
    with _process.lock:
        if _process.create is not None:
            return
        create = cls._create_inference_session
        wrappers = _wayback.wrappers(collection, create, _reverted)
        _options.watch(C)
        for (owner, name), wrapper in wrappers.items():
            setattr(owner, name, wrapper)
        cls._create_inference_session = _create(create, C)
        _process.create = create


def _create(original, C):
    @functools.wraps(original)
    def _create_inference_session(self, *arguments, **keywords):
        self.__dict__.pop("_graft", None)
        s = active()
        if s is not None:
            try:
                state = _safely(_patched, self, C, original, s, arguments, keywords)
            except Left as e:
                _note(s, Session(_name(self), reason=str(e)))
            except Error as e:
                if s.strict:
                    raise
                _note(s, Session(_name(self), reason=str(e), failed=True))
                _warn(s, e, _name(self))
            else:
                self._graft = state
                _note(s, state.session)
                return
        options = self._sess_options or _options.default(C)
        original(self, *arguments, **keywords)
        _options.handed_on(options, self._sess_options)

    return _create_inference_session


def _safely(call, *arguments):
    """What call returns, or Left or Error: nothing that is wrong in here is the program's concern."""
    try:
        return call(*arguments)
    except (Left, Error):
        raise
    except Exception as e:
        raise Error(f"{type(e).__name__}: {short(e)}", kind=f"unforeseen {type(e).__name__}") from e


def _patched(self, C, original, s: Settings, arguments: tuple, keywords: dict) -> State:
    """Makes the session of a rewritten graph, or raises with what the object has of the program as it was."""
    from . import _wayback

    if os.environ.get(DISABLE, "") not in ("", "0"):
        raise Left(f"{DISABLE} is set")
    options = self._sess_options or _options.default(C)
    if _options.entry(options, "graft.disable") not in ("", "0"):
        raise Left("its options have graft.disable")
    if s.obstacle is not None:
        raise copy.copy(s.obstacle)  # one that is raised holds what its frames do
    _provided(C, arguments[0] if arguments else keywords.get("providers"))
    _options.usable(options)
    if self._read_config_from_model:
        raise Left("its options are read from the model")
    source, flags = _source(self), _flags(s, options)
    with _process.cache.prepared(s.binary, flags, source) as p:
        try:
            ours, program, unpatched = _options.copies(C, options, 3)
            unpatched.enable_profiling = False  # the profile is the patched session's
            for library in _options.libraries(options):
                ours.register_custom_ops_library(library)
                unpatched.register_custom_ops_library(library)
            for library in p.entry.libraries:
                ours.register_custom_ops_library(_cache.sealed(library))
            ours.add_session_config_entry(_options.FOLDER, _graph.ROOT)
            had = self._model_path, self._model_bytes, self._sess_options
            self._model_path, self._model_bytes, self._sess_options = None, p.model, ours
            try:
                original(self, *arguments, **keywords)
            finally:
                self._model_path, self._model_bytes, self._sess_options = had
        except Left:
            raise
        except Exception as e:  # of ONNX Runtime, which has no base for them
            raise Error(f"the session of the rewritten model cannot be made: {short(e)}", path=source.name, kind=f"session {type(e).__name__}") from e
    changed = p.entry.changed()
    if changed:
        raise Error("was changed while its session was made", path=changed, needed="a model that stays as it is", kind="changed")
    self._sess_options = program  # a copy of the program's, as ONNX Runtime would have it
    session = Session(source.name, patched=True, replaced=p.entry.replaced, blocks=p.entry.blocks)
    return _wayback.State(session, s, p.entry, source.path, unpatched, arguments, keywords)


def _provided(C, providers) -> None:
    there = C.get_available_providers()
    names = there if not providers else [p[0] if isinstance(p, tuple) and p else p for p in providers]
    others = [n for n in names if n in there and n not in _CPU]  # of those that are not there, ONNX Runtime only warns
    if others:
        raise Left(f"it may compute with {others[0]}")


def _source(self) -> _cache.Source:
    if self._model_path:
        path = os.path.abspath(self._model_path) if isinstance(self._model_path, str) else ""
        if path.endswith(".ort"):
            raise Left("the model is in ORT's own format")
        if not os.path.isfile(path) or "\n" in path or "\r" in path:
            raise Left("the path is not that of a file")
        return _cache.Source(path, None)
    data = self._model_bytes
    if not isinstance(data, bytes) or not data:
        raise Left("the model is neither a file nor bytes")
    if data[4:8] == b"ORTM":
        raise Left("the model is in ORT's own format")
    return _cache.Source(None, data)


def _flags(s: Settings, options) -> list[str]:
    """The command's options: those of enable, or of the session where its config has entries of graft."""
    flags = list(s.flags)
    padding, plugins = _options.entry(options, "graft.padding"), _options.entry(options, "graft.plugins")
    for flag, value in (("--padding", padding and _padding(padding)), ("--plugins", plugins)):
        if value:
            flags = _with(flags, flag, value)
    return flags


def _name(self) -> str:
    if self._model_path:
        return str(self._model_path)
    return f"a model of {len(self._model_bytes or b'')} bytes"


def _note(s: Settings, session: Session) -> None:
    with _process.lock:
        _process.sessions.append(session)
        _process.counts["patched" if session.patched else "plain"] += 1
        _process.counts["failed"] += session.failed
    s.logger.info("graft: %r", session)


def _warn(s: Settings, e: Error, model: str) -> None:
    """One warning a process and kind of cause."""
    with _process.lock:
        if e.kind in _process.warned:
            return
        _process.warned.add(e.kind)
    subject = f"{model} runs as it is" if model else "sessions run as they are"
    s.logger.warning("graft: %s: %s", subject, e)


def _reverted(state: State) -> None:
    with _process.lock:
        _process.counts["reverted"] += 1
    state.settings.logger.warning("graft: %s runs as it is from now on, since an operator failed: %s", state.session.model, state.session.reverted)
