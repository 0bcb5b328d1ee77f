"""What programs of gpu-check say, read."""

import json
import re


def last_line(text):
    lines = [line for line in re.split(r"[\r\n]+", text) if line.strip()]
    return lines[-1].strip()[:300] if lines else "it said nothing"


def records(path):
    """JSON lines; one that a program was cut off in is left out."""
    if not path.exists():
        return []
    out = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            out.append(json.loads(line))
        except ValueError:
            continue
    return out
