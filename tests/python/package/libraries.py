"""optimum and sentence-transformers, unmodified, with graft and without: answers are compared and times said.

Run in an environment with optimum-onnx, sentence-transformers and torch (tests/python/README.md has the versions), with GRAFT_BINARY and
GRAFT_PLUGIN_PATH as for the cases:

    python libraries.py [ENCODER_FOLDER]

ENCODER_FOLDER is one that sentence-transformers opens with backend="onnx"; without it, models/encoders/embedder.
"""

import os
import statistics
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from common import CPU, TREE, graft  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from optimum.onnxruntime import ORTModelForFeatureExtraction, ORTModelForSeq2SeqLM  # noqa: E402
from sentence_transformers import SentenceTransformer  # noqa: E402

G2P = os.path.join(TREE, "models", "g2p")
WORDS = ["hello", "interface", "graft", "speeches", "a", "unmodified", "quartz", "onomatopoeia"]
TEXTS = ["The quick brown fox.", "A much longer sentence, which has a number of words more than the others have, so that these are padded to its length.", "Short.",
         "Vectors of texts."] * 8


def both(make):
    """What make gives without graft and with it, and the sessions that were patched."""
    before = graft.status().patched
    reference = make()
    assert graft.status().patched == before
    with graft.enabled(strict=True):
        patched = make()
    n = graft.status().patched - before
    assert n > 0, graft.status()
    return reference, patched, n


def times(calls, rounds=10):
    """Medians in milliseconds, of interleaved calls."""
    took = [[] for _ in calls]
    for _ in range(rounds):
        for order in (range(len(calls)), reversed(range(len(calls)))):
            for i in order:
                start = time.perf_counter()
                calls[i]()
                took[i].append(time.perf_counter() - start)
    return [1e3 * statistics.median(t) for t in took]


def said(name, sessions, calls):
    a, b = times(calls)
    print(f"{name}: {sessions} sessions patched, equal answers, {a:.1f} ms without, {b:.1f} ms with, {a / b:.2f}x", flush=True)


def seq2seq():
    """Greedy and beam search over a trained model of words."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(G2P, "tokenizer.json"), pad_token="<pad>", bos_token="<s>", eos_token="</s>")
    reference, patched, n = both(lambda: ORTModelForSeq2SeqLM.from_pretrained(G2P, provider=CPU[0]))
    encoded = tokenizer(WORDS, return_tensors="pt", padding=True, return_token_type_ids=False)
    for options in ({}, {"num_beams": 4}):
        def generate(model):
            return model.generate(**encoded, max_new_tokens=20, **options)

        a, b = generate(reference), generate(patched)
        assert torch.equal(a, b), (a, b)
        assert len({tuple(r.tolist()) for r in a}) == len(WORDS), "different words give one answer"
        said(f"optimum seq2seq {options}", n, [lambda: generate(reference), lambda: generate(patched)])


def features(folder):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    reference, patched, n = both(lambda: ORTModelForFeatureExtraction.from_pretrained(folder, subfolder="onnx", file_name="model.onnx", provider=CPU[0]))
    encoded = tokenizer(TEXTS, return_tensors="pt", padding=True)
    with torch.no_grad():
        a, b = reference(**encoded).last_hidden_state, patched(**encoded).last_hidden_state
    seen = encoded["attention_mask"].bool()
    np.testing.assert_allclose(b[seen].numpy(), a[seen].numpy(), rtol=1e-4, atol=1e-5)
    said("optimum feature extraction", n, [lambda: reference(**encoded), lambda: patched(**encoded)])


def sentences(folder):
    reference, patched, n = both(lambda: SentenceTransformer(folder, backend="onnx", model_kwargs={"provider": CPU[0]}, device="cpu"))
    a, b = reference.encode(TEXTS), patched.encode(TEXTS)
    np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)
    assert np.abs(a[0] - a[1]).max() > 0.01
    said("sentence-transformers", n, [lambda: reference.encode(TEXTS), lambda: patched.encode(TEXTS)])


if __name__ == "__main__":
    encoder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(TREE, "models", "encoders", "embedder")
    seq2seq()
    features(encoder)
    sentences(encoder)
