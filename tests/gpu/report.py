"""Results of gpu-check as files: what earlier parts left is kept, and completed."""

import json
import os

import figures
from words import records

SCHEMA = 2
KEPT = ("part", "quick", "minutes", "stages", "problems", "fault_problems", "rounds", "provider")


def begin(out, device, built, date, options):
    """Results in which every stage is unmeasured yet, or those that a part has left in the folder; None, and why,
    where those are of something else."""
    path = out / "gpu-check.json"
    results = {"schema": SCHEMA, "date": date, "commit": built["commit"], "built": built, "machine": device, "runs": [],
               "stages": {}, "matrix": {}, "quick": {}, "conformance": {}, "faults": {}, "plugins": {},
               "operators": {}, "counters": {}, "sanitizer": {}, "limits": {}, "rows": [], "exit": 1}
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        for what, old, new in (("layout", before["schema"], SCHEMA), ("commit", before["commit"], built["commit"]),
                               ("device", before["machine"]["device"], device["device"])):
            if old != new:
                return None, f"{out}: found results of {what} {old}, these are of {new}; name another folder with --out"
        results = {**results, **before}
    results["runs"].append({"date": date, **{name: options[name] for name in KEPT}})
    return results, ""


def judge(out, results, stages):
    """Fills rows, limits and exit (of the stages that were asked for) from what the stages left."""
    timings, peers = records(out / "timings.jsonl"), records(out / "pytorch.jsonl")
    found = figures.Records(timings, peers, results["matrix"])
    results["rows"] = [vars(row) for row in figures.rows(timings, peers, results, results["machine"]["timed"])]
    results["limits"] = {"copy_gigabytes_per_second": found.copy, "matrix_teraflops": found.matrix,
                         "matrix_by": found.matrix_by, "warp_matrix_teraflops": found.warp_matrix}
    state = lambda name: results["stages"].get(name, {}).get("state")  # noqa: E731
    unproved = [s for s in ("quick", "conformance", "faults") if s in stages and state(s) != "done"]
    failed = [s for s in stages if state(s) == "failed" and s != "sanitizer"]
    results["exit"] = 1 if unproved or failed else 0


def write(out, results, stages):
    """Writes gpu-check.json and table.md, each whole or not at all."""
    judge(out, results, stages)
    for name, content in (("gpu-check.json", json.dumps(results, indent=1) + "\n"), ("table.md", text(out, results))):
        part = out / "new.part"
        part.write_text(content, encoding="utf-8")
        os.replace(part, out / name)


def again(out):
    """The table of a folder's results by the figures of today."""
    results = json.loads((out / "gpu-check.json").read_text(encoding="utf-8"))
    write(out, results, list(results["stages"]))
    print(text(out, results))
    return results["exit"]


def text(out, results):
    machine, limits = results["machine"], results["limits"]
    rate = lambda value, unit: f"{value:,.0f} {unit}" if value else "not measured"  # noqa: E731
    lines = [
        f"# {machine['device']}, {results['date']}", "",
        f"commit {results['commit']}, driver {machine.get('driver') or 'unknown'} (CUDA {machine['driver_cuda']}), "
        f"built with CUDA {machine['runtime_cuda']}",
        f"copy within the device {rate(limits['copy_gigabytes_per_second'], 'GB/s')}, "
        f"bf16 matrix peak {rate(limits['matrix_teraflops'], 'TFLOP/s')}"
        + (f" by {limits['matrix_by']}" if limits["matrix_by"] else "")
        + f", by mma.sync {rate(limits['warp_matrix_teraflops'], 'TFLOP/s')}", "",
        "| stage | | seconds | |", "|---|---|---|---|",
    ]
    lines += [f"| {name} | {s['state']} | {s['seconds']:.0f} | {s['why']} |" for name, s in results["stages"].items()]
    lines += ["", figures.table([figures.Row(**row) for row in results["rows"]])]
    lines += variants(out) + counters(results["counters"])
    return "\n".join(lines)


def variants(out):
    """Times of the ways to one answer, beside one another."""
    groups = {}
    for r in records(out / "variants.jsonl"):
        if r["record"] == "case":
            groups.setdefault(figures.key(r, ""), []).append(r)
    if not groups:
        return []
    lines = ["| kernel | type | shape | variant | us | GB/s | TFLOP/s |", "|---|---|---|---|---|---|---|"]
    show = lambda value, digits: "-" if value is None else f"{value:.{digits}f}"  # noqa: E731
    for found in groups.values():
        for r in sorted(found, key=lambda r: r["milliseconds"] or 0):
            shape = " ".join(f"{k}={v}" for k, v in r["shape"].items())
            ms = r["milliseconds"]
            lines.append(f"| {r['kernel']} | {r['type']} | {shape} | {r['variant']} | {show(ms and ms * 1e3, 2)} | "
                         f"{show(r.get('gigabytes_per_second'), 0)} | {show(r.get('teraflops'), 1)} |")
    return lines + [""]


def counters(found):
    """What a profiler counted, a kernel a line."""
    names = ("nanoseconds", "dram_percent", "l2_percent", "sm_percent", "tensor_percent", "occupancy_percent", "registers", "waves")
    lines = [f"| {case} | {k['name'].split('(')[0][:60]} | " + " | ".join(f"{k[n]:.1f}" if n in k else "-" for n in names)
             + " |" for case, entry in found.items() for k in entry["kernels"]]
    if not lines:
        return []
    return [f"| case | kernel | {' | '.join(n.replace('_', ' ') for n in names)} |",
            "|---|---|" + "---|" * len(names), *lines, ""]
