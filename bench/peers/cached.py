"""Converted models, in the user's cache."""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path


def root():
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "graft" / "peers"


def folder(peer, subject, version, sources, write):
    """The folder that write(subject, folder) fills: made once for a version of the
    peer and the text of the modules that write it. It appears whole or not at all.
    """
    digest = hashlib.sha256(version.encode())
    for module in sources:
        digest.update(Path(module.__file__).read_bytes())
    path = root() / f"{peer}-{subject}-{digest.hexdigest()[:8]}"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = tempfile.mkdtemp(prefix=f".{peer}-{subject}-", dir=path.parent)
    try:
        write(subject, Path(staging))
        os.rename(staging, path)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return path
