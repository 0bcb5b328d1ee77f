"""Writes testdata: what Hugging Face's models of images make of pictures, from the picture to the text.

    pip install -r ../generate/requirements.txt pillow==12.0.0
    python expected.py

Models are those of models/small, with a tokenizer and a preprocessor_config.json each. A picture is made of whole
numbers alone (picture below, and in vision_test.go). Tokens must be the same from pixel values with noise that is larger than
rounding; a picture for which they are not is replaced by another, and counted.
"""

import gzip
import json
import logging
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import DeiTImageProcessor, DonutImageProcessor, PreTrainedTokenizerFast, ViTImageProcessor

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "models" / "export"))

import generation_subjects as subjects  # noqa: E402

SPECIAL = {0: "<s>", 1: "<pad>", 2: "</s>", 7: "<s_page>", 53: "<end>"}
PROCESSORS = {
    "trocr": (ViTImageProcessor, {"size": {"height": 32, "width": 32}, "resample": 2}),
    "trocr-small": (DeiTImageProcessor, {"size": 36, "crop_size": 32, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}),
    "donut": (DonutImageProcessor, {"size": {"height": 64, "width": 48}, "do_align_long_axis": True}),
}
ASKED = [{"max_new_tokens": 24}, {"num_beams": 4, "max_new_tokens": 24}, {"num_beams": 4, "max_new_tokens": 20, "prompt": "<s_page>ab"}]
EACH = 3
NOISE = 3e-5


def picture(seed):
    """A slope, lines and noise in colours and sizes that change with the seed."""
    height, width = 20 + seed * 37 % 90, 20 + seed * 53 % 110
    y, x = np.mgrid[0:height, 0:width]
    noise = (x * 7919 + y * 104729 + x * y * (31 + seed)) % 251
    red = x * (1 + seed % 5) % 256
    green = np.where((x // (2 + seed % 4) + y // 5) % 2 == 0, 230, 20 + seed % 7)
    return Image.fromarray(np.stack([red, green, noise], -1).astype(np.uint8), "RGB")


def tokenizer(count):
    """Bytes, the special tokens, and words of a number for what is left."""
    free = [i for i in range(count) if i not in SPECIAL]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {**dict(zip(letters, free)), **{f"w{i} ": i for i in free[len(letters):]}, **{text: i for i, text in SPECIAL.items()}}
    t = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(text, special=True, normalized=False) for _, text in sorted(SPECIAL.items())])
    t.add_tokens([AddedToken(f"w{i} ", normalized=False) for i in free[len(letters):]])
    assert t.get_vocab_size() == count
    return t


def generate(model, pixels, asked, text):
    asked = dict(asked)
    prompt, cut = asked.pop("prompt", None), 1
    if prompt:
        asked["decoder_input_ids"] = torch.tensor([text(prompt, add_special_tokens=False).input_ids])
    with torch.no_grad():
        out = model.generate(pixel_values=pixels, **asked)[0].tolist()
    if prompt:
        given = asked["decoder_input_ids"][0].tolist()
        cut = 1 + next(i for i in range(2) if out[i : i + len(given)] == given) + len(given) - 1
    out = out[cut:]
    end = model.generation_config.eos_token_id
    return out[: out.index(end) + 1] if end in out else out


def main():
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    cases, replaced, made, seed = [], 0, {}, 0
    for name in sys.argv[1:] or PROCESSORS:
        cls, settings = PROCESSORS[name]
        processor = cls(**settings)
        single = subjects.make(name, None)[0]
        tokens = tokenizer(single.config.decoder.vocab_size)
        text = PreTrainedTokenizerFast(tokenizer_object=tokens, clean_up_tokenization_spaces=False)
        made[name] = {"preprocessor": {"image_processor_type": cls.__name__, **settings}, "tokenizer": json.loads(tokens.to_str())}
        for asked in ASKED:
            kept = 0
            while kept < EACH:
                seed += 1
                pixels = processor(picture(seed), return_tensors="pt")["pixel_values"]
                ids = generate(single, pixels, asked, text)
                noise = NOISE * torch.randn(pixels.shape, generator=torch.Generator().manual_seed(seed))
                if generate(single, pixels + noise, asked, text) != ids:
                    replaced += 1
                    continue
                kept += 1
                cases.append({"model": name, "seed": seed, "options": asked, "tokens": ids, "text": text.decode(ids, skip_special_tokens=True)})
    print(f"{len(cases)} cases, {replaced} replaced, {len({tuple(c['tokens']) for c in cases})} different")
    data = json.dumps({"made_by": {p: version(p) for p in ("transformers", "pillow", "torch")}, "replaced": replaced,
                       "models": made, "cases": cases}, ensure_ascii=False, separators=(",", ":")).encode()
    with open(HERE / "testdata" / "expected.json.gz", "wb") as raw, gzip.GzipFile(
            filename="", mode="wb", fileobj=raw, compresslevel=9, mtime=0) as z:
        z.write(data)


if __name__ == "__main__":
    main()
