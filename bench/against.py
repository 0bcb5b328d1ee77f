#!/usr/bin/env python3
"""Compares two builds of graft: that nothing became slower.

    bench/against.py OLD NEW [--rounds 4] [--only generate-bart]

OLD and NEW are checkouts in which `make graft` and `go build -o bin/bench ./bench` were run. Every measurement is a
process of its own, in the order old, new, new, old. Steps are the patched side of `graft ab`; generations are those of
the figures of the same name, without the exported side; openings are processes that open a folder and generate one
token. Models come from `go run ./bench`, in the user's cache.

Prints for each figure the median of the old build's times over the median of the new one's, with a bootstrap interval
of 95 %, and ends with 1 where a ratio is below 0.98.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

STEPS = {
    "gpt2-long": ["batch_size=4", "sequence_length=1", "past_sequence_length=960"],
    "gpt2-short": ["batch_size=1", "sequence_length=1", "past_sequence_length=16"],
}
GENERATIONS = {  # subject, inputs, tokens of each, seed, repetition penalty: as in generate.go
    "generate-gpt2": ("gpt2-124m", 1, 704, 1, 1.3),
    "generate-gpt2-batch4": ("gpt2-124m", 4, 704, 1, 1.3),
    "generate-bart": ("bart-large", 4, 1024, 3, 1.2),
}
OPENINGS = {"opening-gpt2": "gpt2-124m", "opening-bart": "bart-large"}
LEAST = 0.98


def model(subject):
    """The newest folder of a subject in the user's cache."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "graft/models"
    found = sorted(cache.glob(f"{subject}-????????"), key=lambda p: p.stat().st_mtime)
    if not found:
        sys.exit(f"{cache}: found no {subject}; go run ./bench -only generate makes it")
    return found[-1]


def graft(tree, arguments, text=None):
    """What a program of a build prints, as JSON."""
    plugins = str(tree / "build/plugins")
    environment = dict(os.environ, GRAFT_PLUGIN_PATH=plugins, GRAFT_PLUGIN_UNVERIFIED="1")
    done = subprocess.run([str(tree / arguments[0]), *arguments[1:]], input=text, env=environment, check=True,
                          stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def step(tree, name):
    """Milliseconds of a patched step."""
    lengths = [word for length in STEPS[name] for word in ("--dim", length)]
    path = str(model("gpt2-124m") / "model.onnx")
    return graft(tree, ["bin/graft", "ab", path, *lengths, "--rounds", "50", "-o", "json"])["b"]["median_ms"]


def generate(tree, subject, batch, prompt, tokens, seed, search):
    """What a process that generates once says of itself."""
    # Builds before strategies had names call them by the plugin.
    job = {"Folder": str(model(subject)), "Keep": "flash-decode", "Strategy": "keys_values", "Batch": batch,
           "Prompt": prompt, "Tokens": tokens, "Search": dict(search, max_new_tokens=tokens), "Seed": seed}
    return graft(tree, ["bin/bench", "generate-one"], json.dumps(job))


def generation(tree, name):
    """Seconds of a generation, opening aside."""
    subject, batch, prompt, seed, penalty = GENERATIONS[name]
    return generate(tree, subject, batch, prompt, 64, seed, {
        "num_beams": 4, "eos_token_id": [], "no_repeat_ngram_size": 3, "forced_eos_token_id": None,
        "early_stopping": False, "repetition_penalty": penalty})["seconds"]


def opening(tree, name):
    """Seconds of a process that opens a folder; its peak RSS goes to PEAKS."""
    start = time.monotonic()
    said = generate(tree, OPENINGS[name], 1, 8, 1, 1, {"num_beams": 1})
    PEAKS.setdefault((name, tree), []).append(said.get("peak_rss_bytes", said.get("peak_bytes")))
    return time.monotonic() - start


PEAKS = {}


def interval(old, new, resamples=2000):
    """The middle 95 % of the ratio of medians over resampled times."""
    source = random.Random(1)
    ratios = sorted(statistics.median(source.choices(old, k=len(old))) / statistics.median(source.choices(new, k=len(new)))
                    for _ in range(resamples))
    return ratios[int(0.025 * resamples)], ratios[int(0.975 * resamples)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    slower = False
    for name, measure in [(n, step) for n in STEPS] + [(n, generation) for n in GENERATIONS] + [(n, opening) for n in OPENINGS]:
        if chosen.only and chosen.only != name:
            continue
        old, new = [], []
        for _ in range(chosen.rounds):
            for tree, times in ((chosen.old, old), (chosen.new, new), (chosen.new, new), (chosen.old, old)):
                times.append(measure(tree, name))
        ratio, (low, high) = statistics.median(old) / statistics.median(new), interval(old, new)
        slower = slower or ratio < LEAST
        print(f"{name:22} {ratio:.3f}x (95 % {low:.3f} to {high:.3f}), {len(old)} processes a side; "
              f"medians {statistics.median(old):.4g} and {statistics.median(new):.4g}", flush=True)
        if measure is opening:
            peaks = [statistics.median(PEAKS[name, tree]) / 1e6 for tree in (chosen.old, chosen.new)]
            print(f"{'':22} peak RSS {peaks[0]:.0f} and {peaks[1]:.0f} MB", flush=True)
    sys.exit(slower)


if __name__ == "__main__":
    main()
