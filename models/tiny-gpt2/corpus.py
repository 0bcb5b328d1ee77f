"""Reads the training text out of two Debian packages and splits it.

The packages are fetched by name with ``apt-get download`` (or found in the
work folder) and unpacked there: nothing is installed and no root is needed.

  bible-kjv, bible-kjv-text   the King James Bible, one verse a line
  r-cran-janeaustenr          the six novels of Jane Austen

A document is a chapter. Every twentieth document of each source is held out:
no model, vocabulary or baseline sees it before the evaluation.
"""

import hashlib
import re
import struct
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("bible-kjv", "bible-kjv-text", "r-cran-janeaustenr")
HELD_OUT_EVERY = 20
# Of all documents joined with a form feed. Figures in the card belong to this text.
CORPUS_SHA256 = "8e68fae1b5383e049bda58c6a15c7adb7c49a01d196dd0dc46060ed6236886be"

BOOKS = {
    "Ge": "Genesis", "Exo": "Exodus", "Lev": "Leviticus", "Num": "Numbers", "Deu": "Deuteronomy",
    "Josh": "Joshua", "Jdgs": "Judges", "Ruth": "Ruth", "1Sm": "1 Samuel", "2Sm": "2 Samuel",
    "1Ki": "1 Kings", "2Ki": "2 Kings", "1Chr": "1 Chronicles", "2Chr": "2 Chronicles",
    "Ezra": "Ezra", "Neh": "Nehemiah", "Est": "Esther", "Job": "Job", "Psa": "Psalm",
    "Prv": "Proverbs", "Eccl": "Ecclesiastes", "SSol": "Song of Solomon", "Isa": "Isaiah",
    "Jer": "Jeremiah", "Lam": "Lamentations", "Eze": "Ezekiel", "Dan": "Daniel", "Hos": "Hosea",
    "Joel": "Joel", "Amos": "Amos", "Obad": "Obadiah", "Jonah": "Jonah", "Mic": "Micah",
    "Nahum": "Nahum", "Hab": "Habakkuk", "Zep": "Zephaniah", "Hag": "Haggai", "Zec": "Zechariah",
    "Mal": "Malachi", "Mat": "Matthew", "Mark": "Mark", "Luke": "Luke", "John": "John",
    "Acts": "Acts", "Rom": "Romans", "1Cor": "1 Corinthians", "2Cor": "2 Corinthians",
    "Gal": "Galatians", "Eph": "Ephesians", "Phi": "Philippians", "Col": "Colossians",
    "1Th": "1 Thessalonians", "2Th": "2 Thessalonians", "1Tim": "1 Timothy", "2Tim": "2 Timothy",
    "Titus": "Titus", "Phmn": "Philemon", "Heb": "Hebrews", "Jas": "James", "1Pet": "1 Peter",
    "2Pet": "2 Peter", "1Jn": "1 John", "2Jn": "2 John", "3Jn": "3 John", "Jude": "Jude",
    "Rev": "Revelation",
}
VERSE = re.compile(r"^(\w+?)(\d+):(\d+) (.*)$")
CHAPTER = re.compile(r"^CHAPTER\s+([IVXLC]+|\d+)\.?$", re.IGNORECASE)
VOLUME = re.compile(r"^VOLUME\s+([IVXLC]+|\d+)\.?$", re.IGNORECASE)
END = re.compile(r"^(THE END|FINIS)\.?$", re.IGNORECASE)
QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2014": "--", "_": None})


@dataclass(frozen=True)
class Document:
    source: str  # "bible" or "austen"
    text: str  # one paragraph or verse a line
    held_out: bool


def unpack(work: Path) -> Path:
    """Downloads the packages into work/packages and unpacks them into work/root."""
    work = work.resolve()
    store, root = work / "packages", work / "root"
    store.mkdir(parents=True, exist_ok=True)
    for name in PACKAGES:
        if not list(store.glob(name + "_*.deb")):
            subprocess.run(["apt-get", "download", name], cwd=store, check=True)
        deb = sorted(store.glob(name + "_*.deb"))[-1]
        subprocess.run(["dpkg-deb", "-x", str(deb), str(root)], check=True)
    return root


def bible(root: Path) -> list[str]:
    """One text a chapter: a heading, then one verse a line."""
    # The program looks for its text in the current directory first.
    command = [str(root / "usr/bin/bible"), "-f", "-l", "1000000", "Gen1:1-Rev22:21"]
    listing = subprocess.run(command, cwd=root / "usr/lib", check=True, capture_output=True).stdout.decode("ascii")
    chapters: dict[tuple[str, int], list[str]] = {}
    for line in listing.splitlines():
        match = VERSE.match(line)
        if match is None:
            raise ValueError(f"bible: found line {line!r}, needed 'Book1:1 text'")
        chapters.setdefault((match[1], int(match[2])), []).append(match[4].strip())
    return [f"{BOOKS[book]} {number}\n" + "\n".join(verses) for (book, number), verses in chapters.items()]


def r_strings(serialized: bytes) -> list[str]:
    """The elements of a character vector in R's XDR serialization, version 3."""
    if serialized[:2] != b"X\n":
        raise ValueError(f"R data: found header {serialized[:2]!r}, needed XDR (b'X\\n')")
    (name_length,) = struct.unpack_from(">i", serialized, 14)
    at = 18 + name_length
    flags, count = struct.unpack_from(">ii", serialized, at)
    if flags & 0xFF != 16:
        raise ValueError(f"R data: found type {flags & 0xFF}, needed 16 (character vector)")
    at += 8
    lines = []
    for _ in range(count):
        _, length = struct.unpack_from(">ii", serialized, at)
        at += 8
        lines.append(serialized[at:at + length].decode("utf-8"))
        at += length
    return lines


def austen(root: Path) -> list[str]:
    """One text a chapter: a heading, then one paragraph a line."""
    store = (root / "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb").read_bytes()
    texts, at = [], 0
    while at < len(store):
        # Each object: its unpacked length in 4 bytes, then a zlib stream.
        stream = zlib.decompressobj()
        lines = r_strings(stream.decompress(store[at + 4:]))
        at = len(store) - len(stream.unused_data)
        texts.extend(split_novel(lines))
    return texts


def split_novel(lines: list[str]) -> list[str]:
    chapters: list[list[str]] = []
    paragraph: list[str] = []
    for line in lines + [""]:
        line = " ".join(line.translate(QUOTES).split())
        heading = CHAPTER.match(line)
        if line and not (heading or VOLUME.match(line) or END.match(line)):
            paragraph.append(line)
            continue
        if paragraph and chapters:  # what stands before the first chapter is title pages
            chapters[-1].append(" ".join(paragraph))
        paragraph = []
        if heading:
            chapters.append([f"Chapter {heading[1]}"])
    return ["\n".join(chapter) for chapter in chapters if len(chapter) > 1]


def load(work: Path) -> list[Document]:
    """All documents in order, the same every time; fails if the packages' text has changed."""
    root = unpack(work)
    documents = []
    for source, texts in (("bible", bible(root)), ("austen", austen(root))):
        for i, text in enumerate(texts):
            documents.append(Document(source, text, i % HELD_OUT_EVERY == HELD_OUT_EVERY - 1))
    digest = hashlib.sha256("\f".join(d.text for d in documents).encode()).hexdigest()
    if digest != CORPUS_SHA256:
        raise ValueError(f"corpus: found sha256 {digest}, needed {CORPUS_SHA256}: the packages carry another text")
    return documents
