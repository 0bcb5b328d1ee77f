#!/usr/bin/env python3
"""Runs every fuzz target of the Go packages, one after the other, and prints what came out.

    tests/fuzz/fuzz.py [--time 60s] [--parallel 1] [--only host/text] [--out FILE]

Targets are found in the packages' tests (func FuzzName). Each runs for --time with --parallel processes, beginning with
the corpus that is checked in and what earlier runs found, which Go has in its cache. Inputs are not made smaller: by default
Go spends most of the time on that, and FuzzNPZ had 7 tries in 6 s, not 1,000 a second. A target fails on a panic, on an
answer that it calls wrong, and on an input for which it takes more time or memory than its size allows; Go then writes
the input below the package's testdata/fuzz, where every later `go test` tries it again.

Ends with 1 when a target failed.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def targets():
    """Packages and names of fuzz targets, in order."""
    files = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*_test.go"], cwd=ROOT,
                           check=True, capture_output=True, text=True).stdout.split()
    for file in sorted(files):
        for name in re.findall(r"^func (Fuzz\w+)\(\w+ \*testing\.F\)", (ROOT / file).read_text(), re.MULTILINE):
            yield str(pathlib.Path(file).parent), name


def run(package, name, options):
    """Runs one target: a line of the report, and whether it passed."""
    begin = time.time()
    done = subprocess.run(["go", "test", "./" + package, "-run", "^$", "-fuzz", f"^{name}$", "-fuzztime", options.time,
                           "-parallel", str(options.parallel), "-fuzzminimizetime", "1x"],
                          cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    tries = re.findall(r"execs: (\d+)", done.stdout)
    corpus = re.findall(r"total: (\d+)\)", done.stdout)
    passed = done.returncode == 0 and tries
    line = (f"{package + ' ' + name:<58} {time.time() - begin:7.0f} s {int(tries[-1]) if tries else 0:>12,} tries "
            f"{corpus[-1] if corpus else '?':>6} inputs  {'ok' if passed else 'FAILED'}")
    if not passed:
        line += "\n" + done.stdout[-6000:]
    return line, passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", default="60s", help="of each target: 60s, 30m; 1000x for a number of tries")
    parser.add_argument("--parallel", type=int, default=1, help="processes of a target")
    parser.add_argument("--only", help="packages or targets with this in their name")
    parser.add_argument("--out", type=pathlib.Path, help="file that the lines are written to as well")
    options = parser.parse_args()
    chosen = [t for t in targets() if not options.only or options.only in " ".join(t)]
    if not chosen:
        sys.exit(f"{options.only}: found no target of this name; needed one of "
                 + ", ".join(" ".join(t) for t in targets()))
    failed = 0
    for package, name in chosen:
        line, passed = run(package, name, options)
        failed += not passed
        print(line, flush=True)
        if options.out:
            with options.out.open("a") as out:
                print(line, file=out)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
