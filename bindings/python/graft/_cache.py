"""Rewritten graphs in the user's cache, as the command `graft graph` stores them, and parted for a session.

The command writes KEY, a text that says what a session is made from, and KEY.onnx, the graph. Of these come here
KEY.DIGEST.weights, all weights that the graph or the model's own file has, and KEY.DIGEST.graph, the structure that refers to them,
where DIGEST is that of the text. None of these files is changed once it has its name: a session maps the weights, and whoever overwrites
the model's file afterwards changes no answer.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import fcntl
import hashlib
import json
import mmap
import os
import re
import shutil
import stat
import tempfile
import threading
import time
from typing import Iterator, NamedTuple

from . import _binary, _graph
from ._errors import Error, Left

FIRST = b"graft graph 2"  # the first line of an entry
LAYOUT = "python 2"  # of what this module adds to it

_CANNOT_STORE = "cannot store a graph"  # what the command says of a cache without room
_DAY = 86400.0
_COARSE = 3_000_000_000  # nanoseconds, above the steps in which file systems count time
_NOEXEC_SEAL, _ADD_SEALS, _EVERY_SEAL = 0x8, 1033, 0xF  # of <linux/memfd.h> and <linux/fcntl.h>
_UNWRITABLE = 0o400  # sessions map the weights as they are
_HANDED = "graft-model-"  # how folders begin by which bytes are handed to the command
_IS_HANDED = re.compile(rf".*/{_HANDED}[^/]*/model\.onnx")


def identity(s: os.stat_result) -> tuple[int, int, int, int, int]:
    """What tells contents of files apart: whoever writes to one changes the time of its last change, which no program can set."""
    return (s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_dev, s.st_ino)


class File(NamedTuple):
    identity: tuple[int, int, int, int, int]  # of size -1 for one that must not be there
    sha256: str  # where the identity alone may not tell another content; "" elsewhere
    path: str

    def lasting(self) -> bool:
        """Whether no other content can have the identity, whatever the file system counts time in."""
        return time.time_ns() - self.identity[2] > _COARSE

    def holds(self) -> bool:
        try:
            s = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return self.identity[0] == -1
        except OSError:
            return False
        return identity(s) == self.identity and (not self.sha256 or _sha256(self.path) == self.sha256)


class Library(NamedTuple):
    """A library of which these bytes were verified."""

    sha256: str
    path: str


def _sha256(path: str) -> str:
    try:
        with open(path, "rb") as f:
            return _sum(f)
    except OSError:
        return ""


def _sum(f) -> str:
    h = hashlib.sha256()
    while block := f.read(1 << 20):
        h.update(block)
    return h.hexdigest()


class Entry:
    """What a session is made from, or why a model is left as it is."""

    def __init__(self, text: bytes, source: Source) -> None:
        lines = text.split(b"\n")
        if lines[0] != FIRST or lines[-1] != b"":
            raise ValueError("found another form")
        self.text = text
        self.replaced = self.blocks = 0
        self.graph = self.sum = self.left = self.folder = ""
        self.libraries: list[Library] = []
        self.files: list[File] = []
        for line in lines[1:-1]:
            what, _, rest = line.partition(b" ")
            value = os.fsdecode(rest)
            if what == b"replaced":
                self.replaced = int(value)
            elif what == b"blocks":
                self.blocks = int(value)
            elif what in (b"left", b"folder"):
                setattr(self, what.decode(), value)
            elif what == b"graph":
                self.sum, self.graph = value.split(" ", 1)
            elif what == b"library":
                self.libraries.append(Library(*value.split(" ", 1)))
            elif what == b"file":
                *numbers, sha256, path = value.split(" ", 6)
                if source.path is not None or not _IS_HANDED.fullmatch(path):  # bytes are what their key says
                    size, modified, changed, device, inode = map(int, numbers)
                    self.files.append(File((size, modified, changed, device, inode), "" if sha256 == "-" else sha256, path))
        if bool(self.graph) == bool(self.left):
            raise ValueError("found neither a graph nor a reason, or both")

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text).hexdigest()[:16]

    def changed(self) -> str:
        """The path of a file that is not as it was, or ""."""
        for i, f in enumerate(self.files):
            lasting = f.sha256 and f.lasting()
            if not f.holds():
                return f.path
            if lasting:
                self.files[i] = f._replace(sha256="")  # whatever happens to it from then on shows
        for library in self.libraries:
            try:
                sealed(library)
            except Error:
                return library.path  # another version, perhaps, which the command verifies
        return ""


class Source(NamedTuple):
    """A model as the program names it: a file, or bytes."""

    path: str | None
    data: bytes | None

    @property
    def name(self) -> str:
        return self.path if self.path is not None else f"a model of {len(self.data)} bytes"


class Prepared(NamedTuple):
    entry: Entry
    model: bytes  # what the session is made from, with weights in files below _graph.ROOT


# Variables that say where the command looks for plugins, and which it takes.
_PLACES = ("GRAFT_PLUGIN_PATH", "GRAFT_PLUGIN_LOCK", "GRAFT_PLUGIN_UNVERIFIED", "XDG_DATA_HOME", "HOME")


def key(binary: str, options: list[str], source: Source) -> str:
    s = os.stat(binary)
    places = [f"{name}={os.environ[name]}" if name in os.environ else name for name in _PLACES]
    lines = [FIRST.decode(), binary, *map(str, identity(s)), *options, *places, LAYOUT]
    if source.path is not None:
        lines.append("path " + source.path)
    else:
        lines.append("bytes " + hashlib.sha256(source.data).hexdigest())
    return hashlib.sha256(b"".join(os.fsencode(line) + b"\n" for line in lines)).hexdigest()[:32]


class Cache:
    """Entries of one process; threads that ask for one of them at once wait for each other."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forgets failures, and locks that a thread held which is not there in a forked process."""
        self._lock = threading.Lock()
        self._busy: dict[str, threading.Lock] = {}
        self.forget()

    def forget(self) -> None:
        """Forgets which models could not be planned."""
        self._failed: dict[tuple[str, tuple[int, ...]], Error] = {}

    @contextlib.contextmanager
    def prepared(self, binary: str, options: list[str], source: Source) -> Iterator[Prepared]:
        """What the session of a model is made from, while it is made. Left says that it is made from the model itself."""
        try:
            k = key(binary, options, source)
        except OSError as e:
            raise Error(f"cannot be read: {e.strerror}", path=binary, needed="the command graft", kind="binary") from e
        with contextlib.ExitStack() as stack:
            with self._alone(k):
                yielded = self._find(k, source)
                if yielded is None:
                    yielded = self._make(k, binary, options, source, stack)
            if yielded.entry.left:
                raise Left(yielded.entry.left)
            yield yielded

    @contextlib.contextmanager
    def _alone(self, k: str) -> Iterator[None]:
        with self._lock:
            lock = self._busy.setdefault(k, threading.Lock())
        with lock:
            yield

    def _find(self, k: str, source: Source) -> Prepared | None:
        folder = user_folder()
        if not folder or not _trusted(folder):
            return None
        try:
            return _read(folder, k, source)
        except (Error, OSError, ValueError):
            return None  # it is made anew, elsewhere if it has to be, and what is wrong then is said

    def _make(self, k: str, binary: str, options: list[str], source: Source, stack: contextlib.ExitStack) -> Prepared:
        state = (k, _state(source))
        failed = self._failed.get(state)
        if failed is not None:
            raise copy.copy(failed)  # one that is raised holds what its frames do: the model's bytes
        try:
            return self._ask(k, binary, options, source, stack)
        except Error as e:
            with self._lock:
                self._failed[state] = copy.copy(e)  # the next session does not wait for the same again
            raise
        except OSError as e:
            raise Error(f"{_CANNOT_STORE}: {e.strerror or e}", path=e.filename or user_folder() or "", needed="a cache folder with room",
                        fix="free some, or set XDG_CACHE_HOME to another", kind="cache") from e

    def _ask(self, k: str, binary: str, options: list[str], source: Source, stack: contextlib.ExitStack) -> Prepared:
        folder = user_folder()
        if folder is not None and _writable(folder) and (not os.path.exists(folder) or _trusted(folder)):
            try:
                return _asked(k, binary, options, source, folder, {})
            except OSError:
                pass  # no room, perhaps
            except Error as e:
                if _CANNOT_STORE not in str(e):
                    raise
        base = tempfile.mkdtemp(prefix="graft-")
        stack.callback(shutil.rmtree, base, ignore_errors=True)  # the session has mapped the weights by then
        return _asked(k, binary, options, source, os.path.join(base, "graft", "graphs"), {"XDG_CACHE_HOME": base})


