#!/usr/bin/env python3
"""Runs every fuzz target of the Go packages, one after the other, and prints what came out.

    tests/fuzz/fuzz.py [--time 60s] [--parallel 1] [--only host/generate/text] [--out FILE]

Targets are found in the packages' tests (func FuzzName). Each runs for --time, of the processor where it is a time, with
--parallel processes, beginning with the corpus that is checked in and what earlier runs found, which Go has in its cache. Inputs are not made smaller: by default
Go spends most of the time on that, and FuzzNPZ had 7 tries in 6 s, not 1,000 a second. A target fails on a panic, on an
answer that it calls wrong, and on an input for which it takes more time or memory than its size allows; Go then writes
the input below the package's testdata/fuzz, where every later `go test` tries it again.

Ends with 1 when a target failed.
"""

import argparse
import pathlib
import re
import resource
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def targets():
    """Packages and names of fuzz targets, in order."""
    files = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*_test.go"], cwd=ROOT,
                           check=True, capture_output=True, text=True).stdout.split()
    for file in sorted(files):
        for name in re.findall(r"^func (Fuzz\w+)\(\w+ \*testing\.F\)", (ROOT / file).read_text(), re.MULTILINE):
            yield str(pathlib.Path(file).parent), name


def seconds(text):
    """Of 60s, 30m, 4h; None for a number of tries."""
    found = re.fullmatch(r"(\d+)([smh])", text)
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]] if found else None


def spent():
    """Processor time of what has run, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(package, name, options):
    """Runs one target: a line of the report, and whether it passed."""

    def go(lasts):
        done = subprocess.run(["go", "test", "./" + package, "-run", "^$", "-fuzz", f"^{name}$", "-fuzztime", lasts,
                               "-parallel", str(options.parallel), "-fuzzminimizetime", "1x", "-timeout", "0"],
                              cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        tried = re.findall(r"execs: (\d+)", done.stdout)
        total = re.findall(r"total: (\d+)\)", done.stdout)
        return done.returncode == 0, int(tried[-1]) if tried else 0, total[-1] if total else "?", done.stdout

    left, took = seconds(options.time), 0.0
    passed, tries, corpus, said = go("1x" if left else options.time)  # compiles, which does not count
    while passed and left and took < left:
        before = spent()
        passed, tried, corpus, said = go(f"{max(5, round(left - took))}s")
        tries, took = tries + tried, took + spent() - before  # others may have had the processor meanwhile
    passed = passed and tries > 0
    line = (f"{package + ' ' + name:<58} {took:7.0f} s {tries:>12,} tries {corpus:>6} inputs  "
            f"{'ok' if passed else 'FAILED'}")
    return line if passed else line + "\n" + said[-6000:], passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", default="60s", help="of each target, of the processor: 60s, 30m; 1000x for a number of tries")
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
