"""Writes testdata: what Hugging Face's Whisper makes of sounds, from the sound to the text.

    pip install -r ../generate/requirements.txt
    python expected.py

The model is whisper of models/small with a tokenizer, languages and tasks. A sound
is made of whole numbers alone (sound below, and in speech_test.go). Tokens are
those of Whisper's own generate. They must be the same in float64 from features with
noise larger than what computing them in another way makes of them; a sound for
which they are not is replaced by another, and counted.
"""

import gzip
import json
import logging
import sys
import warnings
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast, WhisperFeatureExtractor

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "models" / "export"))

import generation_subjects as subjects  # noqa: E402

# 120 frames of 16 mel bins, which is what the small model takes.
EXTRACTOR = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 16, "sampling_rate": 16000,
             "hop_length": 133, "chunk_length": 1, "n_fft": 400, "padding_value": 0.0, "padding_side": "right",
             "return_attention_mask": False}
# Languages that the model does tell apart.
LANGUAGES = {"<|en|>": 288, "<|de|>": 290, "<|fr|>": 285, "<|ja|>": 296, "<|yue|>": 292}
SPECIAL = {0: "<|pad|>", 1: "<|bos|>", 3: "<|startoftranscript|>", 6: "<|transcribe|>", 7: "<|translate|>",
           297: "<|endoftext|>", 309: "<|notimestamps|>", **{i: text for text, i in LANGUAGES.items()}}
GENERATION = {
    **subjects.SUBJECTS["whisper"].generation,
    "is_multilingual": True, "return_timestamps": False, "no_timestamps_token_id": 309, "max_initial_timestamp_index": 50,
    "lang_to_id": LANGUAGES,
    "task_to_id": {"transcribe": 6, "translate": 7},
}
FORCED = {"forced_decoder_ids": [[1, None], [2, 6]]}
NOISE = 3e-5

# What generation_config.json says beside GENERATION, and what is asked for.
ASKED = [
    ({}, {"language": "en", "task": "transcribe", "max_new_tokens": 30}),
    ({}, {"language": "german", "num_beams": 4, "max_new_tokens": 30}),
    ({}, {"language": "<|yue|>", "task": "translate", "num_beams": 4, "max_new_tokens": 24, "length_penalty": 0.5}),
    ({}, {"num_beams": 4, "max_new_tokens": 24}),
    ({}, {"task": "translate", "max_new_tokens": 24}),
    (FORCED, {"num_beams": 4, "max_new_tokens": 24}),
    (FORCED, {"language": "fr", "max_new_tokens": 24}),
    (FORCED, {"num_beams": 2}),
    ({}, {"language": "ja", "max_length": 18}),
    ({}, {"num_beams": 4, "max_length": 18, "no_repeat_ngram_size": 2, "repetition_penalty": 1.2}),
    ({"max_length": 40}, {"num_beams": 4, "early_stopping": True}),
    ({"max_length": 40, "language": "de", "task": "transcribe"}, {"begin_suppress_tokens": [220, 297, 260, 261, 262]}),
]
EACH = 5


