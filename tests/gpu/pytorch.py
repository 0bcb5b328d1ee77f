#!/usr/bin/env python3
"""What this machine's PyTorch takes for the work that graft's kernels do, and its peak of matrix products.

    pytorch.py [--json FILE] [--tiny] [--device cpu] [--rounds N] [--only KERNEL] [--seconds S]

Timed as timing.cu times: events around each call, replays of a CUDA graph as well where a call is short (the faster of
the two stands), several sets of inputs in turns that together exceed the L2 cache, medians. Records are JSON, one a
line. --tiny computes small problems only, holds them against float64, and reports no time; it needs no GPU.

Ends with 0, 1 when an answer was wrong, or 5 where PyTorch or its device is not there.
"""

import argparse
import json
import math
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Callable

import figures

SHORT = 0.1  # ms: below, graphs are timed as well
MOST_SETS = 256


def load_torch():
    try:
        import torch  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        return None, str(error)
    return torch, ""


@dataclass
class Case:
    """One way of doing one piece of work. `make()` gives a function to time; calling it gives the answer, and
    `reference` the same in float64 from that function's own inputs (its attribute `inputs`)."""

    kernel: str
    variant: str
    shape: dict
    bytes: float
    flops: float
    make: Callable
    reference: Callable
    type: str = "bfloat16"


