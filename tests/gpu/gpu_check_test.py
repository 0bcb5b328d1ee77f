#!/usr/bin/env python3
"""gpu-check without a GPU: over the programs of the emulator, and over programs made up here that behave well or badly.

    gpu_check_test.py BIN     BIN: the emulator's programs (build/cmake/gpu/bin)
"""

import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import figures  # noqa: E402

BIN = None

DEVICE = {"device": "Made-up GPU", "timed": True, "driver_cuda": 13000, "runtime_cuda": 13000, "memory": 1 << 37,
          "multiprocessors": 132, "capability": "9.0", "shared_per_block": 232448, "l2_bytes": 62914560}


def case(kernel, variant, shape, milliseconds, **more):
    return {"record": "case", "kernel": kernel, "variant": variant, "type": more.pop("type", "bfloat16"),
            "shape": shape, "milliseconds": milliseconds, **more}


def pair(kernel, slow, fast, shape, ratio, type_="bfloat16"):
    return {"record": "pair", "kernel": kernel, "slow": slow, "fast": fast, "variant": fast, "type": type_,
            "shape": shape, "ratio": ratio}


def good_records():
    """Records of a machine with 1,000 GB/s and 800 TFLOP/s, on which every figure is met, none by much."""
    timings = [{"record": "limits", "copy_gigabytes_per_second": 1000.0}]
    peers = [{"record": "limits", "matrix_teraflops": 800.0}]
    for keys in figures.DECODE_KEYS:
        shape = {**figures.DECODE, "keys": keys}
        timings.append(case("flash-decode", "contiguous", shape, 1.0, gigabytes_per_second=801.0))
        peers += [case("flash-decode", "sdpa-flash", shape, 1.01), case("flash-decode", "sdpa-math", shape, 9.0)]
    for beam in figures.PREFIX_BEAMS:
        for prefix in figures.SHORT_PREFIXES + figures.LONG_PREFIXES:
            shape = {**figures.PREFIX, "beam": beam, "prefix": prefix}
            gain = beam * (prefix + 64) / (prefix + beam * 64)
            ratio = 0.995 if prefix in figures.SHORT_PREFIXES else 0.81 * gain
            timings.append(case("flash-decode", "per-beam", shape, 1.0, gigabytes_per_second=810.0))
            timings.append(pair("flash-decode", "per-beam", "shared-prefix", shape, ratio))
    timings.append(case("el-attention", "el-attention", figures.EL, 0.02, teraflops=361.0))
    peers += [case("el-attention", "matmul-softmax-matmul", figures.EL, 0.025),
              case("el-attention", "sdpa-math", figures.EL, 0.001)]
    timings.append(pair("slim-attention", "kv-cache", "k-cache", figures.SLIM, 1.61))
    timings.append(case("ngram-block", "ngram-block", figures.NGRAM, 0.0099, type="float32"))
    peers.append(case("ngram-block", "scatter-reduce", figures.NGRAM, 0.1, type="float32"))
    timings.append(pair("step-tail", "step-tail", "reading", figures.TAIL, 1.49, "float32"))
    return timings, peers


def conformed(problems=figures.PROBLEMS, failed=0, fault=""):
    return {"problems": problems, "failed": failed, "worst_error": 0.5, "seconds": 1.0, "first_failure": "",
            "fault": fault}


def rows_of(timings, peers, conformance=None, faults=None, sanitizer=None, on_gpu=True):
    return {r.name: r for r in figures.rows(timings, peers, conformance or {}, faults or {}, sanitizer or {}, on_gpu)}


