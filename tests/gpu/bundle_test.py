#!/usr/bin/env python3
"""The archive that `make gpu-bundle` makes, unpacked elsewhere: whole, small, and clear where there is no GPU.

    bundle_test.py ARCHIVE SOURCE     SOURCE: the repository
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ARCHIVE = SOURCE = None
LARGEST = 40_000_000  # bytes
NEWEST_GLIBC = (2, 36)  # Debian 12's
LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"}


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(cls.scratch.name, filter="data")
        cls.folder = pathlib.Path(cls.scratch.name) / "graft-gpu-check"
        cls.programs = {p.name: p for p in (cls.folder / "bin").iterdir()}

    def test_size(self):
        self.assertLessEqual(os.path.getsize(ARCHIVE), LARGEST)

    def test_programs(self):
        """One of conformance a kernel and one of its seeded faults, which has each fault's name too, one of timing where
        there are times, and no more."""
        want = {"device", "peak", "sanitizer-out-of-bounds", "sanitizer-missing-barrier"}
        for source in (SOURCE / "tests/gpu/conformance").glob("*.cu"):
            want.add(f"conform-{source.stem}")
            lines = (SOURCE / "kernels-cuda" / source.stem / "faults.txt").read_text(encoding="utf-8").splitlines()
            faults = [line.split()[0] for line in lines if re.match(r"\d+ ", line)]
            self.assertTrue(faults, source)
            listed = self.folder / "faults" / f"{source.stem}.txt"
            self.assertEqual(listed.read_text(encoding="utf-8").splitlines(), lines)
            want.add(f"faults-{source.stem}")
            for name in (f"fault-{source.stem}-{n}" for n in faults):
                want.add(name)
                self.assertEqual(os.readlink(self.programs[name]), f"faults-{source.stem}")
        want.update(f"timing-{source.stem}" for source in (SOURCE / "tests/gpu/timing").glob("*.cu"))
        self.assertEqual(set(self.programs), want)

    def test_plugins(self):
        """The library of every manifest that has a variant for CUDA."""
        want = set()
        for manifest in SOURCE.glob("plugins/*/plugin.yaml"):
            for file in re.findall(r"device: cuda,.*file: (\S+)}", manifest.read_text(encoding="utf-8")):
                want.add(f"{manifest.parent.name}/{file}")
        self.assertTrue(want)
        self.assertEqual({str(path.relative_to(self.folder / "plugins")) for path in self.folder.glob("plugins/*/*.so")}, want)

    def test_cases(self):
        """Cases of every plugin that has a library: models, inputs and answers, in the types that it takes."""
        libraries = {path.parent.name for path in self.folder.glob("plugins/*/*.so")}
        self.assertEqual({path.parent.name for path in self.folder.glob("cases/*/cases.json")}, libraries)
        for name in libraries:
            folder = self.folder / "cases" / name
            cases = json.loads((folder / "cases.json").read_text(encoding="utf-8"))
            self.assertIn("float32", {case["type"] for case in cases}, name)
            size = (folder / "cases.bin").stat().st_size
            for case in cases:
                self.assertGreater((folder / case["model"]).stat().st_size, 0)
                for array in case["inputs"] + case["outputs"]:
                    self.assertLessEqual(array["offset"] + array["bytes"], size)

    def test_cases_inside_onnx_runtime(self):
        """The same script and the same cases with the CPU variants: only the provider differs on a GPU."""
        python = SOURCE / "build/peers/new/bin/python"
        if not python.exists():
            self.skipTest(f"no {python}: make peers")
        for folder in sorted(self.folder.glob("cases/*")):
            library = SOURCE / "build/plugins" / folder.name / f"lib{folder.name.replace('-', '_')}.so"
            said = subprocess.run(
                [python, "-B", self.folder / "runtime.py", "--cases", folder, "--library", library, "--provider",
                 "CPUExecutionProvider"], capture_output=True, text=True, check=False)
            self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
            self.assertRegex(said.stdout, ": agrees")
            # What only the CUDA variant takes is refused, and nothing else is.
            self.assertFalse([line for line in said.stdout.splitlines() if "refused" in line and "float16" not in line])

    def test_a_wrong_answer_inside_onnx_runtime(self):
        """Answers are held against those that travel: other ones are wrong."""
        python = SOURCE / "build/peers/new/bin/python"
        if not python.exists():
            self.skipTest(f"no {python}: make peers")
        folder = pathlib.Path(self.scratch.name) / "fused-gelu"
        shutil.copytree(self.folder / "cases" / "fused-gelu", folder)
        data = folder / "cases.bin"
        case = json.loads((folder / "cases.json").read_text(encoding="utf-8"))[0]
        raw = bytearray(data.read_bytes())
        last = case["outputs"][0]["offset"] + case["outputs"][0]["bytes"]
        raw[last - 4:last] = b"\0\0\x80\x41"  # 16.0
        data.write_bytes(raw)
        said = subprocess.run(
            [python, "-B", self.folder / "runtime.py", "--cases", folder, "--library",
             SOURCE / "build/plugins/fused-gelu/libfused_gelu.so", "--provider", "CPUExecutionProvider"],
            capture_output=True, text=True, check=False)
        self.assertEqual(said.returncode, 1, said.stdout + said.stderr)
        self.assertRegex(said.stdout, r": wrong, output y0 \[.*the CPU variant gives 16")

    def test_needs_nothing_but_glibc(self):
        for name, path in self.programs.items():
            said = subprocess.run(["readelf", "-dV", path], capture_output=True, text=True, check=True).stdout
            needed = set(re.findall(r"NEEDED.*\[(.*)\]", said))
            self.assertLessEqual(needed, LIBRARIES, name)
            versions = [tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", said)]
            self.assertLessEqual(max(versions), NEWEST_GLIBC, name)

    def test_says_what_it_was_built_from(self):
        built = json.loads((self.folder / "build.json").read_text(encoding="utf-8"))
        self.assertRegex(built["commit"], "^[0-9a-f]{40}( with changes)?$")
        self.assertRegex(built["nvcc"], r"^13\.")

    def test_scripts(self):
        """All that gpu-check imports is there."""
        for path in sorted(self.folder.glob("*.py")):
            subprocess.run([sys.executable, "-B", "-c", f"import {path.stem}"], cwd=self.folder, check=True)
        self.assertFalse(list(self.folder.glob("*_test.py")))

    def test_without_a_device(self):
        """Clear words, status 2, and nothing written."""
        here = pathlib.Path(self.scratch.name) / "elsewhere"
        here.mkdir()
        said = subprocess.run([self.folder / "gpu-check"], cwd=here, capture_output=True, text=True, check=False,
                              env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(said.returncode, 2, said.stdout + said.stderr)
        self.assertIn("there is no CUDA device or no driver that supports it", said.stderr)
        self.assertEqual(list(here.iterdir()), [])


if __name__ == "__main__":
    SOURCE = pathlib.Path(sys.argv.pop()).absolute()
    ARCHIVE = pathlib.Path(sys.argv.pop()).absolute()
    unittest.main()