def _asked(k: str, binary: str, options: list[str], source: Source, folder: str, env: dict[str, str]) -> Prepared:
    seconds = _binary.deadline()
    analysis = ["--analysis-time", f"{int(seconds * 500)}ms"]  # half of it, on a machine that is busy; changes no result
    for _ in range(2):  # another process may have asked about another version of the model meanwhile
        with _named(source) as path:
            out = _binary.call(binary, ["graph", path, "--key", k, *analysis, *options], seconds, _binary.environment(**env))
        if out.code != 0:
            raise _said(out, binary)
        p = _read(folder, k, source)
        if p is not None:
            if p.entry.graph:
                with contextlib.suppress(OSError):
                    os.unlink(p.entry.graph)  # what was parted before is the same
            return p
        entry = _entry(os.path.join(folder, k), source)
        if entry is not None and entry.changed():
            raise _changed(source)
    raise Error("graft graph stored nothing that can be read", path=folder, needed=f"a graph under {k}", fix="install the package anew", kind="entry")


@contextlib.contextmanager
def _named(source: Source) -> Iterator[str]:
    """A path of the model that another process can open."""
    if source.path is not None:
        yield source.path
        return
    with tempfile.TemporaryDirectory(prefix=_HANDED) as folder:
        path = os.path.join(folder, "model.onnx")
        with open(path, "wb") as f:
            f.write(source.data)
        yield path