class Figures(unittest.TestCase):
    """Verdicts from records."""

    def test_every_figure_met(self):
        conformance = {k: conformed() for k in figures.KERNELS}
        faults = {f"{k}-1": {**conformed(50, 3), "kernel": k, "found": True} for k in figures.KERNELS}
        tool = {"state": "met", "words": "clean", "kernels": {k: 0 for k in figures.KERNELS}}
        found = rows_of(*good_records(), conformance, faults, {"memcheck": tool, "racecheck": tool})
        self.assertEqual({r.verdict for r in found.values()}, {"met"}, found)
        self.assertEqual(len(found), 16)

    def test_nothing_measured_is_nothing_met(self):
        self.assertEqual({r.verdict for r in rows_of([], []).values()}, {"unmeasured"})
        timings, peers = good_records()
        for r in timings + peers:  # as the emulator and --tiny leave them
            for name in ("milliseconds", "ratio", "copy_gigabytes_per_second", "matrix_teraflops"):
                if name in r:
                    r[name] = None
        self.assertEqual({r.verdict for r in rows_of(timings, peers).values()}, {"unmeasured"})

    def test_just_missed(self):
        """Each figure alone, by a record that is worse by a little."""
        def set_in(records, name, value, **which):
            for r in records:
                if all(r.get(k) == v or r.get("shape", {}).get(k) == v for k, v in which.items()):
                    r[name] = value
                    return
            self.fail(f"no record of {which}")

        long = {"beam": 8, "prefix": 16384, "record": "pair"}
        for row, change in {
            "flash-decode-bandwidth": lambda t, p: set_in(t, "gigabytes_per_second", 799.0, keys=65536),
            "flash-decode-pytorch": lambda t, p: set_in(p, "milliseconds", 0.99, keys=131072),
            "per-beam-bandwidth": lambda t, p: set_in(t, "gigabytes_per_second", 799.0, prefix=2048, record="case"),
            "shared-prefix": lambda t, p: set_in(t, "ratio", 0.79 * 8 * 16448 / 16896, **long),
            "shared-prefix-short": lambda t, p: set_in(t, "ratio", 0.98, prefix=128, record="pair"),
            "el-attention-peak": lambda t, p: set_in(p, "matrix_teraflops", 803.0, record="limits"),
            "el-attention-pytorch": lambda t, p: set_in(p, "milliseconds", 0.0239, variant="matmul-softmax-matmul"),
            "slim-attention": lambda t, p: set_in(t, "ratio", 1.59, kernel="slim-attention"),
            "ngram-block": lambda t, p: set_in(t, "milliseconds", 0.01, variant="ngram-block"),
            "ngram-block-pytorch": lambda t, p: set_in(p, "milliseconds", 0.098, kernel="ngram-block"),
            "step-tail": lambda t, p: set_in(t, "ratio", 1.51, kernel="step-tail"),
        }.items():
            with self.subTest(row):
                timings, peers = copy.deepcopy(good_records())
                change(timings, peers)
                found = rows_of(timings, peers)
                missed = {name for name, r in found.items() if r.verdict == "missed"}
                self.assertEqual(missed, {row})
        timings, peers = copy.deepcopy(good_records())
        set_in(timings, "teraflops", 307.0, kernel="el-attention")
        self.assertEqual(rows_of(timings, peers)["el-attention-rate"].verdict, "missed")

    def test_one_shape_missing(self):
        timings, peers = good_records()
        timings = [r for r in timings if r.get("shape", {}).get("keys") != 32768]
        row = rows_of(timings, peers)["flash-decode-bandwidth"]
        self.assertEqual(row.verdict, "unmeasured")
        self.assertIn("not measured: 32768 keys", row.measured)

    def test_answers(self):
        full = {k: conformed() for k in figures.KERNELS}
        for conformance, on_gpu, verdict, words in (
            (full, True, "met", "none failed"),
            (full, False, "unmeasured", "on the emulator"),
            ({**full, "step-tail": conformed(9999)}, True, "unmeasured", "fewer problems than needed: step-tail"),
            ({**full, "step-tail": conformed(failed=1)}, True, "missed", "failed: step-tail"),
            ({**full, "step-tail": conformed(failed=1)}, False, "missed", "failed: step-tail"),
            ({**full, "step-tail": conformed(fault="killed")}, True, "missed", "failed: step-tail"),
            ({k: r for k, r in full.items() if k != "ngram-block"}, True, "unmeasured", "ngram-block"),
        ):
            row = rows_of([], [], conformance, on_gpu=on_gpu)["answers"]
            self.assertEqual(row.verdict, verdict)
            self.assertIn(words, row.measured)


