"""What the package costs and brings, measured, interleaved:

    python measure.py load MODEL [ROUNDS]       time and peak of memory of one session, each in a process of its own
    python measure.py run MODEL [ROUNDS] [PADDING]
                                                runs of one session after another, beside what graft ab prints for the same inputs

run is for encoders: 32 rows, whose lengths are log-normal as those of graft ab are, the longest of 128 tokens.
"""

import json
import os
import statistics
import subprocess
import sys
import time

from common import CPU, HERE, graft, ort

import numpy as np

KINDS = ("plain", "graft")


def load(model, rounds=7):
    graft.enable(strict=True)
    ort.InferenceSession(model, providers=CPU)  # plans it
    found = {kind: [] for kind in KINDS}
    for n in range(rounds):
        for kind in KINDS if n % 2 else reversed(KINDS):
            p = subprocess.run([sys.executable, os.path.join(HERE, "measure.py"), "one", model, kind], check=True, capture_output=True, text=True)
            found[kind].append(json.loads(p.stdout))
    for what, unit in (("seconds", "s"), ("peak", "MB at the peak"), ("bytes_seconds", "s from bytes")):
        medians = {kind: statistics.median(x[what] for x in found[kind]) for kind in KINDS}
        print(f"load: {medians['plain']:.3f} without, {medians['graft']:.3f} with {unit}: {medians['graft'] / medians['plain']:.2f}x", flush=True)


def one(model, kind):
    """A process that makes one session by path, says what it took, and then one from bytes."""
    if kind == "graft":
        graft.enable(strict=True)
    start = time.perf_counter()
    s = ort.InferenceSession(model, providers=CPU)
    seconds = time.perf_counter() - start
    with open("/proc/self/status") as f:
        peak = next(int(line.split()[1]) / 1000 for line in f if line.startswith("VmHWM"))
    assert hasattr(s, "_graft") == (kind == "graft")
    del s
    with open(model, "rb") as f:
        data = f.read()
    ort.InferenceSession(data, providers=CPU)
    start = time.perf_counter()
    ort.InferenceSession(data, providers=CPU)
    print(json.dumps({"seconds": seconds, "peak": peak, "bytes_seconds": time.perf_counter() - start}))


def run(model, rounds=15, padding="exact"):
    sessions = {"plain": ort.InferenceSession(model, providers=CPU)}
    with graft.enabled(padding=padding, strict=True):
        sessions["graft"] = ort.InferenceSession(model, providers=CPU)
    rng = np.random.default_rng(1)
    lengths = np.exp(rng.normal(0, 0.5, 32))
    lengths = np.maximum(1, np.round(lengths / lengths.max() * 128)).astype(np.int64)
    mask = (np.arange(128) < lengths[:, None]).astype(np.int64)
    inputs = {i.name: mask if "mask" in i.name else np.zeros_like(mask) if "type" in i.name else rng.integers(1000, 20000, mask.shape)
              for i in sessions["plain"].get_inputs()}
    took = {kind: [] for kind in KINDS}
    for kind in KINDS * 2:
        sessions[kind].run(None, inputs)
    for _ in range(rounds):
        for kind in ("plain", "graft", "graft", "plain"):
            start = time.perf_counter()
            sessions[kind].run(None, inputs)
            took[kind].append(time.perf_counter() - start)
    ratio = statistics.median(took["plain"]) / statistics.median(took["graft"])
    least = min(took["plain"]) / min(took["graft"])
    print(f"run: {1e3 * statistics.median(took['plain']):.1f} ms without, {1e3 * statistics.median(took['graft']):.1f} ms with: {ratio:.2f}x, "
          f"of the least {least:.2f}x; {mask.mean():.2f} of the tokens are seen", flush=True)
    del sessions
    c = graft.ab(model, inputs, rounds=rounds, padding=padding)
    print(f"graft ab: {c.a.median_ms:.1f} ms without, {c.b.median_ms:.1f} ms with: {c.speedup.median:.2f}x, of the least "
          f"{min(c.a.times_ms) / min(c.b.times_ms):.2f}x; onnxruntime {c.environment.onnxruntime}, here {ort.__version__}")


if __name__ == "__main__":
    arguments = [int(x) if x.isdigit() else x for x in sys.argv[2:]]
    {"load": load, "one": one, "run": run}[sys.argv[1]](*arguments)