class Ways:
    """All cases, at full or tiny sizes."""

    def __init__(self, torch, device, tiny):
        self.torch, self.device, self.tiny = torch, device, tiny
        self.type = torch.bfloat16

    def normal(self, *shape, dtype=None):
        return self.torch.randn(*shape, device=self.device, dtype=dtype or self.type)

    def sized(self, shape, **tiny):
        return {**shape, **tiny} if self.tiny else shape

    def backends(self):
        from torch.nn.attention import SDPBackend as b  # pylint: disable=import-outside-toplevel
        return {"sdpa-flash": b.FLASH_ATTENTION, "sdpa-efficient": b.EFFICIENT_ATTENTION,
                "sdpa-cudnn": b.CUDNN_ATTENTION, "sdpa-math": b.MATH}

    def sdpa(self, kernel, shape, rows, q_heads, kv_heads, size, keys, moved=None, skip=()):
        """Attention of one query over keys, by each backend. rows: queries, each with a cache of its own."""
        from torch.nn.attention import sdpa_kernel  # pylint: disable=import-outside-toplevel
        torch, attend = self.torch, self.torch.nn.functional.scaled_dot_product_attention

        def make(backend):
            q = self.normal(rows, q_heads, 1, size)
            k, v = self.normal(rows, kv_heads, keys, size), self.normal(rows, kv_heads, keys, size)

            def run():
                with sdpa_kernel([backend]):
                    return attend(q, k, v, enable_gqa=q_heads != kv_heads)
            run.inputs = (q, k, v)
            return run

        def reference(q, k, v):
            q, k, v = q.double(), k.double(), v.double()
            k, v = (x.repeat_interleave(q_heads // kv_heads, 1) for x in (k, v))
            return torch.softmax(q @ k.transpose(2, 3) / math.sqrt(size), -1) @ v

        cache = 2 * rows * kv_heads * keys * size * 2
        for variant, backend in self.backends().items():
            if variant not in skip:
                yield Case(kernel, variant, shape, moved or cache + 4 * rows * q_heads * size,
                           4 * rows * q_heads * keys * size, lambda b=backend: make(b), reference)

    def flash_decode(self):
        for keys in figures.DECODE_KEYS if not self.tiny else (40, 65):
            s = self.sized({**figures.DECODE, "keys": keys}, query_heads=4, kv_heads=2, head_size=16)
            yield from self.sdpa("flash-decode", s, s["batch"], s["query_heads"], s["kv_heads"], s["head_size"], keys)

    def shared_prefix(self):
        """Caches repeated for each beam, which is what SDPA needs."""
        for beam in figures.PREFIX_BEAMS:
            for prefix in (512, 1024, 4096, 16384) if not self.tiny else (48,):
                s = self.sized({**figures.PREFIX, "beam": beam, "prefix": prefix}, batch=2, query_heads=2, kv_heads=2,
                               head_size=16, suffix=5)
                rows = s["batch"] * beam
                yield from self.sdpa("flash-decode", s, rows, s["query_heads"], s["kv_heads"], s["head_size"],
                                     prefix + s["suffix"], skip=() if self.tiny else ("sdpa-math",))

    def slim_attention(self):
        s = self.sized(figures.SLIM, batch=2, heads=3, head_size=16, keys=33)
        yield from self.sdpa("slim-attention", s, s["batch"], s["heads"], s["heads"], s["head_size"], s["keys"])

    def el_attention(self):
        """Rows of beams x heads queries against one key and value: the hidden states."""
        from torch.nn.attention import sdpa_kernel  # pylint: disable=import-outside-toplevel
        torch, attend = self.torch, self.torch.nn.functional.scaled_dot_product_attention
        s = self.sized(figures.EL, batch=2, beam=2, heads=2, width=64, keys=24)
        rows, scale = s["beam"] * s["heads"], 1 / math.sqrt(s["width"] // s["heads"])
        states = s["batch"] * s["keys"] * s["width"]
        moved = 2 * (states + 2 * s["batch"] * rows * s["width"])
        flops = 4 * states * rows

        def inputs():
            return self.normal(s["batch"], rows, s["width"]) / 4, self.normal(s["batch"], s["keys"], s["width"])

        def products():
            q, x = inputs()
            run = lambda: torch.bmm(torch.softmax(torch.bmm(q, x.transpose(1, 2)) * scale, -1), x)  # noqa: E731
            run.inputs = (q, x)
            return run

        def by(backend):
            q, x = inputs()

            def run():
                with sdpa_kernel([backend]):
                    return attend(q[:, None], x[:, None], x[:, None], scale=scale)[:, 0]
            run.inputs = (q, x)
            return run

        def reference(q, x):
            q, x = q.double(), x.double()
            return torch.softmax(q @ x.transpose(1, 2) * scale, -1) @ x

        yield Case("el-attention", "matmul-softmax-matmul", s, moved, flops, products, reference)
        for variant, backend in self.backends().items():
            yield Case("el-attention", variant, s, moved, flops, lambda b=backend: by(b), reference)

    def ngram_block(self):
        """Bans whatever would repeat the row's last n - 1 tokens and what followed them."""
        torch = self.torch
        s = self.sized(figures.NGRAM, rows=6, tokens=40, vocabulary=7)
        n, vocabulary = s["n"], s["vocabulary"]

        def inputs():
            tokens = torch.randint(0, vocabulary, (s["rows"], s["tokens"]), device=self.device)
            return tokens, self.normal(s["rows"], vocabulary, dtype=torch.float32)

        def matches(tokens):
            windows = tokens.unfold(1, n, 1)
            return (windows[:, :, : n - 1] == tokens[:, None, 1 - n:]).all(-1), windows[:, :, -1]

        def reduced():
            tokens, scores = inputs()

            def run():
                found, last = matches(tokens)
                return scores.scatter_reduce_(1, last, torch.where(found, -math.inf, math.inf), "amin")
            run.inputs = (tokens, scores.clone() if self.tiny else scores)
            return run

        def extra_column():
            tokens, scores = inputs()
            wide = torch.cat([scores, scores[:, :1]], 1)

            def run():
                found, last = matches(tokens)
                wide.scatter_(1, torch.where(found, last, vocabulary), -math.inf)
                return wide[:, :vocabulary]
            run.inputs = (tokens, scores)
            return run

        def reference(tokens, scores):
            want = scores.double().clone()
            for row, line in enumerate(tokens.tolist()):
                for i in range(len(line) - n + 1):
                    if line[i:i + n - 1] == line[1 - n:]:
                        want[row, line[i + n - 1]] = -math.inf
            return want

        for variant, make in (("scatter-reduce", reduced), ("scatter-extra-column", extra_column)):
            yield Case("ngram-block", variant, s, 8 * s["rows"] * s["tokens"], 0, make, reference, "float32")

    def logits_top_k(self):
        """The 2 x beams best continuations of each sample."""
        torch = self.torch
        s = self.sized(figures.TOP_K, rows=8, vocabulary=11, beam=2)
        samples, vocabulary = s["rows"] // s["beam"], s["vocabulary"]

        def make():
            scores = self.normal(s["rows"], vocabulary, dtype=torch.float32)
            sums = self.normal(s["rows"], 1, dtype=torch.float32)
            run = lambda: torch.topk(  # noqa: E731
                (torch.log_softmax(scores, -1) + sums).view(samples, -1), 2 * s["beam"])[0]
            run.inputs = (scores, sums)
            return run

        def reference(scores, sums):
            total = torch.log_softmax(scores.double(), -1) + sums.double()
            return torch.sort(total.view(samples, -1), descending=True)[0][:, : 2 * s["beam"]]

        yield Case("logits-top-k", "log-softmax-topk", s, 4 * s["rows"] * vocabulary, 0, make, reference, "float32")

    def all(self):
        for ways in (self.flash_decode, self.el_attention, self.slim_attention, self.ngram_block, self.logits_top_k,
                     self.shared_prefix):
            yield from ways()


class Clock:
    """Times functions on the GPU."""

    def __init__(self, torch, rounds):
        self.torch, self.rounds = torch, rounds
        self.l2 = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0) or 64 << 20

    def each(self, count, work):
        """Milliseconds of work(0) to work(count - 1), enqueued one after the other."""
        event = lambda: self.torch.cuda.Event(enable_timing=True)  # noqa: E731
        events = [(event(), event()) for _ in range(count)]
        for i, (start, end) in enumerate(events):
            start.record()
            work(i)
            end.record()
        self.torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in events]

    def sets(self, case):
        """Functions over inputs of their own, as many as exceed the L2 cache several times and fit."""
        runs = [case.make()]
        held = sum(x.numel() * x.element_size() for x in runs[0].inputs)
        free = self.torch.cuda.mem_get_info()[0]
        many = min(max(2, math.ceil(16 * self.l2 / case.bytes)), MOST_SETS, 1 + int(0.5 * free / held))
        return runs + [case.make() for _ in range(many - 1)]

    def measure(self, case):
        runs = self.sets(case)
        call = lambda i: runs[i % len(runs)]()  # noqa: E731
        spent = turns = 0
        while (turns < 2 * len(runs) or spent < 100) and turns < 20000:
            spent += sum(self.each(len(runs), call))
            turns += len(runs)
        record = {"sets": len(runs), "events": sample(self.each(self.rounds, call)), "graph": None,
                  "graph_launches": 0}
        record["milliseconds"] = record["events"]["median"]
        if record["milliseconds"] < SHORT:
            self.add_graph(record, runs)
        return record

    def add_graph(self, record, runs):
        torch = self.torch
        wanted = int(0.5 / max(record["milliseconds"], 1e-3)) + 1
        launches = len(runs) * math.ceil(min(wanted, 512) / len(runs))
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                for i in range(launches):
                    runs[i % len(runs)]()
        except RuntimeError as error:  # some operators cannot be captured
            record["graph_refused"] = str(error).splitlines()[0]
            torch.cuda.synchronize()
            return
        self.each(3, lambda i: graph.replay())
        record["graph"] = sample([t / launches for t in self.each(self.rounds, lambda i: graph.replay())])
        record["graph_launches"] = launches
        record["milliseconds"] = min(record["milliseconds"], record["graph"]["median"])

    def matrix_peak(self, size=8192):
        """TFLOP/s of a bf16 product of two matrices of random numbers, the median of the rounds."""
        a, b = (self.torch.randn(size, size, device="cuda", dtype=self.torch.bfloat16) for _ in range(2))
        out = self.torch.empty_like(a)
        self.each(200, lambda i: self.torch.mm(a, b, out=out))  # clocks rise only under load
        milliseconds = statistics.median(self.each(self.rounds, lambda i: self.torch.mm(a, b, out=out)))
        return 2 * size**3 / milliseconds / 1e9


def sample(raw):
    """All times and their ranks, as statistics.h writes them."""
    order = sorted(raw)
    at = lambda share: order[int(share * (len(order) - 1) + 0.5)]  # noqa: E731
    return {"median": at(0.5), "p5": at(0.05), "p25": at(0.25), "p75": at(0.75), "p95": at(0.95), "raw": raw}


def identity(case):
    return {"kernel": case.kernel, "variant": case.variant, "type": case.type, "shape": case.shape}


def check(torch, case):
    """Error of an answer against float64; raises AssertionError beyond what the type allows."""
    run = case.make()
    inputs = [x.clone() for x in run.inputs]
    got, want = run().double(), case.reference(*inputs)
    absolute, relative = (1e-5, 1e-4) if case.type == "float32" else (2e-2, 1e-2)
    torch.testing.assert_close(got, want.to(got.device), atol=absolute, rtol=relative)


def run_case(torch, clock, case, tiny):
    if tiny:
        check(torch, case)
        return {"record": "case", **identity(case), "milliseconds": None}
    record = {"record": "case", **identity(case), "bytes": case.bytes, "flops": case.flops, **clock.measure(case)}
    record["gigabytes_per_second"] = case.bytes / record["milliseconds"] / 1e6
    record["teraflops"] = case.flops / record["milliseconds"] / 1e9
    return record


def words(record):
    shape = " ".join(f"{name}={value}" for name, value in record["shape"].items())
    text = f"  {record['kernel']} {record['variant']} {shape}: "
    if record["record"] == "left-out":
        return text + "left out: " + record["why"]
    if record["milliseconds"] is None:
        return text + "agrees, not timed"
    return text + (f"{record['milliseconds'] * 1e3:.2f} us; {record['gigabytes_per_second']:.0f} GB/s; "
                   f"{record['teraflops']:.1f} TFLOP/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="file of the records")
    parser.add_argument("--tiny", action="store_true", help="small problems against float64; no times")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--only", action="append", help="kernel; may be given again")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no case after so many")
    args = parser.parse_args()
    if args.device == "cpu" and not args.tiny:
        parser.error("--device cpu has no times: add --tiny")

    torch, why = load_torch()
    if torch is None:
        print(f"PyTorch is not there ({why}): comparisons are left out", file=sys.stderr)
        return 5
    if args.device == "cuda" and not torch.cuda.is_available():
        print(f"PyTorch {torch.__version__} finds no GPU: comparisons are left out", file=sys.stderr)
        return 5

    with open(args.json, "w", encoding="utf-8") if args.json else sys.stderr as out:
        failed = run_all(torch, args, lambda r: print(json.dumps(r), file=out, flush=True) if args.json else None)
    return 1 if failed else 0


def run_all(torch, args, write):
    start, failed = time.monotonic(), 0
    torch.manual_seed(1)
    clock = None if args.tiny else Clock(torch, args.rounds)
    limits = {"record": "limits", "torch": torch.__version__, "cuda": torch.version.cuda,
              "cudnn": torch.backends.cudnn.version(), "matrix_teraflops": clock.matrix_peak() if clock else None}
    write(limits)
    if clock:
        print(f"bf16 products of 8192 x 8192 matrices: {limits['matrix_teraflops']:.0f} TFLOP/s")
    with torch.inference_mode():
        for case in Ways(torch, args.device, args.tiny).all():
            if args.only and case.kernel not in args.only:
                continue
            if time.monotonic() - start > args.seconds:
                record = {"record": "left-out", **identity(case), "why": "no time left"}
            else:
                try:
                    record = run_case(torch, clock, case, args.tiny)
                except AssertionError as error:
                    record = {"record": "left-out", **identity(case), "why": "wrong: " + str(error)}
                    failed += 1
                except RuntimeError as error:  # a backend that does not support the shape, or memory that is short
                    record = {"record": "left-out", **identity(case), "why": str(error).strip().splitlines()[0]}
            write(record)
            print(words(record), flush=True)
            if clock:
                torch.cuda.empty_cache()
    return failed


if __name__ == "__main__":
    sys.exit(main())