class Names(unittest.TestCase):
    """The timing programs time what the figures are about: names and numbers are the same."""

    maxDiff = None

    def test_all_cases_are_timed(self):
        listed = []
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch) / "list"
            for program in sorted(BIN.glob("timing-*")):
                subprocess.run([program, "--list", "--json", path], check=True, stdout=subprocess.DEVNULL)
                listed += [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        limits, peers = good_records()
        for r in listed:
            r.update(milliseconds=1.0, ratio=1.0, gigabytes_per_second=r.get("bytes"), teraflops=r.get("flops"))
        found = rows_of(listed + limits[:1], peers)
        timed = [r for r in found.values() if r.name not in ("answers", "faults", "memcheck", "racecheck")]
        self.assertEqual({r.name: r.measured for r in timed if "not measured" in r.measured or not r.measured}, {})
        # Bytes and operations are those of the shape: K and V once, and few others.
        case = next(r for r in listed if r.get("variant") == "contiguous" and r["shape"]["keys"] == 16384)
        self.assertAlmostEqual(case["bytes"] / (2 * 2 * 16384 * 32 * 128), 1, delta=0.001)
        case = next(r for r in listed if r.get("kernel") == "el-attention" and r["shape"] == figures.EL)
        self.assertAlmostEqual(case["flops"] / (4 * 32 * 4 * 16 * 1024 * 1024), 1, delta=0.01)


# A made-up program: writes, says, waits and ends as its plan says.
FAKE = """#!{python}
import json, pathlib, sys, time
plan = json.loads({plan!r})
args = sys.argv[1:]
if "--json" in args and plan.get("json") is not None:
    path = pathlib.Path(args[args.index("--json") + 1])
    with path.open("a" if "--append" in args else "w") as f:
        f.write(plan["json"])
print(plan.get("says", ""))
time.sleep(plan.get("sleeps", 0))
sys.exit(plan.get("code", 0))
"""


class Check(unittest.TestCase):
    """gpu-check as a program."""

    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)
        self.bin, self.out = self.folder / "bin", self.folder / "out" / "results"
        self.bin.mkdir()

    def fake(self, name, **plan):
        path = self.bin / name
        path.write_text(FAKE.format(python=sys.executable, plan=json.dumps(plan)), encoding="utf-8")
        path.chmod(0o755)
        return path

    def fake_device(self):
        self.fake("device", says=json.dumps(DEVICE))

    def fake_conform(self, name, problems, failed=0, fault="y[1] is 2", **plan):
        result = [{"kernel": "k", "problems": problems, "failed": failed, "worst_error": 0.25, "seconds": 1,
                   "first_failure": f"problem 7 (n 3): {fault}" if failed else ""}]
        self.fake(name, json=json.dumps(result), **plan)

    def check(self, *args, code):
        said = subprocess.run([sys.executable, "-B", HERE / "gpu-check", "--bin", self.bin, "--out", self.out, *args],
                              capture_output=True, text=True, check=False, timeout=300)
        self.assertEqual(said.returncode, code, said.stdout + said.stderr)
        return said

    def results(self):
        self.assertEqual(sorted(os.listdir(self.out)), sorted(
            {"gpu-check.json", "log.txt", "table.md"}
            | (set(os.listdir(self.out)) & {"timings.jsonl", "pytorch.jsonl"})))
        return json.loads((self.out / "gpu-check.json").read_text(encoding="utf-8"))

    def row(self, name):
        return next(r for r in self.results()["rows"] if r["name"] == name)

    def test_emulator(self):
        """The real programs: answers agree, a fault is found, timing runs; nothing of it passes for a GPU's."""
        programs = os.listdir(BIN)
        fault = sorted(p for p in programs if p.startswith("fault-gelu"))
        for name in ["device", "timing-memory"] + fault + [p for p in programs if p.startswith("conform-")]:
            (self.bin / name).symlink_to((BIN / name).resolve())
        self.check("--problems", "6", "--fault-problems", "60", "--jobs", "2", code=0)
        results = self.results()
        self.assertEqual(results["schema"], 1)
        self.assertEqual(results["machine"]["device"], "emulator")
        for name, r in results["conformance"].items():
            self.assertEqual((r["problems"], r["failed"], r["fault"]), (6, 0, ""), name)
        self.assertTrue(results["faults"] and all(r["found"] for r in results["faults"].values()))
        self.assertEqual({s: results["stages"][s]["state"] for s in ("conformance", "faults", "timing")},
                         {"conformance": "done", "faults": "done", "timing": "done"})
        self.assertEqual({r["verdict"] for r in results["rows"]}, {"unmeasured"})
        self.assertIsNone(results["limits"]["copy_gigabytes_per_second"])
        records = [json.loads(line) for line in (self.out / "timings.jsonl").read_text().splitlines()]
        self.assertEqual({r["record"] for r in records}, {"limits", "case"})
        self.assertTrue(all(r["milliseconds"] is None for r in records if r["record"] == "case"))

    def test_no_device(self):
        self.fake("device", says="no CUDA-capable device is detected", code=4)
        said = self.check(code=2)
        self.assertIn("no CUDA device or no driver", said.stderr)
        self.assertFalse(self.out.exists())

    def test_bundle_not_whole(self):
        said = self.check(code=2)
        self.assertIn("device: not there; unpack the bundle whole", said.stderr)
        self.assertFalse(self.out.exists())

    def test_unknown_stage(self):
        self.fake_device()
        self.assertIn("no stage is called speed", self.check("--stages", "speed", code=2).stderr)
        self.assertFalse(self.out.exists())

    def test_all_met_on_a_made_up_gpu(self):
        self.fake_device()
        timings, peers = good_records()
        lines = lambda records: "".join(json.dumps(r) + "\n" for r in records)  # noqa: E731
        for kernel in figures.KERNELS:
            self.fake_conform(f"conform-{kernel}", 10000)
            self.fake_conform(f"fault-{kernel}-1", 200, failed=9, code=1)
        self.fake("timing-all", json=lines(timings))
        python = self.fake("python-with-torch", json=lines(peers))
        tool = self.folder / "tool"
        tool.write_text("#!/bin/sh\ncase \"$2 $3\" in\n"
                        "memcheck*sanitizer-*) echo '========= ERROR SUMMARY: 1 error' ;;\n"
                        "racecheck*sanitizer-*) echo '========= RACECHECK SUMMARY: 2 hazards displayed' ;;\n"
                        "memcheck*) echo '========= ERROR SUMMARY: 0 errors' ;;\n"
                        "*) echo '========= RACECHECK SUMMARY: 0 hazards displayed' ;;\nesac\n", encoding="utf-8")
        tool.chmod(0o755)
        self.check("--jobs", "1", "--python", python, "--sanitizer", tool, code=0)
        self.assertEqual({r["name"]: r["verdict"] for r in self.results()["rows"] if r["verdict"] != "met"}, {})
        self.assertIn("Made-up GPU", (self.out / "table.md").read_text(encoding="utf-8"))
        # The table can be made again from the folder.
        (self.out / "table.md").unlink()
        subprocess.run([sys.executable, "-B", HERE / "gpu-check", "--report", self.out], check=True,
                       stdout=subprocess.DEVNULL)
        self.assertIn("| met |", (self.out / "table.md").read_text(encoding="utf-8"))

    def test_wrong_answers(self):
        self.fake_device()
        self.fake_conform("conform-good", 50)
        self.fake_conform("conform-bad", 50, failed=2, code=1)
        said = self.check("--stages", "conformance", "--problems", "50", "--jobs", "1", code=1)
        self.assertIn("bad: 2 of 50 failed; problem 7 (n 3): y[1] is 2", said.stdout)
        self.assertEqual(self.row("answers")["verdict"], "missed")

    def test_broken_programs(self):
        """A program that does not count what it did has proved nothing, whatever it ends with."""
        for name, plan in {
            "crash": {"code": 139, "says": "Segmentation fault"},
            "silent": {"code": 0},
            "garbage": {"code": 0, "json": "[{"},
            "lost": {"code": 3, "json": "[]", "says": "the device is lost"},
        }.items():
            with self.subTest(name):
                self.fake_device()
                path = self.fake(f"conform-{name}", **plan)
                self.check("--stages", "conformance", "--problems", "5", code=1)
                self.assertNotEqual(self.results()["conformance"][name]["fault"], "")
                path.unlink()

    def test_program_that_hangs(self):
        self.fake_device()
        self.fake("conform-slow", sleeps=120)
        began = time.monotonic()
        self.check("--stages", "conformance,timing", "--minutes", "0.1", "--jobs", "1", code=1)
        self.assertLess(time.monotonic() - began, 60)
        self.assertIn("killed after", (self.out / "log.txt").read_text(encoding="utf-8"))

    def test_faults_that_are_not_found(self):
        self.fake_device()
        for name, failed, plan, found in (
            ("fault-a-1", 3, {"code": 1}, True),
            ("fault-a-2", 1, {"code": 3}, True),  # the device lost under a problem, which was counted
            ("fault-b-1", 0, {"code": 0}, False),
            ("fault-b-2", 0, {"code": 139}, False),
            ("fault-b-3", 1, {"code": 3, "fault": "cudaMalloc: out of memory"}, False),
        ):
            self.fake_conform(name, 200, failed=failed, **plan)
            with self.subTest(name):
                self.check("--stages", "faults", code=0 if found else 1)
                self.assertEqual(self.results()["faults"][name.removeprefix("fault-")]["found"], found)
                (self.bin / name).unlink()

    def test_sanitizer(self):
        self.fake_device()
        self.fake_conform("conform-good", 10)
        for name, script, state, words in (
            ("absent", None, "unmeasured", "compute-sanitizer-absent on the PATH"),
            ("refuses", "echo '========= Error: Device not supported'", "unmeasured", "Device not supported"),
            ("blind", "echo '========= ERROR SUMMARY: 0 errors'; echo '========= RACECHECK SUMMARY: 0 hazards'",
             "failed", "did not catch"),
            ("finds", "echo '========= ERROR SUMMARY: 3 errors'; echo '========= RACECHECK SUMMARY: 1 hazard'",
             "failed", "errors in good (3)"),
        ):
            with self.subTest(name):
                tool = self.folder / "compute-sanitizer-absent"
                if script:
                    tool = self.folder / f"tool-{name}"
                    tool.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
                    tool.chmod(0o755)
                self.check("--stages", "sanitizer", "--sanitizer", tool, code=0)
                stage = self.results()["stages"]["sanitizer"]
                self.assertEqual(stage["state"], state, stage)
                self.assertIn(words, stage["why"])

    def test_no_pytorch(self):
        self.fake_device()
        self.fake("conform-good", json="[]")
        python = self.folder / "python-without"
        python.write_text("#!/bin/sh\necho 'PyTorch is not there'\nexit 5\n", encoding="utf-8")
        python.chmod(0o755)
        self.check("--stages", "pytorch", "--python", python, code=0)
        self.assertEqual(self.results()["stages"]["pytorch"]["state"], "unmeasured")

    def test_plugin_that_does_not_load(self):
        self.fake_device()
        library = self.folder / "plugins" / "bad" / "libbad_cuda.so"
        library.parent.mkdir(parents=True)
        library.write_bytes(b"not a library")
        self.check("--stages", "plugins", code=1)
        self.assertEqual(self.results()["plugins"]["bad"]["score"], 0)


class PyTorch(unittest.TestCase):
    def test_tiny(self):
        """Every way of PyTorch's agrees with float64; without PyTorch it says so."""
        said = subprocess.run([sys.executable, "-B", HERE / "pytorch.py", "--tiny", "--device", "cpu"],
                              capture_output=True, text=True, check=False, timeout=300)
        try:
            import torch  # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
        except ImportError:
            self.assertEqual(said.returncode, 5)
            self.assertIn("PyTorch is not there", said.stderr)
            return
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
        for variant in ("matmul-softmax-matmul", "scatter-reduce", "scatter-extra-column", "log-softmax-topk"):
            self.assertRegex(said.stdout, variant + ".*agrees")


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).absolute()
    unittest.main()
