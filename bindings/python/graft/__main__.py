"""python -m graft COMMAND ...: graft's command line."""

from __future__ import annotations

import os
import sys

from . import _binary
from ._errors import Error


def main() -> int:
    """Becomes the command, with this process's arguments."""
    try:
        binary = _binary.find()
        try:
            env = _binary.environment()
        except ImportError:  # most commands need no runtime
            env = dict(os.environ)
        os.execve(binary, [binary, *sys.argv[1:]], env)
    except Error as e:
        print(f"graft: {e}", file=sys.stderr)
    except OSError as e:
        print(f"graft: {binary}: cannot be run: {e.strerror}; install a package that was built for this system", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
