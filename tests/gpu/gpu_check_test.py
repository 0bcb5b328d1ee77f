#!/usr/bin/env python3
"""gpu-check without a GPU: over the programs of the emulator, and over programs made up here that behave well or badly.

    gpu_check_test.py BIN     BIN: the emulator's programs (build/cmake/gpu/bin)
"""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import figures  # noqa: E402
import stages  # noqa: E402
from figures_test import case, good_records, pair  # noqa: E402

BIN = None

DEVICE = {"device": "Made-up GPU", "timed": True, "driver_cuda": 13000, "runtime_cuda": 13000, "memory": 1 << 37,
          "multiprocessors": 132, "capability": "9.0", "shared_per_block": 232448, "l2_bytes": 62914560}


def until(holds, seconds=300):
    """Waits for a condition; what it reads may not be there yet."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if holds():
                return
        except (OSError, ValueError, KeyError):
            pass
        time.sleep(0.05)
    raise AssertionError("waited in vain")


# A made-up program: writes, says, waits and ends as its plan says.
FAKE = """#!{python}
import json, os, pathlib, sys, time
plan = json.loads({plan!r})
args = sys.argv[1:]
if "pid" in plan:
    pathlib.Path(plan["pid"]).write_text(str(os.getpid()))
if "--json" in args and plan.get("json") is not None:
    path = pathlib.Path(args[args.index("--json") + 1])
    with path.open("a" if "--append" in args else "w") as f:
        f.write(plan["json"])
