"""Stages of gpu-check that take times: the matrix peak, the kernels, their variants, PyTorch, a profiler's counters."""

import csv
import json
import pathlib
import re
import tempfile

import figures
from words import last_line, records

# What ncu reads of a launch, and what it is called in the results.
COUNTERS = {
    "gpu__time_duration.sum": "nanoseconds",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram_percent",
    "dram__bytes_read.sum": "dram_bytes_read",
    "dram__bytes_write.sum": "dram_bytes_written",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "l2_percent",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "sm_percent",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy_percent",
    "launch__registers_per_thread": "registers",
    "launch__waves_per_multiprocessor": "waves",
}
# Those that not every release of ncu knows, which then reads nothing at all.
MORE = {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "tensor_percent"}
REFUSED = re.compile(r"==ERROR== (.*)")
FEWEST = 20.0  # seconds reserved for each program that is still to come


def peak(run):
    """The matrix peak, by a probe that needs nothing but the device."""
    program = run.args.bin / "peak"
    if not program.exists():
        return "unmeasured", f"no program {program}"
    code, text = run.run([program.absolute()])
    try:
        found = json.loads(last_line_of_json(text))
    except ValueError:
        return "failed", f"ended with {code}: {last_line(text)}"
    run.results["matrix"] = found
    wrong = [f"{way['way']}: {way['wrong']}" for way in found["ways"] if way["wrong"]]
    if wrong:
        return "failed", "; ".join(wrong)
    if not found["timed"]:
        return "done", "on the emulator: right, not timed"
    return "done", ", ".join(f"{way['way']} {way['teraflops']:.0f} TFLOP/s" for way in found["ways"])


def last_line_of_json(text):
    return next((line for line in reversed(text.splitlines()) if line.startswith("{")), "")


def timing(run):
    path = run.out / "timings.jsonl"
    path.write_text("", encoding="utf-8")
    programs, bad, short = run.programs("timing"), [], []
    if not programs:
        return "unmeasured", f"no programs in {run.args.bin}"
    for i, (name, program) in enumerate(programs.items()):
        # None may take what those after it need.
        limit = max(run.left() - FEWEST * (len(programs) - 1 - i), run.left() / (len(programs) - i))
        if run.left() <= 0 or run.stopped:
            short.append(name)
            continue
        code, text = run.run([program, "--rounds", run.args.rounds, "--json", path.absolute(), "--append"], limit)
        if code == -1:
            short.append(name)
        elif code != 0:
            bad.append(f"{name} ended with {code}: {failure(text)}")
        run.save()
    if bad:
        return "failed", "; ".join(bad)
    if short:
        return "unmeasured", "too little time for all of " + ", ".join(short)
    return "done", "" if run.results["machine"]["timed"] else "on the emulator: ran, not timed"


def failure(text):
    """The first case that failed, or the last words."""
    found = re.search(r".*: FAILED: .*", text)
    return found.group(0).strip()[:300] if found else last_line(text)


def listed(run):
    """The cases of each timing program by its name, with their words, and what is compared in pairs."""
    out = {}
    for name, program in run.programs("timing").items():
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch) / "list"
            code, text = run.run([program, "--list", "--json", path], 60)
            found = records(path)
        if code != 0:
            run.note(f"{name} --list ended with {code}: {last_line(text)}\n")
        for r in found:
            if r["record"] == "case":
                r["words"] = " ".join([r["variant"], r["type"], *(f"{k}={v}" for k, v in r["shape"].items())])
        out[name] = found
    return out


def alternatives(found):
    """Of one program's records, cases that are several ways to one answer and that no pair compares already."""
    groups, pairs = {}, set()
    for r in found:
        if r["record"] == "pair":
            pairs.add((figures.key(r, ""), frozenset((r["slow"], r["fast"]))))
        elif r["record"] == "case":
            groups.setdefault(figures.key(r, ""), {})[r["variant"]] = r["words"]
    return [list(group.values()) for key, group in groups.items()
            if len(group) > 1 and (key, frozenset(group)) not in pairs]


