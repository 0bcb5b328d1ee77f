#!/usr/bin/env python3
"""Runs a plugin's operators inside ONNX Runtime, and holds what comes out against the plugin's CPU variant.

    runtime.py --cases FOLDER --library FILE [--provider CPUExecutionProvider] [--json FILE] [--probe]

FOLDER is what cases/main.go wrote for the plugin: models of one node, inputs, and the CPU variant's answers. Needs the
Python packages onnxruntime (onnxruntime-gpu for CUDA) and numpy. --probe only says which release there is. Records are
JSON, one a line: a case that `agrees`, is `wrong`, has `failed`, or is `refused`, which a case that is optional may be.

Ends with 0, 1 when a case was wrong or failed, or 5 where ONNX Runtime or the provider is not there.
"""

import argparse
import ctypes
import importlib.util
import json
import pathlib
import sys

DTYPES = {"bool": "bool", "float32": "<f4", "float64": "<f8", **{f"{sign}int{bits}": f"<{sign or 'i'}{bits // 8}"
          for sign in ("", "u") for bits in (8, 16, 32, 64)}}


# What ONNX Runtime's CUDA provider is linked to, in an order in which each finds those it needs.
CUDA_LIBRARIES = ("libcudart", "libnvrtc", "libcublasLt", "libcublas", "libcurand", "libcufft", "libcudnn")


def load_cuda():
    """CUDA's libraries of the packages nvidia-*, which no loader would find by itself; else those of PyTorch."""
    nvidia = importlib.util.find_spec("nvidia")
    found = [path for name in CUDA_LIBRARIES for folder in (nvidia.submodule_search_locations or () if nvidia else ())
             for path in sorted(pathlib.Path(folder).glob(f"*/lib/{name}.so.*"))]
    for path in found:
        try:
            ctypes.CDLL(str(path))
        except OSError:
            pass  # of another release of CUDA, perhaps: a session says what is missing
    if not found:
        try:
            import torch  # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
        except (ImportError, OSError):
            pass


def identity():
    """The smallest model there is, as bytes: y = x."""
    part = lambda number, payload: bytes([number << 3 | 2, len(payload)]) + payload  # noqa: E731
    kind = part(2, part(1, b"\x08\x01" + part(2, part(1, b"\x08\x01"))))  # float32 [1]
    graph = (part(1, part(1, b"x") + part(2, b"y") + part(4, b"Identity")) + part(2, b"g") +
             part(11, part(1, b"x") + kind) + part(12, part(1, b"y") + kind))
    return b"\x08\x08" + part(7, graph) + part(8, b"\x10\x11")


def load(provider):
    """The module, or None and why."""
    if provider == "CUDAExecutionProvider":
        load_cuda()
    try:
        import onnxruntime as ort  # pylint: disable=import-outside-toplevel
    except (ImportError, OSError) as error:
        return None, f"ONNX Runtime is not there: {error}"
    if provider not in ort.get_available_providers():
        return None, f"onnxruntime {ort.__version__} of {ort.__file__} has no {provider}"
    return ort, ""


def works(ort, provider):
    """Empty, or why a session of the provider cannot be had."""
    try:
        session = ort.InferenceSession(identity(), providers=[provider])
    except Exception as error:  # pylint: disable=broad-exception-caught
        return f"{provider}: {error}"
    if session.get_providers()[0] != provider:
        return f"{provider} does not load here; a session says {session.get_providers()[0]}"
    return ""


def array(np, record, data):
    raw = data[record["offset"]:record["offset"] + record["bytes"]]
    return np.frombuffer(raw, dtype=DTYPES[record["dtype"]]).reshape(record["shape"])


def difference(np, got, want, case):
    """What is wrong, or None, and the largest error as a share of what is allowed."""
    if got.shape != want.shape:
        return f"has the shape {list(got.shape)}, the CPU variant gives {list(want.shape)}", 0.0
    if want.dtype.kind != "f":
        same = got == want
        error = np.where(same, 0.0, np.inf)
    else:
        g, w = got.astype("f8"), want.astype("f8")
        same = (g == w) | (np.isnan(g) & np.isnan(w))
        with np.errstate(invalid="ignore"):
            error = np.where(same, 0.0, np.abs(g - w) / (case["absolute"] + case["relative"] * np.abs(w)))
        error = np.where(np.isfinite(error), error, np.inf)
    # Each of the two may be as far from the truth as is allowed.
    worst = float(error.max()) / 2 if error.size else 0.0
    if worst <= 1:
        return None, worst
    at = np.unravel_index(int(error.argmax()), error.shape)
    return f"{[int(i) for i in at]} is {got[at]}, the CPU variant gives {want[at]}", worst


def run(ort, np, args, case, data):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("graft.engine_operators", "1")  # the cases are ours
    options.register_custom_ops_library(str(args.library))
    providers = [args.provider] + (["CPUExecutionProvider"] if args.provider != "CPUExecutionProvider" else [])
    try:
        session = ort.InferenceSession(str(args.cases / case["model"]), options, providers=providers)
    except Exception as error:  # pylint: disable=broad-exception-caught
        return ("refused" if case["optional"] else "failed"), f"no session: {error}", None
    if session.get_providers()[0] != args.provider:
        return "failed", f"the session is on {session.get_providers()[0]}, not on {args.provider}", None
    feeds = {x["name"]: array(np, x, data) for x in case["inputs"]}
    try:
        outputs = session.run([y["name"] for y in case["outputs"]], feeds)
    except Exception as error:  # pylint: disable=broad-exception-caught
        return ("refused" if case["optional"] else "failed"), str(error), None
    worst = 0.0
    for got, y in zip(outputs, case["outputs"]):
        wrong, error = difference(np, got, array(np, y, data), case)
        worst = max(worst, error)
        if wrong:
            return "wrong", f"output {y['name']} {wrong}", None
    return "agrees", "", worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=pathlib.Path, help="folder of one plugin's cases")
    parser.add_argument("--library", type=pathlib.Path)
    parser.add_argument("--provider", default="CUDAExecutionProvider")
    parser.add_argument("--json", help="file of the records, which are appended")
    parser.add_argument("--probe", action="store_true")
    args = parser.parse_args()
    ort, why = load(args.provider)
    if ort is None:
        print(why)
        return 5
    if args.probe:
        why = works(ort, args.provider)
        if why:
            print(why)
            return 5
        print(f"onnxruntime {ort.__version__} of {pathlib.Path(ort.__file__).parent}")
        return 0
    import numpy as np  # pylint: disable=import-outside-toplevel

    data = (args.cases / "cases.bin").read_bytes()
    failed = 0
    for case in json.loads((args.cases / "cases.json").read_text(encoding="utf-8")):
        state, why, worst = run(ort, np, args, case, data)
        failed += state in ("wrong", "failed")
        record = {"record": "operator", "plugin": args.cases.name, "operator": case["operator"], "case": case["name"],
                  "type": case["type"], "state": state, "why": why, "worst_error": worst}
        print(f"  {case['operator']} {case['type']} {case['name']}: {state}{', ' if why else ''}{why}", flush=True)
        if args.json:
            with open(args.json, "a", encoding="utf-8") as out:
                out.write(json.dumps(record) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
