#!/usr/bin/env python3
"""The archive that `make gpu-bundle` makes, unpacked elsewhere: whole, small, and clear where there is no GPU.

    bundle_test.py ARCHIVE SOURCE     SOURCE: the repository
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest

ARCHIVE = SOURCE = None
LARGEST = 60_000_000  # bytes
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
        """One of conformance a kernel, one of timing where there are times, one a seeded fault, and no more."""
        want = {"device", "sanitizer-out-of-bounds", "sanitizer-missing-barrier"}
        for source in (SOURCE / "tests/gpu/conformance").glob("*.cu"):
            want.add(f"conform-{source.stem}")
            lines = (SOURCE / "kernels-cuda" / source.stem / "faults.txt").read_text(encoding="utf-8").splitlines()
            faults = [line.split()[0] for line in lines if re.match(r"\d+ ", line)]
            self.assertTrue(faults, source)
            want.update(f"fault-{source.stem}-{n}" for n in faults)
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

    def test_without_a_device(self):
        """Clear words, status 2, and nothing written."""
        here = pathlib.Path(self.scratch.name) / "elsewhere"
        here.mkdir()
        said = subprocess.run([self.folder / "gpu-check"], cwd=here, capture_output=True, text=True, check=False,
                              env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(said.returncode, 2, said.stdout + said.stderr)
        self.assertIn("there is no CUDA device or no driver that serves it", said.stderr)
        self.assertEqual(list(here.iterdir()), [])


if __name__ == "__main__":
    SOURCE = pathlib.Path(sys.argv.pop()).absolute()
    ARCHIVE = pathlib.Path(sys.argv.pop()).absolute()
    unittest.main()
