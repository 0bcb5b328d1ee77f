"""The one form of errors: a path, what was found, what is needed, and the fix."""

from __future__ import annotations


class Error(Exception):
    """What graft says when it cannot do what it was asked for.

    path, found, needed and fix are the parts of the text; parts that an error does not have are "".
    """

    def __init__(self, found: str, *, path: str = "", needed: str = "", fix: str = "", kind: str = "") -> None:
        text = f"{path}: {found}" if path else found
        if needed:
            text += f", needed {needed}"
        if fix:
            text += f"; {fix}"
        super().__init__(text)
        self.path, self.found, self.needed, self.fix = path, found, needed, fix
        self.kind = kind or found  # errors of one kind are warned of once

    def __reduce__(self):
        return _again, (self.found, self.path, self.needed, self.fix, self.kind)


def _again(found: str, path: str, needed: str, fix: str, kind: str) -> Error:
    return Error(found, path=path, needed=needed, fix=fix, kind=kind)


class Left(Exception):
    """A session that stays as it is, for a reason that is no failure."""


def short(e: BaseException) -> str:
    """The text of an exception in one line."""
    return " ".join(str(e).split())[:500] or type(e).__name__
