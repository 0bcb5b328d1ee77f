"""The command graft: where it is, and how it is run."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import NamedTuple

from ._errors import Error

BINARY = "GRAFT_BINARY"
DEADLINE = "GRAFT_GRAPH_DEADLINE"
RUNTIME = "GRAFT_ONNXRUNTIME"

# The oldest runtime that the command itself works with; sessions in Python may have an older one.
_OLDEST = (1, 29)


class Output(NamedTuple):
    code: int
    out: bytes
    err: bytes


def find() -> str:
    """The path of the command: GRAFT_BINARY, that of this package, or one on PATH."""
    named = os.environ.get(BINARY)
    if named:
        return _checked(os.path.abspath(named), f"set {BINARY} to the command graft, or unset it")
    inside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "graft")
    if os.path.exists(inside):
        return _checked(inside, "install the package anew")
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, "graft")
        if os.path.isabs(path) and _is_program(path):
            return path
    raise Error("the command graft was not found", needed=f"it in {BINARY}, in this package or on PATH",
                fix="install a package that was built for this system", kind="binary")


def _checked(path: str, fix: str) -> str:
    if not os.path.isfile(path):
        raise Error("found no file", path=path, needed="the command graft", fix=fix, kind="binary")
    if not os.access(path, os.X_OK):
        raise Error("found a file that cannot be executed", path=path, needed="the command graft", fix=fix, kind="binary")
    return path


def _is_program(path: str) -> bool:
    """Whether it is a program of machine code: the script that pip makes of this package is on PATH too, and is not meant."""
    try:
        with open(path, "rb") as f:
            return f.read(4) == b"\x7fELF" and os.access(path, os.X_OK)
    except OSError:
        return False


def deadline() -> float:
    """How long one model may be planned, in seconds."""
    text = os.environ.get(DEADLINE, "")
    if not text:
        return 60.0
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= 86400:
        raise Error(f"found {text!r}", path=DEADLINE, needed="seconds above 0, up to 86400", fix=f"set {DEADLINE} to such a number", kind="deadline")
    return seconds


def environment(**more: str) -> dict[str, str]:
    """The environment of the command: that of this process, with the runtime of the installed onnxruntime where it can be used."""
    env = dict(os.environ, **more)
    if not env.get(RUNTIME):
        library = _runtime()
        if library:
            env[RUNTIME] = library
    return env


def _runtime() -> str | None:
    import onnxruntime

    version = onnxruntime.__version__
    parts = version.split(".")
    try:
        if (int(parts[0]), int(parts[1])) < _OLDEST:
            return None
    except (ValueError, IndexError):
        return None
    path = os.path.join(os.path.dirname(onnxruntime.__file__), "capi", f"libonnxruntime.so.{version}")
    return path if os.path.exists(path) else None


def call(binary: str, arguments: list[str], seconds: float | None, env: dict[str, str]) -> Output:
    """Runs the command to its end. After the deadline it is ended, with whatever it started."""
    try:
        process = subprocess.Popen([binary, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=env, start_new_session=True)
    except OSError as e:
        raise Error(f"cannot be run: {e.strerror or e}", path=binary, needed="the command graft for this system",
                    fix="install a package that was built for it", kind="binary") from e
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _end(process)
        raise Error(f"found no end of graft {arguments[0]} after {seconds:g} s", path=binary, needed="an answer within the deadline",
                    fix=f"set {DEADLINE} to more seconds", kind="deadline") from None
    except BaseException:
        _end(process)
        raise
    if process.returncode < 0:
        raise Error(f"graft {arguments[0]} was ended by signal {-process.returncode}", path=binary, needed="an answer", kind="killed")
    return Output(process.returncode, out, err)


def _end(process: subprocess.Popen) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)  # its session is its own
    except OSError:
        pass
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
