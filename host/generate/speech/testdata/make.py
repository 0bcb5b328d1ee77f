"""Writes the sounds of this folder and NAME.features.gz: what Hugging Face's WhisperFeatureExtractor makes of them.

    pip install -r ../../../tests/generate/requirements.txt
    python make.py

Each case is a WAV file of another kind and a preprocessor_config.json. Of the
features every third frame around the sound is kept, and the last one.
"""

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import transformers
from transformers import WhisperFeatureExtractor

HERE = Path(__file__).resolve().parent
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE

# Name: kind and bits of a sample, channels, rate, samples, how loud, configuration.
CASES = {
    "pcm16": (PCM, 16, 1, 16000, 11000, 0.6, {}),
    "float32-stereo": (FLOAT, 32, 2, 16000, 5000, 0.9, {"feature_size": 128}),
    "pcm24-cut": (PCM, 24, 1, 16000, 17500, 0.3, {"feature_size": 16, "hop_length": 133, "chunk_length": 1}),
    "pcm8-quiet": (EXTENSIBLE, 8, 1, 16000, 7001, 0.04, {"chunk_length": 2}),
    "pcm32-rate": (PCM, 32, 1, 8000, 4000, 0.5, {"sampling_rate": 8000, "n_fft": 256, "hop_length": 80, "feature_size": 40}),
    "float64-silence": (FLOAT, 64, 1, 16000, 900, 0.0, {"chunk_length": 1}),
}


def sound(seed, channels, rate, count, loud):
    """A tone that rises, with a second one that comes and goes, and noise; from -1 to 1."""
    t = np.arange(count)[:, None] / rate
    phase = 0.7 * np.arange(channels)[None, :]
    noise = np.random.default_rng(seed).standard_normal((count, channels))
    rising = np.sin(2 * np.pi * (150 * t + 900 * t * t) + phase)
    pulsed = np.sin(2 * np.pi * 1330 * t + 2 * phase) * (np.sin(2 * np.pi * 3 * t) > 0)
    return np.clip(loud * (0.6 * rising + 0.3 * pulsed + 0.05 * noise), -1, 1)


def encode(kind, bits, values):
    """The bytes of samples."""
    if kind == FLOAT:
        return values.astype(f"<f{bits // 8}").tobytes()
    whole = np.round(values * (2 ** (bits - 1) - 1)).astype(np.int64)
    if bits == 8:
        return (whole + 128).astype(np.uint8).tobytes()
    if bits == 24:
        return whole.astype("<i4").view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
    return whole.astype(f"<i{bits // 8}").tobytes()


def wav(kind, bits, rate, values):
    """A WAV file, with a chunk that says nothing before the samples."""
    data = encode(kind, bits, values)
    channels = values.shape[1]
    width = channels * bits // 8
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * width, width, bits)
    if kind == EXTENSIBLE:  # the kind is in the first bytes of an identifier
        form += struct.pack("<HHI", 22, bits, 0) + struct.pack("<H", PCM) + bytes.fromhex("000000001000800000aa00389b71")
    chunks = b""
    for name, body in ((b"fmt ", form), (b"LIST", b"odd"), (b"data", data)):
        chunks += name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def read(kind, bits, values):
    """The samples as a reader of the file sees them, one channel."""
    data = encode(kind, bits, values)
    if kind == FLOAT:
        seen = np.frombuffer(data, f"<f{bits // 8}").astype(np.float64)
    elif bits == 24:
        padded = np.zeros((len(data) // 3, 4), np.uint8)
        padded[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        seen = padded.view("<i4")[:, 0] / 2.0**31
    elif bits == 8:
        seen = (np.frombuffer(data, np.uint8).astype(np.float64) - 128) / 128
    else:
        seen = np.frombuffer(data, f"<i{bits // 8}") / 2.0 ** (bits - 1)
    return seen.reshape(values.shape).mean(axis=1).astype(np.float32)


def compress(path, data):
    with open(path, "wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=9, mtime=0) as z:
        z.write(data)


def main():
    index = {"made_by": {"transformers": transformers.__version__, "numpy": np.__version__}, "cases": []}
    for seed, (name, (kind, bits, channels, rate, count, loud, config)) in enumerate(CASES.items()):
        values = sound(seed, channels, rate, count, loud)
        compress(HERE / f"{name}.wav.gz", wav(kind, bits, rate, values))
        extractor = WhisperFeatureExtractor(**config)
        made = extractor(read(kind, bits, values), sampling_rate=rate)["input_features"][0]
        frames = made.shape[1]
        heard = min(frames, count // extractor.hop_length + 4)
        kept = [*range(0, heard, 3), frames - 1]
        compress(HERE / f"{name}.features.gz", made[:, kept].astype("<f4").tobytes())
        index["cases"].append({"name": name, "rate": rate, "samples": count, "config": config, "frames": frames, "kept": kept})
        precise = extractor._np_extract_fbank_features(
            np.pad(read(kind, bits, values), (0, extractor.n_samples))[None, : extractor.n_samples], "cpu")[0]
        print(f"{name}: {made.shape}, from {made.min():.4f} to {made.max():.4f}; "
              f"torch against numpy at most {np.abs(made - precise).max():.2e}")
    (HERE / "index.json").write_text(json.dumps(index, indent=1) + "\n")


if __name__ == "__main__":
    main()
