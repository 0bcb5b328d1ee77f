"""Results of gpu-check as files."""

import json
import os

import figures

SCHEMA = 1


def begin(device, built, date, options):
    """Results in which every stage is unmeasured yet."""
    kept = ("quick", "minutes", "stages", "problems", "fault_problems", "rounds")
    return {"schema": SCHEMA, "date": date, "commit": built["commit"], "built": built, "machine": device,
            "options": {name: options[name] for name in kept}, "stages": {}, "conformance": {}, "faults": {},
            "plugins": {}, "sanitizer": {}, "limits": {}, "rows": [], "exit": 1}


def records(path):
    """JSON lines; a last one that a program was cut off in is left out."""
    if not path.exists():
        return []
    out = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            out.append(json.loads(line))
        except ValueError:
            continue
    return out


def judge(out, results):
    """Fills rows, limits and exit from what the stages left."""
    timings, peers = records(out / "timings.jsonl"), records(out / "pytorch.jsonl")
    all_rows = figures.rows(timings, peers, results["conformance"], results["faults"], results["sanitizer"],
                            results["machine"]["timed"])
    found = figures.Records(timings, peers)
    results["limits"] = {"copy_gigabytes_per_second": found.copy, "matrix_teraflops": found.matrix}
    results["rows"] = [vars(row) for row in all_rows]
    state = lambda name: results["stages"].get(name, {}).get("state")  # noqa: E731
    unproved = [s for s in ("conformance", "faults") if state(s) in ("failed", "unmeasured")]
    failed = [s for s in ("plugins", "timing") if state(s) == "failed"]
    results["exit"] = 1 if unproved or failed else 0


def write(out, results):
    """Writes gpu-check.json and table.md, each whole or not at all."""
    judge(out, results)
    for name, content in (("gpu-check.json", json.dumps(results, indent=1) + "\n"), ("table.md", text(results))):
        part = out / (name + ".part")
        part.write_text(content, encoding="utf-8")
        os.replace(part, out / name)


def again(out):
    """The table of a folder's results by the figures of today."""
    results = json.loads((out / "gpu-check.json").read_text(encoding="utf-8"))
    write(out, results)
    print(text(results))
    return results["exit"]


def text(results):
    machine, limits = results["machine"], results["limits"]
    rate = lambda value, unit: f"{value:,.0f} {unit}" if value else "not measured"  # noqa: E731
    lines = [
        f"# {machine['device']}, {results['date']}", "",
        f"commit {results['commit']}, driver {machine.get('driver') or 'unknown'} (CUDA {machine['driver_cuda']}), "
        f"built with CUDA {machine['runtime_cuda']}",
        f"copy within the device {rate(limits['copy_gigabytes_per_second'], 'GB/s')}, "
        f"bf16 matrix peak {rate(limits['matrix_teraflops'], 'TFLOP/s')}", "",
        "| stage | | seconds | |", "|---|---|---|---|",
    ]
    lines += [f"| {name} | {s['state']} | {s['seconds']:.0f} | {s['why']} |" for name, s in results["stages"].items()]
    lines += ["", figures.table([figures.Row(**row) for row in results["rows"]])]
    return "\n".join(lines)
