"""Draws the speed-up over each peer, as the raw figures in a folder have it.

    chart.py bench/results/DATE      reads peer-*.json, writes peers.svg
"""

import json
import re
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

# The same figures give the same file.
matplotlib.rcParams["svg.hashsalt"] = "peers"

INK, BAR, NEEDED = "#333333", "#4878a8", "#c44e52"


def main(folder):
    files = sorted(folder.glob("peer-*.json"))
    if not files:
        sys.exit(f"{folder}: no figure of a peer (peer-*.json): make bench-peers measures them")
    figures = [json.loads(path.read_text()) for path in files]
    fig, axes = plt.subplots(figsize=(8, 0.6 * len(figures) + 1.6), layout="constrained")
    for y, figure in enumerate(reversed(figures)):
        detail = figure["outcome"]["detail"]
        speedup, (low, high) = detail["speedup"]["median"], detail["speedup"]["ci95"]
        needed = float(re.search(r"([\d.]+)x", figure["need"])[1])
        axes.barh(y, speedup, height=0.6, color=BAR)
        axes.plot([low, high], [y, y], color=INK, linewidth=1.2)
        axes.plot([needed, needed], [y - 0.4, y + 0.4], color=NEEDED, linewidth=2)
        axes.text(max(high, speedup) + 0.04, y,
                  f"{speedup:.2f}x   {detail['a']['tokens_per_second']:.1f} → {detail['b']['tokens_per_second']:.1f} tokens/s",
                  va="center", color=INK, fontsize=9)
    labels = [f"{f['outcome']['detail']['model']}, batch {f['outcome']['detail']['batch']}\n{f['outcome']['detail']['a']['name']}" for f in figures]
    axes.set_yticks(range(len(figures)), reversed(labels), fontsize=9)
    axes.set_xlim(0, 1.45 * max(f["outcome"]["detail"]["speedup"]["ci95"][1] for f in figures))
    axes.set_xlabel("times the peer's speed, beam 4, 64 new tokens; red: needed; line: 95 % of the ratio of medians", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    fig.savefig(folder / "peers.svg", metadata={"Date": None})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
