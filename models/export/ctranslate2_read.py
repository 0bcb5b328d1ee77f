"""Reads models of CTranslate2's binary format, version 6, and names the tensors of a Whisper as Hugging Face does."""

import struct

import numpy as np

# Types by their number in the file.
TYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}


def read(path):
    """The tensors of a file by name. Those of float16 come as float32, with the same values."""
    data = memoryview(path.read_bytes())
    at = 0

    def take(form):
        nonlocal at
        (value,) = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return value

    def name():
        nonlocal at
        length = take("H")  # with the NUL at its end
        at += length
        return bytes(data[at - length : at - 1]).decode()

    version = take("I")
    if version != 6:
        raise SystemExit(f"{path}: found version {version} of CTranslate2's format, needed is 6")
    name(), take("I")  # the specification and its revision
    tensors = {}
    for _ in range(take("I")):
        key = name()
        shape = [take("I") for _ in range(take("B"))]
        kind, size = take("B"), take("I")
        value = np.frombuffer(data[at : at + size], TYPES[kind]).reshape(shape)
        tensors[key] = value.astype(np.float32) if kind == 4 else value.copy()
        at += size
    for _ in range(take("I")):
        alias, key = name(), name()
        tensors[alias] = tensors[key]
    if at != len(data):
        raise SystemExit(f"{path}: {len(data) - at} bytes after the last tensor")
    return tensors


def whisper(tensors, config):
    """The state of a WhisperForConditionalGeneration. Queries, keys and values are joined in the file, and keys have a bias of zeros."""
    state = {}

    def linear(to, weight, bias):
        state[to + ".weight"] = weight
        if to.endswith(".k_proj"):
            if np.any(bias):
                raise SystemExit(f"{to}: found a bias, which Whisper's keys do not have")
        else:
            state[to + ".bias"] = bias

    def norm(to, source):
        state[to + ".weight"], state[to + ".bias"] = tensors[source + "/gamma"], tensors[source + "/beta"]

    def joined(to, source, names):
        weights, biases = (np.split(tensors[f"{source}/{part}"], len(names)) for part in ("weight", "bias"))
        for one, weight, bias in zip(names, weights, biases, strict=True):
            linear(f"{to}.{one}", weight, bias)

    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        top = f"model.{side}"
        state[f"{top}.embed_positions.weight"] = tensors[f"{side}/position_encodings/encodings"]
        norm(f"{top}.layer_norm", f"{side}/layer_norm")
        for i in range(layers):
            to, source = f"{top}.layers.{i}", f"{side}/layer_{i}"
            joined(f"{to}.self_attn", f"{source}/self_attention/linear_0", ("q_proj", "k_proj", "v_proj"))
            joined(f"{to}.self_attn", f"{source}/self_attention/linear_1", ("out_proj",))
            norm(f"{to}.self_attn_layer_norm", f"{source}/self_attention/layer_norm")
            if side == "decoder":
                joined(f"{to}.encoder_attn", f"{source}/attention/linear_0", ("q_proj",))
                joined(f"{to}.encoder_attn", f"{source}/attention/linear_1", ("k_proj", "v_proj"))
                joined(f"{to}.encoder_attn", f"{source}/attention/linear_2", ("out_proj",))
                norm(f"{to}.encoder_attn_layer_norm", f"{source}/attention/layer_norm")
            joined(to, f"{source}/ffn/linear_0", ("fc1",))
            joined(to, f"{source}/ffn/linear_1", ("fc2",))
            norm(f"{to}.final_layer_norm", f"{source}/ffn/layer_norm")
    state["model.decoder.embed_tokens.weight"] = tensors["decoder/embeddings/weight"]
    for conv in ("conv1", "conv2"):
        for part in ("weight", "bias"):
            state[f"model.encoder.{conv}.{part}"] = tensors[f"encoder/{conv}/{part}"]
    return state
