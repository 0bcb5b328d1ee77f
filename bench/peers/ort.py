"""ONNX Runtime as a peer: GPT-2 with its own generation operators.

group-query and masked-attention are led by a beam search written here: the prompt
is run once a sample, caches are bound in place and never grow, candidates are
taken in the graph, and a step allocates next to nothing. Either may be followed by
a quantisation of ort_quantized.py: group-query/dynamic-int8.
"""

import json
import time
from importlib.metadata import version

import numpy as np
import onnxruntime

import cached
import ort_model
import ort_quantized
import weights

WAYS = ("group-query", "masked-attention", "beam-search", "genai")


class Peer:
    def __init__(self, subject, way, threads):
        self.folder = cached.folder("ort", subject, onnxruntime.__version__, [ort_model, weights], ort_model.write)
        way, _, quantization = way.partition("/")
        if quantization:
            exported = self.folder
            self.folder = cached.folder(f"ort-{quantization}", subject, onnxruntime.__version__, [ort_model, weights, ort_quantized],
                                        lambda _, folder: ort_quantized.write(exported, quantization, folder))
        self.config, self.threads = weights.config(subject), threads
        make = {"group-query": GroupQuery, "masked-attention": MaskedAttention, "beam-search": BeamSearch, "genai": GenAI}[way]
        self.way = make(self)
        self.settings = {"way": way, "quantization": quantization or "none", "intra_op_num_threads": threads}
        self.versions = {p: version(p) for p in ("onnxruntime", "onnxruntime-genai", "numpy")}

    def session(self, name):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        return onnxruntime.InferenceSession(str(self.folder / name), options, providers=["CPUExecutionProvider"])

    def run(self, request):
        inputs = np.array(request["inputs"], np.int64)
        self.way.begun = None
        start = time.perf_counter()
        tokens = self.way.run(inputs, request["beams"], request["new_tokens"], request["banned"][0])
        seconds = time.perf_counter() - start
        self.first = self.way.begun - start if self.way.begun else 0
        return tokens.tolist(), seconds


class Bound:
    """A session whose arguments are arrays that stay where they are."""

    def __init__(self, session):
        self.session, self.binding = session, session.io_binding()

    def input(self, name, array):
        self.binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)

    def output(self, name, array):
        self.binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)

    def run(self):
        self.session.run_with_iobinding(self.binding)


