"""What is needed of the kernels on a GPU, and whether what was measured meets it.

Records are those of the timing programs and of pytorch.py, one JSON object a line: `limits`, `case` and `pair`
(README.md names the cases), and what the probe of the matrix peak says. Nothing here measures, and nothing is taken as
met that is not in a record.
"""

from dataclasses import dataclass, field

KERNELS = ("flash-decode", "el-attention", "slim-attention", "ngram-block", "logits-top-k")
PROBLEMS = 10000  # of each kernel

DECODE = {"batch": 1, "query_heads": 32, "kv_heads": 32, "head_size": 128}
DECODE_KEYS = (16384, 32768, 65536, 131072)
PREFIX = {"batch": 32, "query_heads": 32, "kv_heads": 32, "head_size": 128, "suffix": 64}
PREFIX_BEAMS = (4, 8)
SHORT_PREFIXES = (64, 128, 256, 512)
LONG_PREFIXES = (1024, 2048, 4096, 8192, 16384)
EL = {"batch": 32, "beam": 4, "heads": 16, "width": 1024, "keys": 1024}
SLIM = {"batch": 64, "heads": 20, "head_size": 64, "keys": 1500}
NGRAM = {"rows": 512, "tokens": 1024, "n": 3, "vocabulary": 50257}
TOP_K = {"rows": 128, "vocabulary": 50257, "beam": 4}

# Cases that a profiler looks at, by kernel and variant: what must be in their shape.
COUNTED = {
    ("flash-decode", "contiguous"): {**DECODE, "keys": 131072},
    ("flash-decode", "per-beam"): {**PREFIX, "beam": 4, "prefix": 2048},
    ("flash-decode", "shared-prefix"): {**PREFIX, "beam": 4, "prefix": 2048},
    ("el-attention", None): EL,
    ("slim-attention", None): SLIM,
    ("ngram-block", None): NGRAM,
    ("logits-top-k", None): TOP_K,
}

# Two runs of one kernel differ by as much: what is not slower than itself passes.
NOISE = 0.01


@dataclass
class Row:
    """A figure. `worst` is the measured value that decides, `details` all of them by shape."""

    name: str
    what: str
    need: str
    verdict: str = "unmeasured"  # met, missed, unmeasured
    measured: str = ""
    worst: float | None = None
    details: dict = field(default_factory=dict)


class Records:
    """Finds times among records."""

    def __init__(self, timings, peers, matrix=None):
        self.copy = best(r.get("copy_gigabytes_per_second") for r in timings if r["record"] == "limits")
        peaks = {f"the probe's {way['way']}": way["teraflops"] for way in (matrix or {}).get("ways", [])
                 if way["teraflops"] and not way["wrong"]}
        self.warp_matrix = peaks.get("the probe's mma.sync")
        product = best(r.get("matrix_teraflops") for r in peers if r["record"] == "limits")
        if product:
            peaks["PyTorch's product of 8192 x 8192"] = product
        # The best of all: a share of it is never flattered by a probe that is too slow.
        self.matrix_by = max(peaks, key=peaks.get) if peaks else None
        self.matrix = peaks.get(self.matrix_by)
        self.cases = {key(r): r for r in timings if r["record"] == "case"}
        self.pairs = {key(r, r["slow"], r["fast"]): r for r in timings if r["record"] == "pair"}
        self.peers = {}
        for r in peers:
            if r["record"] == "case":
                self.peers.setdefault(key(r, ""), []).append(r)

    def case(self, kernel, variant, type_, shape):
        r = self.cases.get((kernel, (variant,), type_, tuple(sorted(shape.items()))))
        return r if r and r["milliseconds"] else None

    def ratio(self, kernel, slow, fast, type_, shape):
        r = self.pairs.get((kernel, (slow, fast), type_, tuple(sorted(shape.items()))))
        return r["ratio"] if r else None

    def peer(self, kernel, type_, shape, among=None):
        """The fastest of PyTorch's ways: milliseconds and name, or None."""
        found = self.peers.get((kernel, ("",), type_, tuple(sorted(shape.items()))), [])
        times = [(r["milliseconds"], r["variant"]) for r in found
                 if r["milliseconds"] and (among is None or among(r["variant"]))]
        return min(times) if times else None


def best(values):
    return max((v for v in values if v), default=None)


def key(r, *variants):
    return (r["kernel"], variants or (r["variant"],), r["type"], tuple(sorted(r["shape"].items())))


def judge(row, values, holds, show, lowest=True):
    """Fills a row from values by shape (None: not measured): met when all hold, which the worst decides."""
    missing = [name for name, v in values.items() if v is None]
    known = {name: v for name, v in values.items() if v is not None}
    row.details = values
    if known:
        name = (min if lowest else max)(known, key=known.get)
        row.worst = known[name]
        row.measured = show(known[name]) + (f" ({name})" if len(values) > 1 else "")
    if missing and known:
        row.measured += "; not measured: " + "; ".join(missing)
    if known and not all(holds(v) for v in known.values()):
        row.verdict = "missed"
    elif not missing:
        row.verdict = "met"
    return row


