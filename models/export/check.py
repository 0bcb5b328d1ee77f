"""Checks filled fixtures against Python: python check.py BUILD_PROGRAM [FIXTURE...]

For each fixture: the Go program's bytes are those that seeded.py makes, ONNX
Runtime loads the model and runs a step on sensible inputs, every output is finite
and not constant. Fixtures of one subject that compute the same are compared.
"""

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

import learned
import seeded
from store import GRAPHS, MANIFEST

BATCH, PAST, STEP, ENCODER, SAMPLES = 2, 5, 3, 7, 4000
# Fixtures that must agree: the first with each of the others.
SAME = (
    ("optimum/gpt2", "optimum/gpt2-eager", "optimum/gpt2-runtime-scale", "optimum/gpt2-merged", "ortopt/gpt2",
     "ortopt/gpt2-attention", "dynamo18/gpt2", "dynamo23/gpt2"),
    ("optimum/llama", "dynamo18/llama", "dynamo23/llama", "genai/llama"),
    ("optimum/bert", "ortopt/bert", "dynamo18/bert", "dynamo23/bert"),
    ("optimum/bart-decoder", "ortopt/bart-decoder"),
    ("optimum/bart-decoder-with-past", "ortopt/bart-decoder-with-past", "optimum/bart-decoder-merged"),
    ("optimum/t5-decoder-with-past", "optimum/t5-decoder-merged"),
    ("optimum/whisper-decoder-with-past", "ortopt/whisper-decoder-with-past", "optimum/whisper-decoder-merged"),
    ("full/minilm-l6/model", "full/minilm-l6-pooled/model"),
    ("full/gpt2-124m/model", "full/gpt2-124m-runtime-scale/model", "full/gpt2-124m-mha/model"),
)


def expand(tensor, seed):
    """The array that an instruction makes (models/instruction.go)."""
    axis, parts = 0, []
    for e in tensor.external_data:
        if e.key == "axis":
            axis = int(e.value)
        elif e.key == "name":
            parts.append({})
        if parts:
            parts[-1][e.key] = e.value
    arrays = []
    for p in parts:
        shape = tuple(map(int, p["shape"].split(",")))
        value = seeded.Seeded(p["name"], shape, p["distribution"], float(p.get("mean", 0)), float(p.get("scale", 0))).values(seed)
        value = value.T if "transpose" in p else value
        if "slice" in p:
            cut_axis, start, end = map(int, p["slice"].split(":"))
            value = np.take(value, range(start, end), cut_axis)
        arrays.append(value)
    return np.concatenate(arrays, axis).reshape(tuple(tensor.dims))


def compare_bytes(stored, filled, seed):
    for a, b in zip(learned.model_tensors(stored), learned.model_tensors(filled), strict=True):
        if a.data_location == onnx.TensorProto.EXTERNAL:
            assert b.data_location != onnx.TensorProto.EXTERNAL, b.name
            assert np.array_equal(expand(a, seed), numpy_helper.to_array(b)), a.name
        else:
            assert a == b, a.name