class Beams:
    """A beam search over candidates of rows. No token comes twice."""

    def __init__(self, inputs, beams, new_tokens, end):
        self.samples, self.prompt = inputs.shape
        self.beams, self.end, self.length = beams, end, self.prompt
        rows = self.samples * beams
        # The end token stands first, so that it is banned as well.
        self.sequences = np.empty((rows, 1 + self.prompt + new_tokens), np.int64)
        self.sequences[:, 0] = end
        self.sequences[:, 1 : 1 + self.prompt] = np.repeat(inputs, beams, axis=0)
        self.totals = np.zeros(rows, np.float32)

    def banned(self, rows):
        return np.ascontiguousarray(self.sequences[:: self.samples * self.beams // rows, : 1 + self.length])

    def follow(self, scores, tokens):
        """Takes the candidates of every row (of every sample, at first), and returns
        the row that each row continues."""
        each = len(scores) // self.samples
        totals = self.totals.reshape(self.samples, self.beams)[:, :each]
        sums = (scores.reshape(self.samples, each, -1) + totals[:, :, None]).reshape(self.samples, -1)
        order = np.argsort(-sums, axis=1, kind="stable")[:, : self.beams]
        per_row = scores.shape[1]
        parents = (order // per_row + np.arange(self.samples)[:, None] * self.beams).ravel()
        self.totals = np.take_along_axis(sums, order, 1).ravel()
        chosen = np.take_along_axis(tokens.reshape(self.samples, -1), order, 1).ravel()
        self.sequences = self.sequences[parents]
        self.sequences[:, 1 + self.length] = chosen
        self.length += 1
        return parents

    def last(self):
        return np.ascontiguousarray(self.sequences[:, self.length : self.length + 1])

    def best(self):
        rows = np.argmax(self.totals.reshape(self.samples, -1), axis=1) + np.arange(self.samples) * self.beams
        return self.sequences[rows, 1 + self.prompt :]


class Led:
    """What the two ways that are led from here have in common."""

    def __init__(self, peer):
        c = peer.config
        self.layers, self.heads, self.head_size = c["n_layer"], c["n_head"], c["n_embd"] // c["n_head"]

    def cache(self, rows, capacity):
        return np.zeros((2, self.layers, rows, self.heads, capacity, self.head_size), np.float32)

    def bind_cache(self, bound, cache):
        for i in range(self.layers):
            for kind, array in (("key", cache[0, i]), ("value", cache[1, i])):
                bound.input(f"past_{kind}_{i}", array)
                bound.output(f"present_{kind}_{i}", array)

    def candidates(self, bound, rows, beams):
        scores, tokens = np.empty((rows, 2 * beams), np.float32), np.empty((rows, 2 * beams), np.int64)
        bound.input("count", np.array([2 * beams], np.int64))
        bound.output("top_scores", scores)
        bound.output("top_tokens", tokens)
        return scores, tokens


def bind(bound, arrays):
    for name, array in arrays.items():
        bound.input(name, array)


class GroupQuery(Led):
    """Past and present are one buffer a row; a reorder moves generated positions alone."""

    def __init__(self, peer):
        super().__init__(peer)
        self.session = peer.session("group_query.onnx")

    def run(self, inputs, beams, new_tokens, end):
        samples, prompt = inputs.shape
        capacity = prompt + new_tokens
        search = Beams(inputs, beams, new_tokens, end)
        first = self.cache(samples, capacity)
        self.step(Bound(self.session), first, search, inputs, np.arange(prompt)[None].repeat(samples, 0), prompt, samples)
        self.begun = time.perf_counter()
        cache = np.repeat(first, beams, axis=2)
        bound = Bound(self.session)
        for length in range(prompt + 1, capacity):
            ids = search.last()
            parents = self.step(bound, cache, search, ids, np.full(ids.shape, length - 1), length, len(ids))
            if (parents != np.arange(len(parents))).any():
                cache[..., prompt:length, :] = cache[:, :, parents, :, prompt:length]
        return search.best()

    def step(self, bound, cache, search, ids, positions, total, rows):
        arrays = {"input_ids": ids, "position_ids": positions, "banned": search.banned(rows),
                  "seqlens_k": np.full(rows, total - 1, np.int32), "total_sequence_length": np.array(total, np.int32),
                  "count": np.array([2 * search.beams], np.int64)}
        bind(bound, arrays)
        self.bind_cache(bound, cache)
        scores, tokens = np.empty((rows, 2 * search.beams), np.float32), np.empty((rows, 2 * search.beams), np.int64)
        bound.output("top_scores", scores)
        bound.output("top_tokens", tokens)
        bound.run()
        return search.follow(scores, tokens)


class MaskedAttention(Led):
    """A table says which row of a sample holds a position: nothing is moved, and the
    prompt's keys and values are read where the first row has them."""

    def __init__(self, peer):
        super().__init__(peer)
        self.first, self.next = peer.session("first.onnx"), peer.session("next.onnx")

    def run(self, inputs, beams, new_tokens, end):
        samples, prompt = inputs.shape
        capacity = prompt + new_tokens
        search = Beams(inputs, beams, new_tokens, end)
        names = [f"present_{kind}_{i}" for kind in ("key", "value") for i in range(self.layers)]
        scores, tokens, *present = self.first.run(["top_scores", "top_tokens", *names], {
            "input_ids": inputs, "position_ids": np.arange(prompt)[None].repeat(samples, 0),
            "banned": search.banned(samples), "count": np.array([2 * beams], np.int64)})
        cache = np.empty((2, self.layers, samples * beams, self.heads, capacity, self.head_size), np.float32)
        for i in range(self.layers):
            cache[0, i, ::beams, :, :prompt] = present[i]
            cache[1, i, ::beams, :, :prompt] = present[self.layers + i]
        del present
        search.follow(scores, tokens)
        self.begun = time.perf_counter()
        rows = samples * beams
        table = np.zeros((samples, beams, capacity), np.int32)
        table[:, :, prompt:] = np.arange(beams)[None, :, None]
        bound = Bound(self.next)
        scores, tokens = np.empty((rows, 2 * beams), np.float32), np.empty((rows, 2 * beams), np.int64)
        for length in range(prompt, capacity - 1):
            arrays = {"input_ids": search.last(), "position_ids": np.full((rows, 1), length, np.int64),
                      "banned": search.banned(rows), "count": np.array([2 * beams], np.int64),
                      "past_sequence_length": np.array([length], np.int32), "beam_width": np.array([beams], np.int32),
                      "cache_indirection": table}
            bind(bound, arrays)
            self.bind_cache(bound, cache)
            bound.output("top_scores", scores)
            bound.output("top_tokens", tokens)
            bound.run()
            parents = search.follow(scores, tokens).reshape(samples, beams) % beams
            table[:, :, prompt : length + 1] = np.take_along_axis(table, parents[:, :, None], 1)[:, :, prompt : length + 1]
        return search.best()


class BeamSearch:
    """The operator does all."""

    def __init__(self, peer):
        self.session = peer.session("beam_search.onnx")

    def run(self, inputs, beams, new_tokens, end):
        length = inputs.shape[1] + new_tokens
        number = lambda n: np.array([n], np.int32)  # noqa: E731
        sequences, = self.session.run(["sequences"], {
            "input_ids": inputs.astype(np.int32), "max_length": number(length), "min_length": number(length),
            "num_beams": number(beams), "num_return_sequences": number(1), "length_penalty": np.array([1], np.float32)})
        return sequences[:, 0, inputs.shape[1]:]


class GenAI:
    """onnxruntime-genai does all, with shared buffers where it can have them."""

    def __init__(self, peer):
        import onnxruntime_genai

        self.genai, c = onnxruntime_genai, peer.config
        folder = peer.folder
        names = {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"}
        config = {
            "model": {
                # The type says only how the cache is named, and these names are a Llama's.
                "type": "llama", "vocab_size": c["vocab_size"], "context_length": c["n_positions"],
                **{f"{kind}_token_id": c["eos_token_id"] for kind in ("bos", "eos", "pad")},
                "decoder": {
                    "filename": "genai.onnx", "session_options": {"intra_op_num_threads": peer.threads, "provider_options": []},
                    "hidden_size": c["n_embd"], "head_size": c["n_embd"] // c["n_head"], "num_hidden_layers": c["n_layer"],
                    "num_attention_heads": c["n_head"], "num_key_value_heads": c["n_head"],
                    "inputs": {n: n for n in ("input_ids", "attention_mask", "position_ids")} | names,
                    "outputs": {"logits": "logits", "present_key_names": "present.%d.key", "present_value_names": "present.%d.value"},
                },
            },
            "search": {"max_length": c["n_positions"], "past_present_share_buffer": True},
        }
        (folder / "genai_config.json").write_text(json.dumps(config))
        self.model = onnxruntime_genai.Model(str(folder))

    def run(self, inputs, beams, new_tokens, end):
        samples, prompt = inputs.shape
        params = self.genai.GeneratorParams(self.model)
        params.set_search_options(batch_size=samples, num_beams=beams, max_length=prompt + new_tokens,
                                  min_length=prompt + new_tokens, no_repeat_ngram_size=1, do_sample=False)
        generator = self.genai.Generator(self.model, params)
        generator.append_tokens(inputs.astype(np.int32))
        while not generator.is_done():
            generator.generate_next_token()
        return np.array([generator.get_sequence(i)[prompt:] for i in range(samples)])
