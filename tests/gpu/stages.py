"""The stages of gpu-check: each runs programs and leaves what they said in the results.

As a program, with the path of a library: says as JSON whether that plugin runs on the first device.
"""

import concurrent.futures
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

# Names, and the share of --minutes that is gone when a stage ends at the latest.
SHARES = {"conformance": 0.35, "faults": 0.45, "plugins": 0.47, "sanitizer": 0.6, "timing": 0.82, "pytorch": 1.0}
NAMES = tuple(SHARES)

LONGEST = 3600.0  # seconds of one program where no --minutes bound it
NO_DEVICE = 4
NOT_THE_KERNEL = re.compile("driver version|no CUDA-capable|initialization error|out of memory|no kernel image")
SANITIZED = {False: 60, True: 10}  # problems a kernel, by --quick


def find_device(programs):
    """What bin/device says, with the driver's release; or None and why."""
    program = programs / "device"
    if not program.exists():
        return None, f"{program}: not there; unpack the bundle whole, or name the folder of the programs with --bin"
    try:
        said = subprocess.run([program], capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"{program}: does not run: {error}"
    if said.returncode == NO_DEVICE:
        return None, ("there is no CUDA device or no driver that serves it; run this on a machine with an NVIDIA GPU "
                      f"of compute capability 8.0 and driver 580 or later ({said.stderr.strip()})")
    try:
        device = json.loads(said.stdout)
    except ValueError:
        return None, f"{program}: ended with {said.returncode}: {(said.stderr or said.stdout).strip()}"
    device["driver"] = driver_release()
    return device, ""


def driver_release():
    try:
        said = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                              capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.splitlines()[0].strip() if said.returncode == 0 and said.stdout.strip() else None


def built(folder):
    """What the bundle was built from."""
    path = folder / "build.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"commit": "unknown"}


class Run:
    """One run of gpu-check over the programs of a folder."""

    def __init__(self, args, out, results):
        self.args, self.out, self.results = args, out, results
        self.start, self.lock = time.monotonic(), threading.Lock()
        self.deadline = self.start + LONGEST
        self.log = out / "log.txt"
        self.log.write_text("", encoding="utf-8")

    def programs(self, prefix):
        """Programs of a kind, by what stands behind its name."""
        paths = sorted(self.args.bin.glob(prefix + "-*"))
        return {path.name[len(prefix) + 1:]: path.absolute() for path in paths if os.access(path, os.X_OK)}

    def left(self):
        return self.deadline - time.monotonic()

    def run(self, command, seconds=None, **more):
        """Ends with the program's code and what it said; -1 when it took too long, and is killed with its children."""
        limit = min(seconds or LONGEST, max(self.left(), 1.0))
        began = time.monotonic()
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
            try:
                process = subprocess.Popen([str(part) for part in command], stdout=said, stderr=subprocess.STDOUT,
                                           stdin=subprocess.DEVNULL, start_new_session=True, **more)
                code = process.wait(limit)
            except OSError as error:
                code, text = -2, f"does not run: {error}"
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code = -1
            if code != -2:
                said.seek(0)
                text = said.read()
            if code == -1:
                text += f"\nkilled after {limit:.0f} s"
        with self.lock, self.log.open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(str(part) for part in command)}\n{text.rstrip()}\n"
                      f"ended with {code} after {time.monotonic() - began:.1f} s\n\n")
        return code, text

    def stage(self, name):
        """Runs one stage and says how it went: done, failed or unmeasured, and why."""
        print(f"{name} ...", flush=True)
        began = time.monotonic()
        if self.args.minutes:
            self.deadline = self.start + 60 * self.args.minutes * SHARES[name]
        else:
            self.deadline = began + LONGEST
        if self.left() <= 0:
            state, why = "unmeasured", "no time left"
        else:
            state, why = getattr(self, name)()
        seconds = time.monotonic() - began
        self.results["stages"][name] = {"state": state, "why": why, "seconds": round(seconds, 1)}
        print(f"{name}: {state}{', ' if why else ''}{why} ({seconds:.0f} s)", flush=True)

    def conform(self, name, program, first, problems, scratch):
        """Results of problems first to first + problems - 1 of one program; `fault` where it did not end well."""
        path = pathlib.Path(scratch) / f"{name}-{first}.json"
        soft = max(self.left() - 10, 1)
        code, text = self.run([program, "--problems", problems, "--first", first, "--seconds", f"{soft:.0f}",
                               "--json", path])
        result = {"problems": 0, "failed": 0, "worst_error": 0.0, "seconds": 0.0, "first_failure": "", "fault": ""}
        try:
            for r in json.loads(path.read_text(encoding="utf-8")):
                merge(result, r)
        except (OSError, ValueError):
            result["fault"] = f"wrote no results, ended with {code}: {last_line(text)}"
        # 1 says that problems failed, which the results count; 3 that the device was lost under one of them.
        if not result["fault"] and (code not in (0, 1, 3) or (code != 0 and result["failed"] == 0)):
            result["fault"] = f"ended with {code}: {last_line(text)}"
        return result

    def conform_all(self, programs, problems, shards):
        """Results by name. A program's problems are shared out to `shards` processes of it."""
        with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            size = -(-problems // shards)
            tasks = {name: [pool.submit(self.conform, name, program, first, min(size, problems - first), scratch)
                            for first in range(0, problems, size)] for name, program in programs.items()}
            out = {}
            for name, parts in tasks.items():
                out[name] = parts[0].result()
                for part in parts[1:]:
                    merge(out[name], part.result())
        return out

    def conformance(self):
        programs = self.programs("conform")
        if not programs:
            return "unmeasured", f"no programs in {self.args.bin}"
        shards = max(1, min(self.args.jobs // len(programs), 8))
        found = self.results["conformance"] = self.conform_all(programs, self.args.problems, shards)
        bad = [name for name, r in found.items() if r["failed"] or r["fault"]]
        for name in bad:
            print(f"  {name}: {found[name]['failed']} of {found[name]['problems']} failed; "
                  f"{found[name]['first_failure'] or found[name]['fault']}")
        if bad:
            return "failed", ", ".join(bad)
        return "done", f"{sum(r['problems'] for r in found.values()):,} problems of {len(found)} kernels"

    def faults(self):
        programs = self.programs("fault")
        if not programs:
            return "unmeasured", f"no programs in {self.args.bin}"
        found = self.conform_all(programs, self.args.fault_problems, 1)
        for name, r in found.items():
            r["kernel"] = re.sub(r"-\d+$", "", name)
            # Found is what conformance counted: a program that merely does not work here has found nothing.
            r["found"] = r["failed"] > 0 and not r["fault"] and not NOT_THE_KERNEL.search(r["first_failure"])
        self.results["faults"] = found
        missed = [name for name, r in found.items() if not r["found"]]
        if missed:
            return "failed", "not found: " + ", ".join(missed)
        return "done", f"all of {len(found)} found"

    def plugins(self):
        """Loads each CUDA library and asks whether it runs here."""
        paths = sorted((self.args.bin.parent / "plugins").glob("*/lib*_cuda.so"))
        if not paths:
            return "unmeasured", "no libraries"
        for path in paths:
            # In a process of its own: a driver can take its caller down.
            code, text = self.run([sys.executable, "-B", os.path.realpath(__file__), path.absolute()], 60)
            try:
                answer = json.loads(last_line(text))
            except ValueError:
                answer = {"score": 0, "why": f"ended with {code}: {last_line(text)}"}
            self.results["plugins"][path.parent.name] = answer
        bad = [name for name, r in self.results["plugins"].items() if r["score"] == 0]
        if bad:
            return "failed", "; ".join(f"{name}: {self.results['plugins'][name]['why']}" for name in bad)
        return "done", f"{len(paths)} libraries load and accept the device"

    def sanitizer(self):
        tool = shutil.which(self.args.sanitizer)
        if tool is None:
            return "unmeasured", f"no {self.args.sanitizer} on the PATH"
        broken = {"memcheck": "out-of-bounds", "racecheck": "missing-barrier"}
        states = [self.sanitize(tool, check, self.args.bin.absolute() / f"sanitizer-{broken[check]}")
                  for check in broken]
        words = "; ".join(f"{check}: {self.results['sanitizer'][check]['words']}" for check in broken)
        for state in ("unmeasured", "missed"):
            if state in states:
                return ("unmeasured" if state == "unmeasured" else "failed"), words
        return "done", words

    def sanitize(self, tool, check, broken):
        """One tool over the program that it must catch, then over some problems of every kernel."""
        result = self.results["sanitizer"][check] = {"state": "unmeasured", "words": "", "kernels": {}}
        caught, text = sanitized(self, tool, check, [broken])
        if caught is None:
            result["words"] = f"compute-sanitizer does not work here: {text}"
            return result["state"]
        if caught == 0:
            result["state"], result["words"] = "missed", f"did not catch {broken.name}"
            return result["state"]
        bad = []
        for kernel, program in self.programs("conform").items():
            if self.left() < 5:
                break
            errors, text = sanitized(self, tool, check,
                                     [program, "--problems", SANITIZED[self.args.quick], "--first", 1000000])
            if errors is None:
                continue
            result["kernels"][kernel] = errors
            if errors:
                bad.append(f"{kernel} ({errors})")
        result["state"] = "missed" if bad else "met"
        result["words"] = f"caught {broken.name}; " + (
            "errors in " + ", ".join(bad) if bad else f"{len(result['kernels'])} kernels clean")
        return result["state"]

    def timing(self):
        path = self.out / "timings.jsonl"
        path.write_text("", encoding="utf-8")
        programs, bad = self.programs("timing"), []
        if not programs:
            return "unmeasured", f"no programs in {self.args.bin}"
        for name, program in programs.items():
            if self.left() <= 0:
                return "unmeasured", f"no time left for {name} and what follows it"
            code, text = self.run([program, "--rounds", self.args.rounds, "--json", path.absolute(), "--append"])
            if code != 0:
                bad.append(f"{name} ended with {code}: {last_line(text)}")
        if bad:
            return "failed", "; ".join(bad)
        return "done", "" if self.results["machine"]["timed"] else "on the emulator: ran, not timed"

    def pytorch(self):
        script = pathlib.Path(os.path.realpath(__file__)).parent / "pytorch.py"
        path = self.out / "pytorch.jsonl"
        path.write_text("", encoding="utf-8")
        tiny = [] if self.results["machine"]["timed"] else ["--tiny", "--device", "cpu"]
        code, text = self.run([self.args.python, "-B", script, "--json", path.absolute(), "--rounds", self.args.rounds,
                               "--seconds", f"{max(self.left() - 20, 1):.0f}", *tiny])
        if code == 5:
            return "unmeasured", last_line(text)
        if code != 0:
            return "failed", f"ended with {code}: {last_line(text)}"
        return "done", ""


def merge(into, more):
    """Adds the counts of one result to another."""
    into["problems"] += more["problems"]
    into["failed"] += more["failed"]
    into["worst_error"] = max(into["worst_error"], more["worst_error"] or 0.0)
    into["seconds"] += more["seconds"]
    into["first_failure"] = into["first_failure"] or more["first_failure"]
    into["fault"] = into["fault"] or more.get("fault", "")


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"


def sanitized(run, tool, check, command):
    """What the tool counts over a program: errors, or None and why where it could not look."""
    code, text = run.run([tool, "--tool", check, *command])
    found = re.search(r"RACECHECK SUMMARY: (\d+) hazards?" if check == "racecheck" else r"ERROR SUMMARY: (\d+) error",
                      text)
    # A tool that the device refuses reports an error of its first call, and no kernel at all was run.
    refused = re.search(r"Device not supported|not supported on this device|Unable to attach|error 999", text)
    if refused or found is None or code == -1:
        return None, refused.group(0) if refused else last_line(text)
    return int(found.group(1)), ""


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
