"""llama.cpp as a peer: a trained model, greedy, one or several requests at once.

A way is a type of gguf_model.py; "+no-flash-attention" after it turns off what is on by
itself. Weights of Q4_0 are laid out anew for the processor as llama.cpp opens them. The
functions are llama.cpp's own, of its C interface: no wrapper's time is counted.
"""

import time

import llama_cpp as c
import numpy as np

import gguf_model


@c.llama_log_callback
def unsaid(level, text, data):
    """Takes what llama.cpp would print: a line a tensor."""


class Peer:
    def __init__(self, subject, way, threads):
        name, _, folder = subject.partition("@")
        kind, _, option = way.partition("+")
        self.threads, self.flash = threads, option != "no-flash-attention"
        c.llama_log_set(unsaid, None)
        c.llama_backend_init()
        params = c.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = c.llama_model_load_from_file(str(gguf_model.file(name, folder, kind)).encode(), params)
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot open {kind}")
        self.vocab = c.llama_vocab_n_tokens(c.llama_model_get_vocab(self.model))
        self.context, self.room = None, (0, 0)
        self.settings = {"type": kind, "flash_attention": "chosen by llama.cpp" if self.flash else "off", "n_threads": threads,
                         "system": c.llama_print_system_info().decode()}
        self.versions = {"llama_cpp_python": c.__version__, "numpy": np.__version__}

    def open(self, rows, positions):
        """A context with room for rows of so many positions."""
        if self.room == (rows, positions):
            return
        if self.context:
            c.llama_free(self.context)
        params = c.llama_context_default_params()
        each = -(-positions // 256) * 256  # what llama.cpp rounds up to
        params.n_ctx, params.n_seq_max, params.n_batch = rows * each, rows, rows * positions
        params.n_threads = params.n_threads_batch = self.threads
        if not self.flash:
            params.flash_attn_type = c.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.context = c.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError(f"llama.cpp cannot make a context of {rows} rows of {positions} positions")
        self.room = (rows, positions)

    def run(self, r):
        """Tokens of each input, and the seconds that they took."""
        if r["beams"] != 1 or r["no_repeat_ngram_size"]:
            raise ValueError("llama.cpp is compared in plain greedy search")
        inputs, new = r["inputs"], r["new_tokens"]
        rows = len(inputs)
        self.open(rows, max(map(len, inputs)) + new)
        memory = c.llama_get_memory(self.context)
        c.llama_memory_clear(memory, True)
        prompt, step = c.llama_batch_init(sum(map(len, inputs)), 0, 1), c.llama_batch_init(rows, 0, 1)
        try:
            last, at = [], 0
            for row, tokens in enumerate(inputs):
                for position, token in enumerate(tokens):
                    fill(prompt, at, token, position, row, position == len(tokens) - 1)
                    at += 1
                last.append(at - 1)
            prompt.n_tokens, step.n_tokens = at, rows
            banned = np.array(r["banned"])
            out = np.empty((rows, new), np.int64)
            start = time.perf_counter()
            self.decode(prompt)
            for row in range(rows):
                out[row, 0] = self.best(last[row], banned)
            self.first = time.perf_counter() - start
            for n in range(1, new):
                for row in range(rows):
                    fill(step, row, int(out[row, n - 1]), len(inputs[row]) + n - 1, row, True)
                self.decode(step)
                for row in range(rows):
                    out[row, n] = self.best(row, banned)
            seconds = time.perf_counter() - start
        finally:
            c.llama_batch_free(prompt)
            c.llama_batch_free(step)
        return out.tolist(), seconds

    def decode(self, batch):
        code = c.llama_decode(self.context, batch)
        if code != 0:
            raise RuntimeError(f"llama_decode gave {code}")

    def best(self, at, banned):
        """The likeliest token after the token at a place of the last batch."""
        logits = np.ctypeslib.as_array(c.llama_get_logits_ith(self.context, at), (self.vocab,))
        logits[banned] = -np.inf
        return int(logits.argmax())


def fill(batch, at, token, position, row, wanted):
    batch.token[at], batch.pos[at] = token, position
    batch.n_seq_id[at], batch.seq_id[at][0] = 1, row
    batch.logits[at] = wanted
