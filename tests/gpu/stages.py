"""The stages of gpu-check, the parts that they make, and how their programs are run.

What a stage does stands in proving.py (answers), speed.py (times) and operators.py (plugins).
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import operators
import proving
import speed

# Of each stage: the part it belongs to, what it does, and its share of a part's time. What a stage leaves of its time
# goes to those after it.
STAGES = {
    "peak": (1, speed.peak, 25),
    "quick": (1, proving.quick, 70),
    "plugins": (1, operators.plugins, 10),
    "runtime": (1, operators.runtime, 75),
    "timing": (1, speed.timing, 360),
    "pytorch": (2, speed.pytorch, 220),
    "variants": (2, speed.variants, 120),
    "counters": (2, speed.counters, 200),
    "conformance": (3, proving.conformance, 330),
    "faults": (3, proving.faults, 90),
    "sanitizer": (3, proving.sanitizer, 120),
}
PART_MINUTES = 9
ENDING = 6.0  # seconds reserved for the end
LONGEST = 3600.0  # seconds of one program where no --minutes bound it
NO_DEVICE = 4
LOGGED = 100_000  # characters of what one program says, from its begin and from its end
LOG_BYTES = 8 << 20


def of_part(part):
    return [name for name, (of, _, _) in STAGES.items() if of == part]


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
        return None, ("there is no CUDA device or no driver that supports it; run this on a machine with an NVIDIA GPU "
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


class Stopped(Exception):
    """A signal has come."""


PRCTL = ctypes.CDLL(None).prctl


def die_with_parent():
    """A program must not outlive gpu-check, whatever ends it: it would disturb what is timed next."""
    PRCTL(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Run:
    """One run of gpu-check over the programs of a folder. `save` writes the results as they stand."""

    def __init__(self, args, out, results, save, start):
        self.args, self.out, self.results, self.save_results = args, out, results, save
        self.start, self.lock = start, threading.RLock()
        self.deadline = self.start + LONGEST
        self.stopped, self.children = False, set()
        self.log = out / "log.txt"
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES:
            self.log.write_bytes(self.log.read_bytes()[-LOG_BYTES // 2:])

    def save(self):
        with self.lock:
            self.save_results()

    def programs(self, prefix):
        """Programs of a kind, by what stands after its name."""
        paths = sorted(self.args.bin.glob(prefix + "-*"))
        return {path.name[len(prefix) + 1:]: path.absolute() for path in paths if os.access(path, os.X_OK)}

    def left(self):
        return self.deadline - time.monotonic()

    def tool(self, name):
        return shutil.which(str(name))

    def run(self, command, seconds=None, **more):
        """Ends with the program's code and what it said; -1 when it took too long, and is killed with its children."""
        limit = min(seconds or LONGEST, max(self.left(), 1.0))
        began, words = time.monotonic(), [str(part) for part in command]
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
            process = None
            try:
                with self.lock:
                    if self.stopped:
                        return -1, "not begun: stopped by a signal"
                    process = subprocess.Popen(  # pylint: disable=subprocess-popen-preexec-fn
                        words, stdout=said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                        start_new_session=True, preexec_fn=die_with_parent, **more)
                    self.children.add(process)
                if self.stopped:  # while it began, when a signal could not see it
                    self.kill(process)
                code = process.wait(limit)
            except OSError as error:
                code, text = -2, f"does not run: {error}"
            except subprocess.TimeoutExpired:
                self.kill(process)
                process.wait()
                code = -1
            finally:
                self.children.discard(process)
            if code != -2:
                said.seek(0)
                text = said.read()
            if code == -1:
                text += f"\nkilled after {limit:.0f} s"
        self.note(f"$ {' '.join(words)}\n{shortened(text.rstrip())}\n"
                  f"ended with {code} after {time.monotonic() - began:.1f} s\n\n")
        return code, text

    def note(self, text):
        with self.lock, self.log.open("a", encoding="utf-8") as log:
            log.write(text)

    @staticmethod
    def kill(process):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def stop(self, *_):
        """What a signal does: ends all programs; the stage that runs ends as unmeasured, with what it has."""
        if self.stopped:
            return
        self.stopped = True
        for process in list(self.children):
            self.kill(process)
        raise Stopped

    def all(self, names):
        """Runs stages one after another."""
        shares = [STAGES[name][2] for name in names]
        for i, name in enumerate(names):
            if self.args.minutes:
                total = 60 * self.args.minutes
                total -= min(ENDING, total / 10)
                self.deadline = self.start + total * sum(shares[:i + 1]) / sum(shares)
            else:
                self.deadline = time.monotonic() + LONGEST
            self.stage(name)

    def stage(self, name):
        """Runs one stage and says how it went: done, failed or unmeasured, and why."""
        print(f"{name} ...", flush=True)
        began = time.monotonic()
        date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        entry = self.results["stages"][name] = {"state": "unmeasured", "why": "ended before it was done",
                                                "seconds": 0.0, "date": date}
        for key in RESULTS.get(name, ()):
            self.results[key] = {}
        self.save()  # a run that is killed leaves this
        try:
            if self.left() <= 0:
                entry["why"] = "no time left"
            else:
                entry["state"], entry["why"] = STAGES[name][1](self)
        except Stopped:
            entry["why"] = "stopped by a signal"
            raise
        finally:
            entry["seconds"] = round(time.monotonic() - began, 1)
            self.save()
            why = entry["why"]
            print(f"{name}: {entry['state']}{', ' if why else ''}{why} ({entry['seconds']:.0f} s)", flush=True)


# What a stage writes of the results, and begins anew.
RESULTS = {"peak": ("matrix",), "quick": ("quick",), "plugins": ("plugins",), "runtime": ("operators",),
           "counters": ("counters",), "conformance": ("conformance",), "faults": ("faults",),
           "sanitizer": ("sanitizer",)}


def shortened(text):
    if len(text) <= 2 * LOGGED:
        return text
    return f"{text[:LOGGED]}\n... {len(text) - 2 * LOGGED} characters ...\n{text[-LOGGED:]}"
