"""Runs models and their patched files in Python's onnxruntime, and compares.

Reads a JSON list of jobs from standard input, each

    {"name": ..., "model": PATH, "patched": PATH, "libraries": [PATH, ...], "inputs": {NAME: PATH}}

with inputs as serialized TensorProto, and writes one JSON object a line: the
runtime's version, then for each job its name and either "error" with "stage"
("model", "patched" or "run"), or "outputs" with how many elements disagree.
"""

import json
import sys

import numpy as np
import onnx
import onnxruntime as ort

# What counts as the same answer: |b - a| <= absolute + relative * |a|.
TOLERANCE = {np.dtype(np.float32): (1e-5, 1e-4), np.dtype(np.float16): (2.5e-3, 1e-3)}


def session(path, libraries):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    for library in libraries:
        options.register_custom_ops_library(library)
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def read(path):
    with open(path, "rb") as f:
        return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(f.read()))


def compare(name, a, b):
    result = {"name": name, "type": str(a.dtype), "shape": list(a.shape), "size": int(a.size),
              "finite": int(np.count_nonzero(np.isfinite(a))), "disagree": int(a.size), "max_absolute": 0.0}
    if a.dtype != b.dtype or a.shape != b.shape:
        result["problem"] = f"patched is {b.dtype}{list(b.shape)}"
        return result
    if a.dtype not in TOLERANCE:
        result["disagree"] = int(np.count_nonzero(a != b))
        return result
    absolute, relative = TOLERANCE[a.dtype]
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        distance = np.abs(b - a)
        agree = (a == b) | (np.isnan(a) & np.isnan(b)) | (distance <= absolute + relative * np.abs(a))
    result["disagree"] = int(np.count_nonzero(~agree))
    finite = distance[np.isfinite(distance)]
    result["max_absolute"] = float(finite.max()) if finite.size else 0.0
    return result


def run(job):
    stage = "model"
    try:
        inputs = {name: read(path) for name, path in job["inputs"].items()}
        unpatched = session(job["model"], [])
        stage = "patched"
        # The order in which plugins are registered must not matter.
        patched = [session(job["patched"], order) for order in orders(job["libraries"])]
        stage = "run"
        names = [o.name for o in unpatched.get_outputs()]
        want = unpatched.run(names, inputs)
        outputs = []
        for s in patched:
            found = s.run(names, inputs)
            outputs += [compare(*three) for three in zip(names, want, found)]
        return {"name": job["name"], "outputs": outputs}
    except Exception as e:  # onnxruntime's errors have no common base
        return {"name": job["name"], "stage": stage, "error": f"{type(e).__name__}: {e}"}


def orders(libraries):
    return [libraries] if len(libraries) < 2 else [libraries, libraries[::-1]]


def main():
    print(json.dumps({"version": ort.__version__}), flush=True)
    for job in json.load(sys.stdin):
        print(json.dumps(run(job)), flush=True)


if __name__ == "__main__":
    main()