def _changed(source: Source) -> Error:
    return Error("was changed while it was planned", path=source.name, needed="a model that stays as it is", kind="changed")


def _state(source: Source) -> tuple[int, ...]:
    if source.path is None:
        return (len(source.data),)
    try:
        return identity(os.stat(source.path))
    except OSError:
        return (-1,)


def _said(out: _binary.Output, binary: str) -> Error:
    lines = [line for line in out.err.decode("utf-8", "replace").splitlines() if line.strip()]
    text = " ".join(lines)[:1000].removeprefix("graft: ") if lines else f"ended with {out.code}"
    return Error(text, kind=text if len(text) < 200 else f"exit code {out.code}")


_sealed: dict[str, tuple[int, os.stat_result]] = {}  # descriptors by hash, open as long as the process
_sealing = threading.Lock()


def sealed(library: Library) -> str:
    """A path that leads to the bytes of a library that were verified, which nobody can change any more."""
    with _sealing:
        fd, was = _sealed.get(library.sha256, (-1, None))
        if was is None or not _is(fd, was):  # a program may have closed it, and have another by its number
            fd = _memory(library)
            _sealed[library.sha256] = (fd, os.fstat(fd))
    return f"/proc/self/fd/{fd}"


def _is(fd: int, was: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), was)
    except OSError:
        return False


