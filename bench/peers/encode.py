"""What peers that encode have in common: a batch of texts in, the mean of each text's visible rows out.

A way to use a peer says how a batch is divided: nothing is asked of a peer but that the batch it has is answered before it
sees the next.

  whole       one run, padded to the longest text
  sorted-N    runs of N texts of like length, one after the other
  parallel-N  the same, one run a thread at once, each on one thread
"""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

DIVISIONS = ("whole", "sorted-16", "sorted-8", "sorted-4", "sorted-1", "parallel-8", "parallel-4", "parallel-1")


def named(subject):
    """Name and model file of NAME@FILE."""
    name, _, path = subject.partition("@")
    return name, path


def divide(rows, division):
    """Indices of the texts of each run, longest first."""
    if division == "whole":
        return [list(range(len(rows)))]
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    size = int(division.split("-")[1])
    return [order[i : i + size] for i in range(0, len(order), size)]


class Encoder:
    """compute(ids, mask, lengths) gives hidden states [texts, tokens, width]; a subclass has it."""

    gives = "vectors"

    def __init__(self, way, threads):
        self.kind, _, self.division = way.rpartition("/")
        parallel = self.division.startswith("parallel")
        self.pool = ThreadPoolExecutor(threads) if parallel else None
        self.runs, self.threads = (threads, 1) if parallel else (1, threads)
        self.settings = {"way": way, "runs_at_once": self.runs, "threads_of_a_run": self.threads}
        self.versions = {"numpy": np.__version__}

    def run(self, request):
        """A vector of each text, and the seconds of each batch; arguments and means are made outside of them."""
        vectors, seconds, self.processor = [], [], []
        for rows in request["batches"]:
            parts = divide(rows, self.division)
            prepared = [self.prepare([rows[i] for i in part]) for part in parts]
            used, start = time.process_time(), time.perf_counter()
            if self.pool:
                results = list(self.pool.map(lambda p: self.compute(*p), prepared))
            else:
                results = [self.compute(*p) for p in prepared]
            seconds.append(time.perf_counter() - start)
            self.processor.append(time.process_time() - used)
            made = [None] * len(rows)
            for part, hidden in zip(parts, results, strict=True):
                for i, states in zip(part, hidden, strict=True):
                    made[i] = states[: len(rows[i])].mean(0, dtype=np.float64).tolist()
            vectors += made
        return vectors, seconds

    def prepare(self, rows):
        lengths = [len(r) for r in rows]
        ids = np.zeros((len(rows), max(lengths)), np.int64)
        mask = np.zeros_like(ids)
        for i, r in enumerate(rows):
            ids[i, : len(r)] = r
            mask[i, : len(r)] = 1
        return ids, mask, lengths