print(plan.get("says", ""))
if "--probe" in args:
    sys.exit(0)
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

    def faults(self, **lists):
        """Lists of seeded faults, by kernel, as the bundle has them."""
        folder = self.folder / "faults"
        folder.mkdir()
        for kernel, text in lists.items():
            (folder / f"{kernel}.txt").write_text(text, encoding="utf-8")

    def script(self, name, text):
        path = self.folder / name
        path.write_text("#!/bin/sh\n" + text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def command(self, *args):
        return [sys.executable, "-B", HERE / "gpu-check", "--bin", self.bin, "--out", self.out, *args]

    def check(self, *args, code):
        said = subprocess.run(self.command(*args), capture_output=True, text=True, check=False, timeout=300)
        self.assertEqual(said.returncode, code, said.stdout + said.stderr)
        return said

    def results(self):
        """Of few and named files, none of them a part of one."""
        self.assertLessEqual(set(os.listdir(self.out)), {"gpu-check.json", "log.txt", "table.md", "timings.jsonl",
                                                         "variants.jsonl", "pytorch.jsonl"})
        return json.loads((self.out / "gpu-check.json").read_text(encoding="utf-8"))

    def state(self, stage):
        return self.results()["stages"][stage]["state"]

    def row(self, name):
        return next(r for r in self.results()["rows"] if r["name"] == name)

    def test_emulator(self):
        """The real programs: answers agree, a fault is found, timing runs; nothing of it passes for a GPU's."""
        programs = os.listdir(BIN)
        fault = sorted(p for p in programs if p.startswith("fault-gelu"))
        for name in ["device", "peak", "timing-memory"] + fault + [p for p in programs if p.startswith("conform-")]:
            (self.bin / name).symlink_to((BIN / name).resolve())
        # In three parts, as on a machine that is lent for minutes at a time.
        for part in "123":
            self.check("--part", part, "--problems", "6", "--fault-problems", "60", "--jobs", "2", code=0)
        results = self.results()
        self.assertEqual([run["part"] for run in results["runs"]], [1, 2, 3])
        self.assertEqual(results["schema"], 2)
        self.assertEqual(results["machine"]["device"], "emulator")
        for stage in ("quick", "conformance"):
            self.assertTrue(results[stage])
            for name, r in results[stage].items():
                self.assertEqual((r["problems"], r["failed"], r["fault"]), (6, 0, ""), name)
        self.assertTrue(results["faults"])
        for name, r in results["faults"].items():  # up to the first that fails
            self.assertEqual((r["found"], r["failed"], r["judge"]), (True, 1, "conformance"), name)
        self.assertEqual({s: r["state"] for s, r in results["stages"].items() if r["state"] == "done"},
                         dict.fromkeys(("peak", "quick", "timing", "variants", "conformance", "faults"), "done"))
        self.assertEqual([(way["way"], way["wrong"], way["teraflops"]) for way in results["matrix"]["ways"]],
                         [("mma.sync", "", None)])
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
        self.faults(**dict.fromkeys(figures.KERNELS, "1 a wrong answer\n"))
        self.fake("timing-all", json=lines(timings))
        self.fake("peak", says=json.dumps({"record": "matrix", "timed": True, "ways": [
            {"way": "wgmma", "teraflops": 700.0, "wrong": ""}]}))
        python = self.peers(lines(peers))
        for kernel in figures.KERNELS:
            self.plugin(kernel)
        tool = self.script("tool", "case \"$2 $3\" in\n"
                           "memcheck*sanitizer-*) echo '========= ERROR SUMMARY: 1 error' ;;\n"
                           "racecheck*sanitizer-*) echo '========= RACECHECK SUMMARY: 2 hazards displayed' ;;\n"
                           "memcheck*) echo '========= ERROR SUMMARY: 0 errors' ;;\n"
                           "*) echo '========= RACECHECK SUMMARY: 0 hazards displayed' ;;\nesac\n")
        ncu = self.script("ncu", "cat <<END\n==PROF== connected\n"
                          '"ID","Kernel Name","Block Size","Grid Size","gpu__time_duration.sum",'
                          '"launch__registers_per_thread"\n"","","","","ns","register/thread"\n'
                          '"0","Attend(int, float*)","(128, 1, 1)","(132, 1, 1)","1,234.5","168"\nEND\n')
        more = ("--jobs", "2", "--python", python, "--sanitizer", tool, "--ncu", ncu)
        # Each part completes what is there.
        self.check("--part", "1", *more, code=1)  # made-up libraries do not load
        self.assertEqual(set(self.results()["stages"]), {"peak", "quick", "plugins", "runtime", "timing"})
        first = self.results()
        self.assertEqual(self.row("el-attention-pytorch")["verdict"], "unmeasured")
        self.check("--part", "2", *more, code=0)
        self.assertEqual(self.row("el-attention-pytorch")["verdict"], "met")
        self.check("--part", "3", *more, code=0)
        results = self.results()
        self.assertEqual(len(results["stages"]), 11)
        for stage in first["stages"]:
            self.assertEqual(results["stages"][stage], first["stages"][stage])
        self.assertEqual(results["limits"]["matrix_teraflops"], 800.0)
        counted = results["counters"]["ngram-block ngram-block float32 " + " ".join(
            f"{k}={v}" for k, v in figures.NGRAM.items())]["kernels"]
        self.assertEqual(counted, [{"name": "Attend(int, float*)", "grid": "(132, 1, 1)", "block": "(128, 1, 1)",
                                    "nanoseconds": 1234.5, "registers": 168.0}])
        self.assertEqual({r["name"]: r["verdict"] for r in self.results()["rows"] if r["verdict"] != "met"}, {})
        self.assertIn("Made-up GPU", (self.out / "table.md").read_text(encoding="utf-8"))
        # The table can be made again from the folder.
        (self.out / "table.md").unlink()
        subprocess.run([sys.executable, "-B", HERE / "gpu-check", "--report", self.out], check=False,
                       stdout=subprocess.DEVNULL)
        self.assertIn("| met |", (self.out / "table.md").read_text(encoding="utf-8"))
        # A part that is run again replaces what its own stages left, and no more.
        (self.bin / "python").write_text("#!/bin/sh\nexit 5\n", encoding="utf-8")
        self.check("--part", "2", *more, code=0)
        self.assertEqual(self.row("el-attention-pytorch")["verdict"], "unmeasured")
        self.assertEqual(self.row("answers")["verdict"], "met")
        self.assertEqual(self.row("logits-top-k")["verdict"], "met")

    def peers(self, lines):
        """A Python with PyTorch and ONNX Runtime, made up."""
        path = self.bin / "python"
        agrees = {"record": "operator", "operator": "Op", "type": "float32", "state": "agrees", "worst_error": 0.5}
        path.write_text(f"""#!{sys.executable}
import pathlib, sys
out = pathlib.Path(sys.argv[sys.argv.index("--json") + 1]) if "--json" in sys.argv else None
if out:
    out.write_text({lines!r} if "pytorch" in sys.argv[2] else {json.dumps(agrees)!r} + chr(10))
print("onnxruntime made up")
""", encoding="utf-8")
        path.chmod(0o755)
        return path

    def plugin(self, name):
        library = self.folder / "plugins" / name / f"lib{name.replace('-', '_')}_cuda.so"
        cases = self.folder / "cases" / name / "cases.json"
        for path in (library, cases):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("", encoding="utf-8")

    def test_other_results_in_the_folder(self):
        """Parts of different machines or commits are not mixed."""
        self.fake_device()
        self.fake("peak", says='{"ways": [], "timed": true}')
        self.check("--stages", "peak", code=0)
        self.fake("device", says=json.dumps({**DEVICE, "device": "Another GPU"}))
        said = self.check("--stages", "peak", code=2)
        self.assertIn("found results of device Made-up GPU, these are of Another GPU; name another folder", said.stderr)
        self.assertEqual(self.results()["machine"]["device"], "Made-up GPU")

    def test_killed_half_way(self):
        """Whatever ends it, what was done stays, and no program outlives it."""
        for number, words in ((signal.SIGTERM, "stopped by a signal"), (signal.SIGKILL, "ended before it was done")):
            with self.subTest(number):
                self.fake_device()
                self.fake("peak", says='{"ways": [], "timed": true}')
                self.fake_conform("conform-a", 50)
                pid = self.folder / "pid"
                pid.unlink(missing_ok=True)
                self.fake_conform("conform-b", 50, sleeps=100, pid=str(pid))
                process = subprocess.Popen(self.command("--stages", "peak,quick,timing", "--jobs", "2"),
                                           stdout=subprocess.DEVNULL)
                self.addCleanup(process.kill)
                until(lambda: pid.read_text() and json.loads(  # pylint: disable=cell-var-from-loop
                    (self.out / "gpu-check.json").read_text())["quick"]["a"]["problems"] == 100)
                process.send_signal(number)
                self.assertIn(process.wait(300), (1, -signal.SIGKILL))
                results = self.results()
                self.assertEqual(results["quick"]["a"]["problems"], 100)
                self.assertEqual(results["quick"].get("b", {}).get("fault", ""), "")
                self.assertEqual({s: (r["state"], r["why"]) for s, r in results["stages"].items()},
                                 {"peak": ("done", ""), "quick": ("unmeasured", words)})
                self.assertIn("| quick | unmeasured |", (self.out / "table.md").read_text(encoding="utf-8"))
                until(lambda: not pathlib.Path(f"/proc/{pid.read_text()}").exists())  # pylint: disable=cell-var-from-loop

    def test_a_signal_while_a_program_begins(self):
        """A program that a signal could not see is ended all the same."""
        arguments = argparse.Namespace(bin=self.folder, minutes=0)
        self.out.mkdir(parents=True)
        run = stages.Run(arguments, self.out, {"stages": {}}, lambda: None, time.monotonic())
        begin = subprocess.Popen

        def interrupted(*words, **more):
            process = begin(*words, **more)
            with contextlib.suppress(stages.Stopped):
                run.stop()
            return process

        with unittest.mock.patch.object(stages.subprocess, "Popen", interrupted):
            code, _ = run.run(["sleep", "20"], 15)
        self.assertEqual(code, -signal.SIGKILL)

    def test_faults_that_racecheck_judges(self):
        self.fake_device()
        for name, failed in (("fault-a-1", 0), ("fault-a-2", 3)):
            self.fake_conform(name, 200, failed=failed, code=1 if failed else 0)
        self.faults(a="1 racecheck: a hazard alone\n2 a wrong answer\n")
        summary = "echo '========= RACECHECK SUMMARY: {} hazards displayed'\n"
        late = 'case "$*" in *"--first 6 "*) ' + summary.format(1).strip() + ";; *) " + summary.format(0).strip()
        for name, script, code, found, verdict in (
            ("at-once", summary.format(2), 0, True, "unmeasured"),  # of the kernels that are needed there is none
            ("later", late + ";; esac\n", 0, True, "unmeasured"),
            ("blind", summary.format(0), 1, False, "missed"),
            ("refuses", "echo '========= Error: Device not supported'\n", 0, None, "unmeasured"),
            ("absent", None, 0, None, "unmeasured"),
        ):
            with self.subTest(name):
                tool = self.script(name, script) if script else self.folder / "no-such-tool"
                self.check("--stages", "faults", "--sanitizer", tool, code=code)
                faults = self.results()["faults"]
                self.assertEqual((faults["a-1"]["found"], faults["a-1"]["judge"]), (found, "racecheck"))
                self.assertEqual((faults["a-2"]["found"], faults["a-2"]["judge"]), (True, "conformance"))
                self.assertEqual(self.row("faults")["verdict"], verdict)
        # On the emulator it is conformance that must find it.
        self.out = self.folder / "emulated"
        self.fake("device", says=json.dumps({**DEVICE, "device": "emulator", "timed": False}))
        self.check("--stages", "faults", code=1)
        self.assertEqual(self.results()["faults"]["a-1"]["judge"], "conformance")

    def test_variants(self):
        self.fake_device()
        listed = [case("k", "one", {"n": 1}, 2.0), case("k", "two", {"n": 1}, 1.0), case("k", "one", {"n": 2}, 1.0),
                  case("k", "slow", {"n": 3}, 1.0), case("k", "fast", {"n": 3}, 1.0),
                  pair("k", "slow", "fast", {"n": 3}, 1.0)]
        self.fake("timing-k", json="".join(json.dumps(r) + "\n" for r in listed))
        self.check("--stages", "variants", code=0)
        self.assertEqual(self.results()["stages"]["variants"]["why"], "1 groups")
        log = (self.out / "log.txt").read_text(encoding="utf-8")
        self.assertIn("--case one bfloat16 n=1 --case two bfloat16 n=1 --rounds 102", log)
        self.assertIn("| k | bfloat16 | n=1 | two | 1000.00 |", (self.out / "table.md").read_text(encoding="utf-8"))

    def test_counters(self):
        self.fake_device()
        self.fake("timing-k", json=json.dumps(case("logits-top-k", "logits-top-k", figures.TOP_K, None, type="float32")) + "\n")
        for name, script, state, words in (
            ("absent", None, "unmeasured", "no-such-tool on the PATH"),
            ("refused", "echo '==ERROR== ERR_NVGPUCTRPERM - no permission'; exit 1\n", "unmeasured",
             "is refused here: ERR_NVGPUCTRPERM"),
            ("older", 'case "$*" in *pipe_tensor*) echo "==ERROR== Failed to find metric"; exit 1;; esac\ncat <<END\n'
             '"ID","Kernel Name","gpu__time_duration.sum"\n"0","TopK","5"\nEND\n', "done", "1 cases"),
            ("long", "cat <<END\n" '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
             '"0","TopK","gpu__time_duration.sum","ns","5"\n"0","TopK","launch__registers_per_thread","","40"\nEND\n',
             "done", "1 cases"),
        ):
            with self.subTest(name):
                tool = self.script(name, script) if script else self.folder / "no-such-tool"
                self.check("--stages", "counters", "--ncu", tool, code=0)
                stage = self.results()["stages"]["counters"]
                self.assertEqual(stage["state"], state, stage)
                self.assertIn(words, stage["why"])
        entry = next(iter(self.results()["counters"].values()))
        self.assertEqual(entry["kernels"], [{"name": "TopK", "grid": "", "block": "", "nanoseconds": 5.0,
                                             "registers": 40.0}])

    def test_peak_that_is_wrong(self):
        """A probe that multiplies wrongly is no peak."""
        self.fake_device()
        self.fake("peak", code=1, says=json.dumps({"timed": True, "ways": [
            {"way": "mma.sync", "teraflops": 600.0, "wrong": ""},
            {"way": "wgmma", "teraflops": None, "wrong": "[0][0] is 3, float64 gives 4"}]}))
        self.check("--stages", "peak", code=1)
        self.assertIn("wgmma: [0][0] is 3", self.results()["stages"]["peak"]["why"])
        self.assertEqual(self.results()["limits"]["matrix_teraflops"], 600.0)

    def test_no_onnx_runtime(self):
        self.fake_device()
        self.plugin("logits-top-k")
        python = self.script("python-without", "echo 'ONNX Runtime is not there'\nexit 5\n")
        path = {**os.environ, "PATH": str(self.folder)}
        said = subprocess.run(self.command("--stages", "runtime", "--python", python), capture_output=True, text=True,
                              check=False, timeout=300, env=path)
        stage = self.results()["stages"]["runtime"]
        if stage["state"] == "unmeasured":  # unless this very Python has the provider
            self.assertEqual(said.returncode, 0)
            self.assertIn("pip install --target onnxruntime-gpu onnxruntime-gpu==", stage["why"])

    def test_operators_that_disagree(self):
        self.fake_device()
        self.plugin("logits-top-k")
        for state, code in (("wrong", 1), ("failed", 1), ("agrees", 0)):
            record = {"operator": "LogitsTopK", "type": "float16", "case": "beams", "state": state, "worst_error": 0.5,
                      "why": "output y0 [3] is 1"}
            python = self.fake("python", json=json.dumps(record) + "\n", code=code, says="onnxruntime made up")
            self.check("--stages", "runtime", "--python", python, code=code)
            stage = self.results()["stages"]["runtime"]
            self.assertIn("LogitsTopK float16, beams: output y0 [3] is 1" if code else "1 cases of 1 plugins agree",
                          stage["why"])
        python = self.fake("python", code=0, says="crashed before it wrote")
        self.check("--stages", "runtime", "--python", python, code=1)

    def test_wrong_answers(self):
        self.fake_device()
        self.fake_conform("conform-good", 50)
        self.fake_conform("conform-bad", 50, failed=2, code=1)
        said = self.check("--stages", "conformance", "--problems", "50", "--jobs", "1", code=1)
        self.assertIn("bad: 2 of 50 failed; problem 7 (n 3): y[1] is 2", said.stdout)
        self.assertEqual(self.row("answers")["verdict"], "missed")

    def test_too_little_time(self):
        """Fewer problems than were asked for are not all, even where none failed."""
        self.fake_device()
        self.fake_conform("conform-good", 20)
        self.check("--stages", "conformance", "--problems", "50", code=1)
        self.assertEqual(self.state("conformance"), "unmeasured")
        self.assertIn("20 problems of 1 kernels, 50 of each were asked for",
                      self.results()["stages"]["conformance"]["why"])

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
        self.check("--stages", "conformance,timing", "--minutes", "0.4", "--jobs", "1", code=1)
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