def _seal(fd: int) -> None:
    # The kernel may still hold pages that were just written, above all on a machine under load.
    for attempt in range(30):
        try:
            fcntl.fcntl(fd, _ADD_SEALS, _EVERY_SEAL)
            return
        except OSError as e:
            if e.errno != errno.EBUSY or attempt == 29:
                raise
            time.sleep(attempt / 1000)


def _memory(library: Library) -> int:
    fd = -1
    try:
        with open(library.path, "rb") as f:
            code = f.read()
        if hashlib.sha256(code).hexdigest() != library.sha256:
            raise Error(f"found other bytes than those that were verified (sha256 {library.sha256[:12]}...)", path=library.path,
                        needed="a library that nobody changed", fix="install the plugin anew", kind="library")
        name = os.path.basename(library.path)[:200]
        try:
            fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | _NOEXEC_SEAL)
        except OSError:  # before Linux 6.3
            fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        _write(fd, code)
        _seal(fd)
    except OSError as e:
        if fd >= 0:
            os.close(fd)
        raise Error(f"cannot be read: {e.strerror}", path=library.path, needed="the library that was verified", kind="library") from e
    return fd


def user_folder() -> str | None:
    """Where the command stores graphs, or None where it finds no place."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not base and os.environ.get("HOME"):
        base = os.path.join(os.environ["HOME"], ".cache")
    return os.path.join(base, "graft", "graphs") if os.path.isabs(base) else None


def _trusted(folder: str) -> bool:
    """Whether nobody but this user and root can have written what lies in a folder: an entry names libraries, which are loaded."""
    try:
        s = os.stat(folder)
    except OSError:
        return False
    return s.st_uid in (os.geteuid(), 0) and not s.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _writable(folder: str) -> bool:
    while not os.path.lexists(folder):
        up = os.path.dirname(folder)
        if up == folder:
            return False
        folder = up
    return os.access(folder, os.W_OK | os.X_OK)


def _read(folder: str, k: str, source: Source) -> Prepared | None:
    """An entry with its graph, parted now if nobody has done so; None where there is none that holds."""
    name = os.path.join(folder, k)
    entry = _entry(name, source)
    if entry is None or entry.changed():
        return None
    if entry.left:
        _touch(name)
        return Prepared(entry, b"")
    stem = f"{name}.{entry.digest}"
    model = _parted(stem)
    if model is None:
        _part(stem, entry, source)
        model = _parted(stem)
        if model is None or entry.changed():
            return None
    _touch(name)
    return Prepared(entry, model)


def _entry(name: str, source: Source) -> Entry | None:
    try:
        with open(name, "rb") as f:
            return Entry(f.read(1 << 20), source)
    except (OSError, ValueError):
        return None


def _touch(path: str) -> None:
    """Says that an entry was used: what nobody uses is removed after a month, with what belongs to it."""
    try:
        if time.time() - os.stat(path).st_mtime > _DAY:
            os.utime(path)
    except OSError:
        pass


def _parted(stem: str) -> bytes | None:
    try:
        with open(stem + ".graph", "rb") as f:
            head = json.loads(f.readline(4096))
            model = f.read()
        weights = os.stat(stem + ".weights")
        whole = (head["layout"] == LAYOUT and head["structure"] == hashlib.sha256(model).hexdigest()
                 and head["weights"] == list(identity(weights)) and stat.S_IMODE(weights.st_mode) == _UNWRITABLE)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return model if whole else None


def _part(stem: str, entry: Entry, source: Source) -> None:
    """Makes the two files of a graph, if it is there."""
    with contextlib.ExitStack() as stack:
        try:
            fd = os.open(entry.graph, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # another process parted it, and removed it
        stack.callback(os.close, fd)
        graph = stack.enter_context(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
        if hashlib.sha256(graph).hexdigest() != entry.sum:
            raise Error("is not what the command graft wrote", path=entry.graph, needed="its bytes", kind="entry")
        own = None
        if source.path is not None:
            own = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, own)

        def owned(path: str) -> bool:
            if own is None:
                return True  # bytes refer to nothing else
            try:
                return os.path.samestat(os.stat(path), os.fstat(own))
            except OSError as e:
                raise Error(f"cannot be read: {e.strerror}", path=path, needed="the model's weights") from e

        def read(p: _graph.Payload) -> bytes:
            if p.path is None:
                return graph[p.offset:p.offset + p.length]
            if own is None:
                return source.data[p.offset:p.offset + p.length]
            return os.pread(own, p.length, p.offset)  # entry.changed finds one that became shorter

        s = _graph.Splitter(graph, entry.folder, stem + ".weights", owned).split(read)

        def weights(out: int) -> None:
            at = 0
            for p in s.weights:
                gap = -at % _graph.ALIGNMENT
                _write(out, bytes(gap))
                if p.path is None:
                    _copy(out, fd, p)
                elif own is None:
                    _write(out, memoryview(source.data)[p.offset:p.offset + p.length])
                else:
                    _copy(out, own, p)
                at += gap + p.length
            if entry.changed():  # before anything has a name
                raise _changed(source)

        _whole(stem + ".weights", weights, _UNWRITABLE)
        head = json.dumps({"layout": LAYOUT, "structure": hashlib.sha256(s.model).hexdigest(), "weights": _settled(stem + ".weights")}).encode() + b"\n"
        _whole(stem + ".graph", lambda out: _write(out, head + s.model))
        _tidy(stem, entry, os.fstat(fd))


def _tidy(stem: str, entry: Entry, graph: os.stat_result) -> None:
    """Removes what is not read any more: the graph in one piece, and what was made of older entries."""
    folder, name = os.path.split(stem)
    k = name.partition(".")[0]
    with contextlib.suppress(OSError):
        if os.path.samestat(os.stat(entry.graph), graph):  # and not one that another process stored since
            os.unlink(entry.graph)
        for other in os.listdir(folder):
            if other.startswith(k + ".") and other.endswith((".graph", ".weights")) and not other.startswith(name + "."):
                os.unlink(os.path.join(folder, other))


def _settled(path: str) -> list[int]:
    """The identity of a file that was written just now, once its file system's clock went on: whatever happens to it from then on shows."""
    was = identity(os.stat(path))
    fd, probe = tempfile.mkstemp(prefix=os.path.basename(path) + ".", suffix=".tmp", dir=os.path.dirname(path))
    try:
        while os.fstat(fd).st_ctime_ns <= was[2]:
            time.sleep(0.002)
            os.utime(fd)
    finally:
        os.close(fd)
        os.unlink(probe)
    return list(was)


def _whole(path: str, write, mode: int = 0o600) -> None:
    """Writes a file that has its name only when it is whole and on the disk."""
    fd, temporary = _temporary(path)
    try:
        write(fd)
        os.fchmod(fd, mode)
        os.fsync(fd)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        os.close(fd)


def _temporary(path: str) -> tuple[int, str]:
    """A file that is locked as long as it is open: the command removes others, as what processes left that were killed."""
    for _ in range(100):
        fd, temporary = tempfile.mkstemp(prefix=os.path.basename(path) + ".", suffix=".tmp", dir=os.path.dirname(path))
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)  # the command is about to remove it
            continue
        except OSError:
            pass  # there are no locks here, and so it removes nothing
        if os.fstat(fd).st_nlink:
            return fd, temporary
        os.close(fd)
    raise Error("found no way to keep a temporary file", path=os.path.dirname(path), needed="one that nobody removes", kind="cache")


def _write(fd: int, data) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest):]


def _copy(out: int, source: int, p: _graph.Payload) -> None:
    at, end = p.offset, p.offset + p.length
    while at < end:
        n = os.sendfile(out, source, at, end - at)
        if n == 0:
            raise Error("ends before its weights do", path=p.path or "", needed="a model that stays as it is", kind="changed")
        at += n