def feed(session, config, seed=0):
    """Inputs with meaning, the same for every fixture of a subject."""
    names = {i.name for i in session.get_inputs()}
    encoder_length = ENCODER
    if config["model_type"] == "whisper":
        encoder_length = config["max_source_positions"]
    has_past = any("past" in n for n in names)
    vocabulary = config.get("vocab_size")
    # A decoder with past and cross attention takes one token at a time, and so does
    # GroupQueryAttention with more than one row.
    one = config.get("is_encoder_decoder") or config["model_type"] == "llama"
    length_of_step = 1 if has_past and one else STEP

    def draw(name, shape):
        return np.random.default_rng([seed, *name.encode()]).standard_normal(shape).astype(np.float32)

    def ids(name, length):
        return np.random.default_rng([seed, *name.encode()]).integers(3, vocabulary, (BATCH, length))

    values = {}
    for i in session.get_inputs():
        n = i.name
        # Names differ by exporter (past_key_values.0.key, past_0_key); values must not.
        if "past" in n or n.startswith("past"):
            side = "encoder" if "encoder" in n else "decoder"
            length = encoder_length if side == "encoder" else PAST
            kind = "value" if "value" in n.split(".")[-1] or n.endswith("value") else "key"
            layer = next(int(s) for s in n.replace(".", "_").split("_") if s.isdigit())
            if len(i.shape) == 5:  # key and value in one tensor
                shape = (BATCH, i.shape[2], length, i.shape[4])
                values[n] = np.stack([draw(f"{layer}{side}{k}", shape) for k in ("key", "value")])
            else:
                heads, size = i.shape[1], i.shape[3]
                if isinstance(size, str):  # the genai builder leaves the head size open
                    size = config["hidden_size"] // config["num_attention_heads"]
                values[n] = draw(f"{layer}{side}{kind}", (BATCH, heads, length, size))
        elif n in ("encoder_hidden_states", "encoder_outputs"):
            values[n] = draw("hidden", (BATCH, encoder_length, config.get("d_model")))
        elif n == "input_features":
            values[n] = draw(n, (BATCH, config["num_mel_bins"], 2 * encoder_length))
        elif n == "pixel_values":
            values[n] = draw(n, (BATCH, config["num_channels"], config["image_size"], config["image_size"]))
        elif n == "input_values":
            values[n] = draw(n, (BATCH, SAMPLES))
        elif n == "encoder_attention_mask":
            values[n] = np.ones((BATCH, encoder_length), np.int64)
        elif n == "attention_mask":
            is_encoder = not has_past and "encoder" in session.name
            length = encoder_length if is_encoder else length_of_step + (PAST if has_past else 0)
            values[n] = np.ones((BATCH, length), np.int64)
        elif n in ("input_ids", "decoder_input_ids"):
            is_encoder = not has_past and "encoder" in session.name
            length = encoder_length if is_encoder else length_of_step
            values[n] = ids("ids", encoder_length)[:, :length]
        elif n == "token_type_ids":
            values[n] = np.zeros((BATCH, length_of_step), np.int64)
        elif n == "position_ids":
            start = PAST if has_past else 0
            values[n] = np.broadcast_to(np.arange(start, start + length_of_step), (BATCH, length_of_step)).copy()
        elif n == "cache_position":
            values[n] = np.arange(PAST, PAST + length_of_step)
        elif n == "use_cache_branch":
            values[n] = np.array([True])
        else:
            raise SystemExit(f"{session.name}: no meaning is known for input {n} {i.shape}")
        if i.type == "tensor(int32)":
            values[n] = values[n].astype(np.int32)
    return values


class Session(onnxruntime.InferenceSession):
    def __init__(self, name, path):
        super().__init__(path, providers=["CPUExecutionProvider"])
        self.name = "encoder" if name.endswith(("encoder", "encoder_model")) else name


def main():
    program, only = sys.argv[1], sys.argv[2:]
    records = {f"{r['exporter']}/{r['name']}": r for r in json.loads(MANIFEST.read_text())["graphs"]}
    outputs, seed = {}, 1
    for name, record in records.items():
        if (only and name not in only) or (not only and record["exporter"] == "full"):
            continue
        config = json.loads((GRAPHS / record["config"]).read_text())
        with tempfile.TemporaryDirectory() as folder:
            wanted = name.split("/")[1] if record["exporter"] == "full" else name
            subprocess.run([program, "--seed", str(seed), wanted, folder], check=True, capture_output=True)
            path = Path(folder) / f"{name.split('/')[-1]}.onnx"
            if record["exporter"] != "full":
                stored = onnx.load_model_from_string(gzip.decompress((GRAPHS / record["path"]).read_bytes()))
                compare_bytes(stored, onnx.load(path), seed)
            session = Session(name, str(path))
            values = session.run(None, feed(session, config))
        for o, v in zip(session.get_outputs(), values, strict=True):
            assert v.size == 0 or np.isfinite(v).all(), f"{name}: {o.name} is not finite"
            assert v.size == 0 or "present" in o.name or v.std() > 1e-3, f"{name}: {o.name} is constant"
        outputs[name] = values[0]
        first = values[0].reshape(-1, values[0].shape[-1])
        top = np.sort(first, -1)[:, -2:]
        print(f"{name}: {session.get_outputs()[0].name} {list(values[0].shape)}, deviation {first.std():.3g}, "
              f"median gap of the two largest {np.median(top[:, -1] - top[:, 0]):.3g}")
    for group in SAME:
        for other in group[1:]:
            if group[0] in outputs and other in outputs:
                error = np.abs(outputs[group[0]] - outputs[other]).max()
                print(f"{group[0]} and {other}: largest difference {error:.2g}")
                assert error < 1e-4, (group[0], other)


if __name__ == "__main__":
    main()