def counted(record):
    """Whether a profiler looks at a listed case."""
    if record["record"] != "case":
        return False
    kernel = record["kernel"]
    return record["shape"] == COUNTED.get((kernel, record["variant"]), COUNTED.get((kernel, None)))


def divided(a, b):
    return None if a is None or b is None else a / b


def decode_rows(records):
    bf16 = "bfloat16"
    shares, ratios = {}, {}
    for keys in DECODE_KEYS:
        shape = {**DECODE, "keys": keys}
        case = records.case("flash-decode", "contiguous", bf16, shape)
        shares[f"{keys} keys"] = divided(case and case["gigabytes_per_second"], records.copy)
        peer = records.peer("flash-decode", bf16, shape)
        ratios[f"{keys} keys"] = divided(peer and peer[0], case and case["milliseconds"])
    what = "flash-decode, batch 1, 32 heads x 128, bf16, 16k to 128k keys"
    yield judge(Row("flash-decode-bandwidth", what, "at least 80 % of the copy bandwidth"),
                shares, lambda v: v >= 0.8, percent)
    yield judge(Row("flash-decode-pytorch", what, "at least 1.0x the fastest of PyTorch's SDPA"),
                ratios, lambda v: v >= 1.0, times)


def prefix_rows(records):
    bf16 = "bfloat16"
    shares, gains, short = {}, {}, {}
    for beam in PREFIX_BEAMS:
        for prefix in SHORT_PREFIXES + LONG_PREFIXES:
            shape = {**PREFIX, "beam": beam, "prefix": prefix}
            name = f"b = {beam}, P = {prefix}"
            ratio = records.ratio("flash-decode", "per-beam", "shared-prefix", bf16, shape)
            if prefix in SHORT_PREFIXES:
                short[name] = ratio
                continue
            s = PREFIX["suffix"]
            gains[name] = divided(ratio, beam * (prefix + s) / (prefix + beam * s))
            case = records.case("flash-decode", "per-beam", bf16, shape)
            shares[name] = divided(case and case["gigabytes_per_second"], records.copy)
    what = "shared prefix P, S = 64, batch 32, 32 heads x 128, bf16, b = 4 and 8, P = 1k to 16k"
    yield judge(Row("per-beam-bandwidth", what + ": the per-beam kernel it is compared with",
                    "at least 80 % of the copy bandwidth"), shares, lambda v: v >= 0.8, percent)
    yield judge(Row("shared-prefix", what, "at least 0.8 of b(P+S)/(P+bS) times the per-beam kernel"),
                gains, lambda v: v >= 0.8, lambda v: f"{v:.2f} of it")
    yield judge(Row("shared-prefix-short", "the same, P = 64 to 512",
                    "never slower than the per-beam kernel (1 % is noise)"),
                short, lambda v: v >= 1 - NOISE, times)


def el_rows(records):
    bf16 = "bfloat16"
    case = records.case("el-attention", "el-attention", bf16, EL)
    rate = case and case["teraflops"]
    pair = records.peer("el-attention", bf16, EL, lambda variant: variant == "matmul-softmax-matmul")
    what = "el-attention, BART-large (16 heads, width 1,024), beam 4, batch 32, 1,024 keys, bf16"
    yield judge(Row("el-attention-rate", what, "above 307 TFLOP/s"), {"rate": rate}, lambda v: v > 307,
                lambda v: f"{v:.0f} TFLOP/s")
    yield judge(Row("el-attention-peak", what, "at least 45 % of the matrix peak"),
                {"share": divided(rate, records.matrix)}, lambda v: v >= 0.45,
                lambda v: f"{percent(v)} of {records.matrix:.0f} TFLOP/s by {records.matrix_by}")
    yield judge(Row("el-attention-pytorch", what, "at least 1.2x batched products and softmax in PyTorch"),
                {"ratio": divided(pair and pair[0], case and case["milliseconds"])}, lambda v: v >= 1.2, times)


def other_rows(records):
    yield judge(Row("slim-attention", "slim attention, Whisper-large shape, batch 64",
                    "at least 1.6x the K/V-cache kernel"),
                {"ratio": records.ratio("slim-attention", "kv-cache", "k-cache", "bfloat16", SLIM)},
                lambda v: v >= 1.6, times)
    what = "ngram-block, 512 rows x 1,024 tokens, n = 3, vocabulary 50k"
    case = records.case("ngram-block", "ngram-block", "float32", NGRAM)
    peer = records.peer("ngram-block", "float32", NGRAM)
    yield judge(Row("ngram-block", what, "under 10 us"),
                {"time": case and case["milliseconds"] * 1e3}, lambda v: v < 10, lambda v: f"{v:.1f} us",
                lowest=False)
    yield judge(Row("ngram-block-pytorch", what, "at least 10x a vectorised PyTorch version"),
                {"ratio": divided(peer and peer[0], case and case["milliseconds"])}, lambda v: v >= 10, times)
    yield judge(Row("logits-top-k", "logits processing and top-k selection, 128 rows x 50k, beam 4",
                    "within 1.5x of reading the scores once"),
                {"ratio": records.ratio("logits-top-k", "logits-top-k", "reading", "float32", TOP_K)},
                lambda v: v <= 1.5, times, lowest=False)


