"""OpenVINO GenAI as a peer: a trained model, greedy, over llama.cpp's files.

A way is a type of gguf_model.py, which OpenVINO reads with its blocks as they are; "+sdpa"
after it takes attention over whole tensors in place of paged attention.
"""

import time
from importlib.metadata import version

import numpy as np
import openvino
import openvino_genai

import gguf_model


class Peer:
    def __init__(self, subject, way, threads):
        name, _, folder = subject.partition("@")
        kind, _, option = way.partition("+")
        properties = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
        if option == "sdpa":
            properties["ATTENTION_BACKEND"] = "SDPA"
        self.pipeline = openvino_genai.LLMPipeline(str(gguf_model.file(name, folder, kind)), "CPU", **properties)
        self.settings = {"type": kind, **properties}
        self.versions = {p: version(p) for p in ("openvino", "openvino-genai", "numpy")}

    def run(self, r):
        """Tokens of each input, and the seconds that they took."""
        if r["beams"] != 1 or r["no_repeat_ngram_size"]:
            raise ValueError("OpenVINO is compared in plain greedy search")
        ids = np.array(r["inputs"], np.int64)
        inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
        config = openvino_genai.GenerationConfig()
        # No end before the last token: this bans the tokens that end a text.
        config.max_new_tokens = config.min_new_tokens = r["new_tokens"]
        config.do_sample, config.eos_token_id, config.stop_token_ids = False, r["banned"][0], set(r["banned"])
        start = time.perf_counter()
        result = self.pipeline.generate(inputs, config)
        seconds = time.perf_counter() - start
        self.first = result.perf_metrics.get_ttft().mean / 1e3
        return [list(map(int, tokens)) for tokens in result.tokens], seconds
