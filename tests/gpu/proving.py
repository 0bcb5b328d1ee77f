"""Stages of gpu-check that prove answers: conformance, seeded faults, compute-sanitizer."""

import concurrent.futures
import json
import pathlib
import re
import tempfile

from words import last_line

NOT_THE_KERNEL = re.compile("driver version|no CUDA-capable|initialization error|out of memory|no kernel image")
QUICK = 500  # problems a kernel
SANITIZED = {False: 60, True: 10}  # problems a kernel, by --quick
SHORTEST = 2.0  # seconds below which no process is begun
CHUNK = 250  # problems of one process at the least
# Problems of a fault that racecheck judges, from and how many: it is slow, and most faults show in the first.
RACED = ((0, 6), (6, 18), (24, 72))
BROKEN = {"memcheck": "out-of-bounds", "racecheck": "missing-barrier"}
ABSENT = "no {} on the PATH"


def quick(run):
    return prove(run, "quick", min(QUICK, run.args.problems))


def conformance(run):
    return prove(run, "conformance", run.args.problems)


def prove(run, key, problems):
    programs = run.programs("conform")
    if not programs:
        return "unmeasured", f"no programs in {run.args.bin}"
    found = run.results[key]
    conform_all(run, programs, problems, found)
    bad = [name for name, r in found.items() if r["failed"] or r["fault"]]
    for name in bad:
        print(f"  {name}: {found[name]['failed']} of {found[name]['problems']} failed; "
              f"{found[name]['first_failure'] or found[name]['fault']}")
    done = sum(r["problems"] for r in found.values())
    words = f"{done:,} problems of {len(found)} kernels"
    if bad:
        return "failed", ", ".join(sorted(bad))
    if done < problems * len(programs):
        return "unmeasured", f"too little time: {words}, {problems:,} of each were asked for"
    return "done", words


def nothing():
    return {"problems": 0, "failed": 0, "worst_error": 0.0, "seconds": 0.0, "first_failure": "", "fault": ""}


def merge(into, more):
    """Adds the counts of one result to another."""
    into["problems"] += more["problems"]
    into["failed"] += more["failed"]
    into["worst_error"] = max(into["worst_error"], more["worst_error"] or 0.0)
    into["seconds"] += more["seconds"]
    into["first_failure"] = into["first_failure"] or more["first_failure"]
    into["fault"] = into["fault"] or more.get("fault", "")


def conform(run, name, program, first, problems, scratch, *more):
    """Results of problems first to first + problems - 1 of one program; `fault` where it did not end well."""
    path = pathlib.Path(scratch) / f"{name}-{first}.json"
    soft = max(run.left() - 10, 1)
    if run.left() < SHORTEST and run.args.minutes:
        return nothing()
    code, text = run.run([program, "--problems", problems, "--first", first, "--seconds", f"{soft:.0f}",
                          "--json", path, *more])
    result = nothing()
    try:
        for r in json.loads(path.read_text(encoding="utf-8")):
            merge(result, r)
    except (OSError, ValueError):
        if not run.stopped:
            result["fault"] = f"wrote no results, ended with {code}: {last_line(text)}"
    # 1 says that problems failed, which the results count; 3 that the device was lost under one of them.
    if not result["fault"] and not run.stopped and (code not in (0, 1, 3) or (code != 0 and result["failed"] == 0)):
        result["fault"] = f"ended with {code}: {last_line(text)}"
    return result