def percent(v):
    return f"{100 * v:.0f} %"


def times(v):
    return f"{v:.2f}x"


def conformance_row(conformance, quick, on_gpu):
    """`conformance` and `quick`: results by kernel, as gpu-check stores them. The few problems of the second stand where
    there is nothing else, and a failure among them stands in any case."""
    row = Row("answers", "answers of every kernel against float64, fp32, fp16 and bf16",
              f"{PROBLEMS:,} problems a kernel, all within tolerance")
    results = {**quick, **conformance}
    row.details = results
    failed = {k for some in (quick, conformance) for k, r in some.items() if r["failed"] or r["fault"]}
    short = [k for k in KERNELS if results.get(k, {}).get("problems", 0) < PROBLEMS]
    problems = sum(r["problems"] for r in results.values())
    if results:
        row.measured = f"{problems:,} problems of {len(results)} kernels, " + (
            "failed: " + ", ".join(sorted(failed)) if failed else "none failed")
    row.verdict = settle(not failed and bool(results), short, row, on_gpu, "fewer problems than needed")
    return row


def faults_row(faults, on_gpu):
    row = Row("faults", "faults seeded into the kernels",
              "each found by conformance; those that are hazards alone, by racecheck")
    row.details = faults
    escaped = sorted(name for name, r in faults.items() if r["found"] is False)
    unjudged = sorted(name for name, r in faults.items() if r["found"] is None)
    without = [k for k in KERNELS if not any(r["kernel"] == k for r in faults.values())]
    if faults:
        row.measured = f"{len(faults) - len(escaped) - len(unjudged)} of {len(faults)} found"
        if escaped:
            row.measured += "; not found: " + ", ".join(escaped)
    row.verdict = settle(bool(faults) and not escaped, without, row, on_gpu, "no fault of")
    if unjudged and row.verdict == "met":
        row.verdict = "unmeasured"
        row.measured += f"; not judged: {', '.join(unjudged)} ({faults[unjudged[0]]['why']})"
    return row


def sanitizer_rows(sanitizer, on_gpu):
    for tool, broken in (("memcheck", "an out-of-bounds write"), ("racecheck", "a missing barrier")):
        row = Row(tool, f"compute-sanitizer {tool} over every kernel", f"clean, and it catches {broken}")
        r = sanitizer.get(tool)
        if r:
            row.details = r
            row.measured = r["words"]
            if r["state"] != "unmeasured":
                good = r["state"] == "met"
                row.verdict = settle(good, [k for k in KERNELS if k not in r["kernels"]], row, on_gpu,
                                     "not run over")
        yield row


def runtime_row(operators, on_gpu):
    """`operators`: what came of plugins inside ONNX Runtime."""
    row = Row("runtime", "operators of the plugins inside ONNX Runtime's CUDA provider",
              "each case of every plugin agrees with its CPU variant")
    plugins = operators.get("plugins", {})
    row.details = plugins
    if plugins:
        bad = sorted(name for name, r in plugins.items() if r["wrong"] or r["fault"] or not r["agree"])
        row.measured = f"{sum(r['agree'] for r in plugins.values())} cases of {len(plugins)} plugins agree" + (
            "; not: " + ", ".join(bad) if bad else "")
        on_gpu = on_gpu and operators.get("provider") == "CUDAExecutionProvider"
        row.verdict = settle(not bad, [k for k in KERNELS if k not in plugins], row, on_gpu, "not run")
    return row


def settle(good, missing, row, on_gpu, why):
    """met, missed or unmeasured, with the reason for the last in row.measured."""
    if not row.details:
        return "unmeasured"
    if not good:
        return "missed"
    if not on_gpu:
        row.measured += "; on the emulator, not on a GPU"
        return "unmeasured"
    if missing:
        row.measured += f"; {why}: " + ", ".join(missing)
        return "unmeasured"
    return "met"


def rows(timings, peers, results, on_gpu):
    """All figures, in the order of the table. `results`: those of the stages, as gpu-check stores them."""
    of = lambda stage: results.get(stage, {})  # noqa: E731
    records = Records(timings, peers, of("matrix"))
    out = []
    for make in (decode_rows, prefix_rows, el_rows, other_rows):
        out.extend(make(records))
    out.append(conformance_row(of("conformance"), of("quick"), on_gpu))
    out.append(faults_row(of("faults"), on_gpu))
    out.extend(sanitizer_rows(of("sanitizer"), on_gpu))
    out.append(runtime_row(of("operators"), on_gpu))
    return out


def table(all_rows):
    """The rows as a Markdown table."""
    lines = ["| what | needed | measured | |", "|---|---|---|---|"]
    lines += [f"| {r.what} | {r.need} | {r.measured or '-'} | {r.verdict} |" for r in all_rows]
    return "\n".join(lines) + "\n"
