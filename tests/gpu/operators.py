"""Stages of gpu-check about plugins: their libraries load here, and their operators run inside ONNX Runtime.

As a program, with the path of a library: says as JSON whether that plugin runs on the first device.
"""

import ctypes
import json
import os
import pathlib
import shutil
import sys
import tempfile

from words import last_line, records

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = "onnxruntime-gpu==1.31.1"


def libraries(run):
    device = "_cuda" if run.args.provider == "CUDAExecutionProvider" else ""
    folder = run.args.plugins or run.args.bin.parent / "plugins"
    return {path.name: path / f"lib{path.name.replace('-', '_')}{device}.so" for path in sorted(folder.glob("*"))
            if (path / f"lib{path.name.replace('-', '_')}{device}.so").exists()}


def plugins(run):
    """Loads each CUDA library and asks whether it runs here."""
    found = libraries(run)
    if not found or run.args.provider != "CUDAExecutionProvider":
        return "unmeasured", "no CUDA libraries"
    for name, path in found.items():
        # In a process of its own: a driver can take its caller down.
        code, text = run.run([sys.executable, "-B", HERE / "operators.py", path.absolute()], 60)
        try:
            answer = json.loads(last_line(text))
        except ValueError:
            answer = {"score": 0, "why": f"ended with {code}: {last_line(text)}"}
        run.results["plugins"][name] = answer
        run.save()
    bad = [f"{name}: {r['why']}" for name, r in run.results["plugins"].items() if r["score"] == 0]
    if bad:
        return "failed", "; ".join(bad)
    return "done", f"{len(found)} libraries load and accept the device"


def find_python(run):
    """A Python whose ONNX Runtime has the provider, and its environment; or None and what was found."""
    environment = dict(os.environ)
    if run.args.onnxruntime:
        folder = str(run.args.onnxruntime.absolute())
        environment["PYTHONPATH"] = folder + os.pathsep + environment.get("PYTHONPATH", "")
    candidates = [run.args.python, sys.executable, *filter(None, map(shutil.which, ("python3", "python")))]
    why = []
    for python in dict.fromkeys(map(str, candidates)):
        code, text = run.run([python, "-B", HERE / "runtime.py", "--probe", "--provider", run.args.provider], 120,
                             env=environment)
        if code == 0:
            return python, environment, last_line(text)
        why.append(f"{python}: {last_line(text)}")
    return None, environment, "; ".join(why)


def runtime(run):
    """Every operator of every plugin inside ONNX Runtime, against what the plugin's CPU variant gave."""
    folder = run.args.cases or run.args.bin.parent / "cases"
    found = {name: path for name, path in libraries(run).items() if (folder / name / "cases.json").exists()}
    if not found:
        return "unmeasured", f"no cases of plugins in {folder}"
    python, environment, words = find_python(run)
    if python is None:
        return "unmeasured", (f"ONNX Runtime is not there ({words}); elsewhere: pip install --target onnxruntime-gpu "
                              f"{PACKAGE}, and here: --onnxruntime onnxruntime-gpu")
    results, bad = run.results["operators"], []
    results.update(runtime=words, provider=run.args.provider, plugins={})
    for name, path in found.items():
        with tempfile.TemporaryDirectory() as scratch:
            out = pathlib.Path(scratch) / "operators"
            code, text = run.run([python, "-B", HERE / "runtime.py", "--cases", (folder / name).absolute(),
                                  "--library", path.absolute(), "--provider", run.args.provider, "--json", out], 180,
                                 env=environment)
            said = records(out)
        count = lambda *states: [r for r in said if r["state"] in states]  # noqa: E731
        # pylint: disable=cell-var-from-loop
        results["plugins"][name] = {
            "agree": len(count("agrees")), "refused": len(count("refused")), "wrong": count("wrong", "failed"),
            "types": sorted({r["type"] for r in count("agrees")}),
            "worst_error": max((r["worst_error"] for r in count("agrees")), default=None),
            "fault": "" if code in (0, 1) else f"ended with {code}: {last_line(text)}"}
        run.save()
        if code == 0 and count("agrees"):
            continue
        first = next(iter(count("wrong", "failed")), None)
        bad.append(f"{name}: " + (f"{first['operator']} {first['type']}, {first['case']}: {first['why']}" if first else
                                  f"ended with {code}: {last_line(text)}"))
    if bad:
        return "failed", "; ".join(bad)
    agree = sum(r["agree"] for r in results["plugins"].values())
    refused = sum(r["refused"] for r in results["plugins"].values())
    return "done", (f"{agree} cases of {len(found)} plugins agree with the CPU variants" +
                    (f", {refused} in types that are not taken" if refused else "") + f"; {words}")


class _Message(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint64), ("next", ctypes.c_void_p), ("text", ctypes.c_char_p),
                ("capacity", ctypes.c_uint64)]


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _Probed(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint64), ("next", ctypes.c_void_p), ("score", ctypes.c_int32),
                ("reserved", ctypes.c_uint32)]


class _Plugin(ctypes.Structure):
    """The head of graft_plugin in abi/graft_plugin.h."""

    _fields_ = [("size", ctypes.c_uint64), ("next", ctypes.c_void_p), ("abi_major", ctypes.c_uint32),
                ("abi_minor", ctypes.c_uint32), ("describe", ctypes.c_void_p),
                ("probe", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(_Device), ctypes.POINTER(_Probed),
                                           ctypes.POINTER(_Message)))]


def probe(path):
    """A library's score for the first CUDA device, and its words where that is 0."""
    try:
        library = ctypes.CDLL(str(path.absolute()))
        library.graft_plugin_v1.restype = ctypes.POINTER(_Plugin)
        plugin = library.graft_plugin_v1().contents
    except (OSError, AttributeError) as error:
        return {"score": 0, "why": str(error)}
    room = ctypes.create_string_buffer(4096)
    device, probed = _Device(2, 0), _Probed(ctypes.sizeof(_Probed), None, 0, 0)
    message = _Message(ctypes.sizeof(_Message), None, ctypes.cast(room, ctypes.c_char_p), len(room))
    code = plugin.probe(ctypes.byref(device), ctypes.byref(probed), ctypes.byref(message))
    if code != 0:
        return {"score": 0, "why": f"probe answered {code}: {room.value.decode(errors='replace')}"}
    return {"score": probed.score, "why": room.value.decode(errors="replace")}


if __name__ == "__main__":
    print(json.dumps(probe(pathlib.Path(sys.argv[1]))))
