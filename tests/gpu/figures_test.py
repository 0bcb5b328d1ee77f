#!/usr/bin/env python3
"""Verdicts from records, and that the timing programs time what the figures are about.

    figures_test.py BIN     BIN: the emulator's programs (build/cmake/gpu/bin)
"""

import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import figures  # noqa: E402

BIN = None


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
    timings.append(pair("logits-top-k", "logits-top-k", "reading", figures.TOP_K, 1.49, "float32"))
    return timings, peers


def conformed(problems=figures.PROBLEMS, failed=0, fault=""):
    return {"problems": problems, "failed": failed, "worst_error": 0.5, "seconds": 1.0, "first_failure": "",
            "fault": fault}


def ran(agree=4, wrong=(), fault=""):
    return {"agree": agree, "refused": 0, "wrong": list(wrong), "types": ["float32"], "worst_error": 0.5, "fault": fault}


def rows_of(timings, peers, on_gpu=True, **results):
    return {r.name: r for r in figures.rows(timings, peers, results, on_gpu)}


def operators(**changed):
    return {"provider": "CUDAExecutionProvider", "plugins": {**{k: ran() for k in figures.KERNELS}, **changed}}


class Figures(unittest.TestCase):
    """Verdicts from records."""

    def test_every_figure_met(self):
        conformance = {k: conformed() for k in figures.KERNELS}
        faults = {f"{k}-1": {**conformed(50, 3), "kernel": k, "found": True} for k in figures.KERNELS}
        tool = {"state": "met", "words": "clean", "kernels": {k: 0 for k in figures.KERNELS}}
        found = rows_of(*good_records(), conformance=conformance, faults=faults,
                        sanitizer={"memcheck": tool, "racecheck": tool}, operators=operators())
        self.assertEqual({r.verdict for r in found.values()}, {"met"}, found)
        self.assertEqual(len(found), 17)

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
            "logits-top-k": lambda t, p: set_in(t, "ratio", 1.51, kernel="logits-top-k"),
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
            ({**full, "logits-top-k": conformed(9999)}, True, "unmeasured", "fewer problems than needed: logits-top-k"),
            ({**full, "logits-top-k": conformed(failed=1)}, True, "missed", "failed: logits-top-k"),
            ({**full, "logits-top-k": conformed(failed=1)}, False, "missed", "failed: logits-top-k"),
            ({**full, "logits-top-k": conformed(fault="killed")}, True, "missed", "failed: logits-top-k"),
            ({k: r for k, r in full.items() if k != "ngram-block"}, True, "unmeasured", "ngram-block"),
        ):
            row = rows_of([], [], conformance=conformance, on_gpu=on_gpu)["answers"]
            self.assertEqual(row.verdict, verdict)
            self.assertIn(words, row.measured)

    def test_quick_answers(self):
        """Few problems are no 10,000, and one that failed among them is not forgotten."""
        full, few = {k: conformed() for k in figures.KERNELS}, {k: conformed(500) for k in figures.KERNELS}
        bad = {**few, "logits-top-k": conformed(500, failed=1)}
        for conformance, quick, verdict, words in (
            ({}, few, "unmeasured", "2,500 problems of 5 kernels, none failed; fewer problems than needed"),
            (full, few, "met", "50,000 problems"),
            ({"logits-top-k": conformed()}, few, "unmeasured", "12,000 problems"),
            (full, bad, "missed", "failed: logits-top-k"),
        ):
            row = rows_of([], [], conformance=conformance, quick=quick)["answers"]
            self.assertEqual(row.verdict, verdict)
            self.assertIn(words, row.measured)

    def test_faults(self):
        all_found = {f"{k}-1": {**conformed(50, 3), "kernel": k, "found": True} for k in figures.KERNELS}
        one = lambda found: {**all_found, "logits-top-k-2": {**conformed(), "kernel": "logits-top-k", "found": found,  # noqa: E731
                                                          "why": "no compute-sanitizer on the PATH"}}
        for faults, verdict, words in (
            (one(True), "met", "6 of 6 found"),
            (one(False), "missed", "5 of 6 found; not found: logits-top-k-2"),
            (one(None), "unmeasured", "5 of 6 found; not judged: logits-top-k-2 (no compute-sanitizer on the PATH)"),
        ):
            row = rows_of([], [], faults=faults)["faults"]
            self.assertEqual((row.verdict, row.measured), (verdict, words))

    def test_operators_inside_onnx_runtime(self):
        for plugins, verdict, words in (
            (operators(), "met", "20 cases of 5 plugins agree"),
            (operators(**{"logits-top-k": ran(wrong=[{}])}), "missed", "not: logits-top-k"),
            (operators(**{"logits-top-k": ran(fault="ended with -11")}), "missed", "not: logits-top-k"),
            (operators(**{"logits-top-k": ran(agree=0)}), "missed", "not: logits-top-k"),
            ({**operators(), "provider": "CPUExecutionProvider"}, "unmeasured", "not on a GPU"),
        ):
            row = rows_of([], [], operators=plugins)["runtime"]
            self.assertEqual(row.verdict, verdict)
            self.assertIn(words, row.measured)

    def test_matrix_peak(self):
        """The best that was seen of the device, by whatever; never what gave wrong answers."""
        timings, peers = good_records()
        for ways, peak, by in (
            ([], 800, "PyTorch"),
            ([{"way": "wgmma", "teraflops": 790.0, "wrong": ""}], 800, "PyTorch"),
            ([{"way": "wgmma", "teraflops": 850.0, "wrong": ""}], 850, "the probe's wgmma"),
            ([{"way": "wgmma", "teraflops": 990.0, "wrong": "[0][0] is 3"}], 800, "PyTorch"),
            ([{"way": "wgmma", "teraflops": None, "wrong": ""}], 800, "PyTorch"),
        ):
            found = figures.Records(timings, peers, {"ways": ways})
            self.assertEqual(found.matrix, peak)
            self.assertIn(by, found.matrix_by)
        alone = rows_of(timings, [], matrix={"ways": [{"way": "wgmma", "teraflops": 790.0, "wrong": ""}]})
        self.assertEqual(alone["el-attention-peak"].verdict, "met")
        self.assertIn("46 % of 790 TFLOP/s by the probe's wgmma", alone["el-attention-peak"].measured)


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
        timed = [r for r in found.values()
                 if r.name not in ("answers", "faults", "memcheck", "racecheck", "runtime")]
        self.assertEqual({r.name: r.measured for r in timed if "not measured" in r.measured or not r.measured}, {})
        # What a profiler looks at is timed as well: a case of each kernel and variant.
        counted = {(r["kernel"], r["variant"]) for r in listed if figures.counted(r)}
        for kernel, variant in figures.COUNTED:
            self.assertTrue([c for c in counted if c[0] == kernel and variant in (None, c[1])], (kernel, variant))
        # Bytes and operations are those of the shape: K and V once, and few others.
        case = next(r for r in listed if r.get("variant") == "contiguous" and r["shape"]["keys"] == 16384)
        self.assertAlmostEqual(case["bytes"] / (2 * 2 * 16384 * 32 * 128), 1, delta=0.001)
        case = next(r for r in listed if r.get("kernel") == "el-attention" and r["shape"] == figures.EL)
        self.assertAlmostEqual(case["flops"] / (4 * 32 * 4 * 16 * 1024 * 1024), 1, delta=0.01)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).absolute()
    unittest.main()