def conform_all(run, programs, problems, found, *more):
    """Fills `found`, results by name. A program's problems are shared out to processes, so that all processors work to
    the end; whatever has ended is in the results at once."""
    size = -(-problems // max(1, min(16, problems // CHUNK)))
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(run.args.jobs) as pool:
        tasks = {pool.submit(conform, run, name, program, first, min(size, problems - first), scratch, *more): name
                 for first in range(0, problems, size) for name, program in programs.items()}
        for task in concurrent.futures.as_completed(tasks):
            with run.lock:
                merge(found.setdefault(tasks[task], nothing()), task.result())
            run.save()


def raced(run):
    """Names of the faults that racecheck alone judges on a GPU: `N racecheck: ...` in a kernel's faults.txt."""
    here = pathlib.Path(__file__).resolve().parent
    lists = {path.stem: path for path in (run.args.bin.parent / "faults").glob("*.txt")}
    if not lists:
        lists = {path.parent.name: path for path in here.parent.parent.glob("kernels-cuda/*/faults.txt")}
    return {f"{kernel}-{number}" for kernel, path in lists.items()
            for number in re.findall(r"^(\d+) racecheck:", path.read_text(encoding="utf-8"), re.MULTILINE)}


def faults(run):
    programs = run.programs("fault")
    if not programs:
        return "unmeasured", f"no programs in {run.args.bin}"
    # On the emulator conformance finds those as well.
    by_racecheck = raced(run) & set(programs) if run.results["machine"]["timed"] else set()
    found = run.results["faults"]
    with concurrent.futures.ThreadPoolExecutor(run.args.jobs) as pool, tempfile.TemporaryDirectory() as scratch:
        tasks = {}
        for name, program in programs.items():
            work = race if name in by_racecheck else fail
            tasks[pool.submit(work, run, name, program, scratch)] = name
        for task in concurrent.futures.as_completed(tasks):
            name = tasks[task]
            with run.lock:
                found[name] = {**task.result(), "kernel": re.sub(r"-\d+$", "", name)}
            run.save()
    missed = sorted(name for name, r in found.items() if r["found"] is False)
    open_ = sorted(name for name, r in found.items() if r["found"] is None)
    words = f"{len(found) - len(missed) - len(open_)} of {len(found)} found"
    if open_:
        words += f"; not judged: {', '.join(open_)} ({found[open_[0]]['why']})"
    if missed:
        return "failed", f"{words}; not found: {', '.join(missed)}"
    return "done", words


def number(name):
    """Of a fault, KERNEL-N: a tool may start the program by another name than that of the link."""
    return name.rpartition("-")[2]


def fail(run, name, program, scratch):
    """A fault's conformance, up to the first problem that fails."""
    r = conform(run, name, program, 0, run.args.fault_problems, scratch, "--until-failure", "--fault", number(name))
    if r["problems"] == 0 and not r["fault"]:
        r.update(judge="conformance", found=None, why="no time left")
        return r
    # Found is what conformance counted: a program that merely does not work here has found nothing.
    r.update(judge="conformance", why="",
             found=r["failed"] > 0 and not r["fault"] and not NOT_THE_KERNEL.search(r["first_failure"]))
    return r


def race(run, name, program, _):
    """A fault that shows as a hazard alone, if at all."""
    r = {**nothing(), "judge": "racecheck", "found": None, "why": ""}
    tool = run.tool(run.args.sanitizer)
    if tool is None:
        r["why"] = ABSENT.format(run.args.sanitizer)
        return r
    for first, problems in RACED:
        if run.left() < 10:
            r["why"] = f"no time left after {r['problems']} problems"
            return r
        command = [*conform_few(run, program, first, problems), "--fault", number(name)]
        hazards, why = sanitized(run, tool, "racecheck", command)
        if hazards is None:
            r["why"] = why
            return r
        r["problems"], r["failed"] = first + problems, hazards
        if hazards > 0:
            r.update(found=True, first_failure=f"racecheck: {hazards} hazards in {r['problems']} problems")
            return r
    r["found"] = False
    return r


def conform_few(run, program, first, problems):
    """A command for a tool that makes programs slow: each array an allocation of its own, which the tool can watch."""
    return [program, "--separate", "--first", first, "--problems", problems, "--seconds",
            f"{max(0.6 * run.left(), 1):.0f}"]


def sanitizer(run):
    tool = run.tool(run.args.sanitizer)
    if tool is None:
        return "unmeasured", ABSENT.format(run.args.sanitizer)
    with concurrent.futures.ThreadPoolExecutor(max(1, run.args.jobs // 2)) as pool:
        states = []
        for check, broken in BROKEN.items():
            states.append(sanitize(run, pool, tool, check, run.args.bin.absolute() / f"sanitizer-{broken}"))
    words = "; ".join(f"{check}: {run.results['sanitizer'][check]['words']}" for check in BROKEN)
    if "missed" in states:
        return "failed", words
    return ("unmeasured" if "unmeasured" in states else "done"), words


def sanitize(run, pool, tool, check, broken):
    """One tool over the program that it must catch, then over some problems of every kernel."""
    result = run.results["sanitizer"][check] = {"state": "unmeasured", "words": "ended before it was done",
                                                "kernels": {}}
    caught, text = sanitized(run, tool, check, [broken])
    if caught is None:
        result["words"] = f"compute-sanitizer does not work here: {text}"
        return result["state"]
    if caught == 0:
        result["state"], result["words"] = "missed", f"did not catch {broken.name}"
        return result["state"]
    # Half of what is left to the first check.
    end = run.left() if check == list(BROKEN)[-1] else run.left() / 2
    tasks = {pool.submit(sanitized, run, tool, check, [
        program, "--separate", "--problems", SANITIZED[run.args.quick], "--first", 1000000, "--seconds",
        f"{max(0.6 * end, 1):.0f}"], end): kernel for kernel, program in run.programs("conform").items()}
    for task in concurrent.futures.as_completed(tasks):
        errors, text = task.result()
        if errors is None:
            print(f"  {check} of {tasks[task]}: {text}")
        else:
            result["kernels"][tasks[task]] = errors
            run.save()
    bad = [f"{kernel} ({errors})" for kernel, errors in sorted(result["kernels"].items()) if errors]
    result["state"] = "missed" if bad else "met"
    result["words"] = f"caught {broken.name}; " + (
        "errors in " + ", ".join(bad) if bad else f"{len(result['kernels'])} kernels clean")
    return result["state"]


def sanitized(run, tool, check, command, seconds=None):
    """What the tool counts over a program: errors, or None and why where it could not look."""
    code, text = run.run([tool, "--tool", check, *command], seconds)
    found = re.search(r"RACECHECK SUMMARY: (\d+) hazards?" if check == "racecheck" else r"ERROR SUMMARY: (\d+) error",
                      text)
    # A tool that the device refuses reports an error of its first call, and no kernel at all was run.
    refused = re.search(r"Device not supported|not supported on this device|Unable to attach|error 999", text)
    if refused or found is None or code == -1:
        return None, refused.group(0) if refused else last_line(text)
    return int(found.group(1)), ""