def variants(run):
    """Ways to one answer (other variants of the same kernel, type and shape), timed again with more rounds."""
    path = run.out / "variants.jsonl"
    path.write_text("", encoding="utf-8")
    work = [(name, group) for name, found in listed(run).items() for group in alternatives(found)]
    if not work:
        return "done", "no kernel has several ways to time beside those that timing compares"
    programs, bad, done = run.programs("timing"), [], 0
    for name, group in work:
        if run.left() <= 5 or run.stopped:
            break
        only = [part for words in group for part in ("--case", words)]
        code, text = run.run([programs[name], *only, "--rounds", 2 * run.args.rounds, "--json", path.absolute(),
                              "--append"])
        done += code == 0
        if code > 0:
            bad.append(f"{name} ended with {code}: {failure(text)}")
        run.save()
    if bad:
        return "failed", "; ".join(bad)
    if done < len(work):
        return "unmeasured", f"no time left for {len(work) - done} of {len(work)} groups"
    return "done", f"{done} groups" + ("" if run.results["machine"]["timed"] else ", on the emulator: not timed")


def pytorch(run):
    script = pathlib.Path(__file__).resolve().parent / "pytorch.py"
    path = run.out / "pytorch.jsonl"
    path.write_text("", encoding="utf-8")
    tiny = [] if run.results["machine"]["timed"] else ["--tiny", "--device", "cpu"]
    code, text = run.run([run.args.python, "-B", script, "--json", path.absolute(), "--rounds", run.args.rounds,
                          "--seconds", f"{max(run.left() - 20, 1):.0f}", *tiny])
    if code == 5:
        return "unmeasured", last_line(text)
    if code == -1:
        return "unmeasured", last_line(text)
    if code != 0:
        return "failed", f"ended with {code}: {last_line(text)}"
    return "done", ""


def counters(run):
    """ncu over one launch of each kernel, at the sizes of the figures."""
    if not run.results["machine"]["timed"]:
        return "unmeasured", "on the emulator"
    tool = run.tool(run.args.ncu)
    if tool is None:
        return "unmeasured", f"no {run.args.ncu} on the PATH"
    programs, found, refused = run.programs("timing"), run.results["counters"], ""
    work = [(name, r) for name, cases in listed(run).items() for r in cases if figures.counted(r)]
    for name, r in work:
        if run.left() <= 5 or run.stopped:
            break
        for metrics in ({**COUNTERS, **MORE}, COUNTERS):
            code, text = run.run([
                tool, "--clock-control", "none", "--profile-from-start", "off", "--csv", "--page", "raw",
                "--print-units", "base", "--metrics", ",".join(metrics), programs[name], "--once", "--case",
                r["words"]], 90)
            kernels = counted(text)
            if kernels or "metric" not in text:
                break
        why = "" if kernels else words_of_ncu(text, code)
        found[f"{r['kernel']} {r['words']}"] = {"kernels": kernels, "why": why}
        refused = refused or why
        run.save()
        if re.search(r"ERR_NVGPUCTRPERM|LibraryNotLoaded|failed to initialize", why, re.IGNORECASE):
            return "unmeasured", f"{run.args.ncu} is refused here: {why}"
    good = sum(1 for entry in found.values() if entry["kernels"])
    if good == 0:
        return "unmeasured", refused or "no case to count"
    left = f"; not counted: {len(work) - good} ({refused or 'no time left'})" if good < len(work) else ""
    return "done", f"{good} cases" + left


def counted(text):
    """Kernels and their counters from what ncu wrote as CSV, in either of its two forms."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    out = {}
    for row in csv.DictReader(lines):
        if not (row.get("ID") or "").isdigit():
            continue  # the line of the units
        kernel = out.setdefault(row["ID"], {"name": row["Kernel Name"], "grid": row.get("Grid Size", ""),
                                            "block": row.get("Block Size", "")})
        named = {row["Metric Name"]: row["Metric Value"]} if "Metric Name" in row else row
        for metric, name in {**COUNTERS, **MORE}.items():
            value = number(named.get(metric))
            if value is not None:
                kernel[name] = value
    return list(out.values())


def number(text):
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def words_of_ncu(text, code):
    found = REFUSED.search(text)
    return found.group(1).strip() if found else f"ended with {code}: {last_line(text)}"