def sound(seed, count):
    """Samples of 16 bits: two saw teeth whose pitch changes with the seed, and noise."""
    state, out = seed * 2654435761 % 2**32, []
    first, second = 300 + seed * 37 % 900, 1500 + seed * 101 % 3000
    for i in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        first += (i + seed) % 3 // 2 if i % 40 == 0 else 0
        out.append(i * first % 65536 // 8 - 4096 + (i * second % 65536 // 16 - 2048) + ((state >> 20) - 2048) // 4)
    return np.array(out, np.int16)


def tokenizer():
    """Bytes, some pairs of them, and the special tokens."""
    letters = pre_tokenizers.ByteLevel.alphabet()
    vocab, merges = {}, []
    free = [i for i in range(310) if i not in SPECIAL]
    for letter in sorted(letters):
        vocab[letter] = free[len(vocab)]
    for left, right in (("t", "h"), ("h", "e"), ("i", "n"), ("e", "r"), ("Ġ", "a"), ("r", "e"), ("o", "n"), ("Ġ", "s"),
                        ("Ġ", "th"), ("a", "t"), ("e", "n"), ("o", "u"), ("Ġ", "w"), ("i", "s"), ("o", "r"), ("e", "s"),
                        ("n", "d"), ("Ġ", "o"), ("i", "t"), ("Ġth", "e"), ("a", "l"), ("Ġ", "in"), ("a", "r"), ("l", "e"),
                        ("Ġ", "b"), ("in", "g"), ("Ġ", "f"), ("o", "u"), ("e", "d"), ("Ġ", "c"), ("i", "c"), ("r", "o"),
                        ("Ġ", "m"), ("Ġ", "p"), ("a", "n"), ("v", "e"), ("s", "t"), ("Ġ", "d"), ("l", "l"), ("u", "t"),
                        ("o", "m"), ("a", "s"), ("l", "y"), ("e", "l"), ("c", "h")):
        if len(vocab) < len(free) and left + right not in vocab:
            vocab[left + right] = free[len(vocab)]
            merges.append((left, right))
    assert len(vocab) == len(free), f"{len(free) - len(vocab)} tokens are without text"
    for i, text in SPECIAL.items():
        vocab[text] = i
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(text, special=True, normalized=False) for _, text in sorted(SPECIAL.items())])
    return t


def generate(model, features, said, asked):
    """Tokens without start and end, of Whisper's generate."""
    model.generation_config = GenerationConfig(**{**GENERATION, **said})
    with torch.no_grad():
        out = model.generate(features, **asked)[0].tolist()
    while out and out[-1] in (GENERATION["pad_token_id"], GENERATION["eos_token_id"]):
        out.pop()
    return out


def main():
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    t = tokenizer()
    t.save(str(HERE / "testdata" / "tokenizer.json"))
    text = PreTrainedTokenizerFast(tokenizer_object=t, clean_up_tokenization_spaces=False)
    extractor = WhisperFeatureExtractor(**{k: v for k, v in EXTRACTOR.items() if k != "feature_extractor_type"})
    single, double = subjects.make("whisper", "sdpa")[0], subjects.make("whisper", "sdpa")[0].double()
    cases, replaced, seed, detected = [], 0, 0, set()
    for said, asked in ASKED:
        kept = 0
        while kept < EACH:
            seed += 1
            count = 4000 + seed * 977 % 16000  # some are longer than a window
            features = extractor(sound(seed, count) / np.float32(32768), sampling_rate=16000, return_tensors="pt")["input_features"]
            tokens = generate(single, features, said, asked)
            noise = NOISE * torch.randn(features.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
            if generate(double, features.double() + noise, said, asked) != tokens or len(set(tokens)) < 5:
                replaced += 1
                continue
            single.generation_config = GenerationConfig(**GENERATION)
            detected.add(single.detect_language(features, generation_config=single.generation_config).item())
            kept += 1
            cases.append({"seed": seed, "samples": count, "generation_config": said, "options": asked, "tokens": tokens,
                          "text": text.decode(tokens, skip_special_tokens=True)})
    lengths = sorted({len(c["tokens"]) for c in cases})
    print(f"{len(cases)} cases, {replaced} sounds replaced, lengths {lengths}, languages heard {sorted(detected)}")
    made = {"made_by": {"transformers": transformers.__version__, "tokenizers": tokenizers.__version__, "torch": torch.__version__},
            "replaced": replaced, "preprocessor_config": EXTRACTOR, "generation_config": GENERATION, "cases": cases}
    data = json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode()
    with open(HERE / "testdata" / "expected.json.gz", "wb") as raw, gzip.GzipFile(
            filename="", mode="wb", fileobj=raw, compresslevel=9, mtime=0) as z:
        z.write(data)


if __name__ == "__main__":
    main()
