"""CTranslate2 as a peer, one generation at a time.

A way is a compute type of CTranslate2's: float32, int8 or int8_float32, which quantise
the float32 model as it is opened. "+mkl" after it asks for Intel's library where
CTranslate2 would take oneDNN.
"""

import os
import time

import ctranslate2
import numpy as np

import cached
import ct2_model
import weights

WAYS = ("float32", "int8", "int8_float32", "int8_float32+mkl")


def named(sequences):
    return [[ct2_model.name(t) for t in tokens] for tokens in sequences]


class Peer:
    def __init__(self, subject, way, threads):
        folder = cached.folder("ct2", subject, ctranslate2.__version__, [ct2_model, weights], ct2_model.write)
        self.kind = subject.split("-")[0]
        load = {"gpt2": ctranslate2.Generator, "whisper": ctranslate2.models.Whisper}.get(self.kind, ctranslate2.Translator)
        compute_type, _, library = way.partition("+")
        if library == "mkl":
            os.environ["CT2_USE_MKL"] = "1"  # read when the first model is opened
        self.model = load(str(folder), compute_type=compute_type, inter_threads=1, intra_threads=threads)
        self.settings = {
            "compute_type": self.model.compute_type,
            "mkl": os.environ.get("CT2_USE_MKL", "chosen by CTranslate2"),
            "intra_threads": threads,
            "isa": os.environ.get("CT2_FORCE_CPU_ISA", "chosen by CTranslate2"),
        }
        self.versions = {"ctranslate2": ctranslate2.__version__, "numpy": np.__version__}

    def run(self, request):
        """Tokens of the best sequence of each input, and the seconds that they took."""
        generate = {"gpt2": self._continue, "whisper": self._transcribe}.get(self.kind, self._translate)
        return generate(request)

    def _continue(self, r):
        prompts, banned = named(r["inputs"]), named([t] for t in r["banned"])
        start = time.perf_counter()
        results = self.model.generate_batch(
            prompts, beam_size=r["beams"], max_length=r["new_tokens"], min_length=r["new_tokens"],
            no_repeat_ngram_size=r["no_repeat_ngram_size"], suppress_sequences=banned,
            include_prompt_in_result=False)  # so that the prompt is run at once
        seconds = time.perf_counter() - start
        return [list(x.sequences_ids[0]) for x in results], seconds

    def _translate(self, r):
        sources, banned = named(r["inputs"]), named([t] for t in r["banned"])
        start = time.perf_counter()
        results = self.model.translate_batch(
            sources, beam_size=r["beams"], max_decoding_length=r["new_tokens"],
            min_decoding_length=r["new_tokens"], no_repeat_ngram_size=r["no_repeat_ngram_size"],
            suppress_sequences=banned, max_input_length=0)
        seconds = time.perf_counter() - start
        return [[int(t[1:]) for t in x.hypotheses[0]] for x in results], seconds

    def _transcribe(self, r):
        f = r["features"]
        features = ctranslate2.StorageView.from_array(weights.normal(f["name"], f["shape"]))
        prompts = [r["prompt"]] * f["shape"][0]
        start = time.perf_counter()
        # Half of max_length goes to what is new.
        results = self.model.generate(
            features, prompts, beam_size=r["beams"], max_length=2 * r["new_tokens"],
            no_repeat_ngram_size=r["no_repeat_ngram_size"], suppress_blank=False, suppress_tokens=r["banned"])
        seconds = time.perf_counter() - start
        return [list(x.sequences_ids[0]) for x in results], seconds
