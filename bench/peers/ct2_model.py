"""A subject in the format of CTranslate2.

The variables are those that CTranslate2's own converter for Transformers writes,
set here from arrays, so that no PyTorch is needed.
"""

import math

import numpy as np
from ctranslate2.converters import utils
from ctranslate2.specs import common_spec, transformer_spec, whisper_spec

from weights import Weights

# Whisper is recognised by names in its vocabulary.
WHISPER_NAMES = {
    50257: "<|endoftext|>", 50258: "<|startoftranscript|>", 50259: "<|en|>", 50358: "<|translate|>",
    50359: "<|transcribe|>", 50360: "<|startoflm|>", 50361: "<|startofprev|>", 50362: "<|nospeech|>",
    50363: "<|notimestamps|>",
}


def name(token):
    """The name of a token in the made vocabulary."""
    return f"t{token}"


def vocabulary(size, named=None):
    named = named or {}
    return [named.get(i, name(i)) for i in range(size)]


class Writer:
    """Sets layers of a specification from a subject's parameters."""

    def __init__(self, subject):
        self.w = Weights(subject)
        self.config = self.w.config

    def linear(self, spec, parameter, transposed=False):
        weight = self.w[parameter + ".weight"]
        spec.weight = np.ascontiguousarray(weight.T) if transposed else weight
        if parameter + ".bias" in self.w:
            spec.bias = self.w[parameter + ".bias"]

    def norm(self, spec, parameter):
        spec.gamma = self.w[parameter + ".weight"]
        if hasattr(spec, "beta"):
            spec.beta = self.w[parameter + ".bias"]

    def attention(self, spec, parameter, own, names):
        """Query, key and value stand side by side, of cross attention the latter two."""
        parts = [common_spec.LinearSpec() for _ in range(3)]
        for part, leaf in zip(parts, names):
            self.linear(part, f"{parameter}.{leaf}")
        if own:
            utils.fuse_linear(spec.linear[0], parts)
        else:
            utils.fuse_linear(spec.linear[0], parts[:1])
            utils.fuse_linear(spec.linear[1], parts[1:])
        self.linear(spec.linear[-1], f"{parameter}.{names[3]}")


def gpt2(subject):
    w = Writer(subject)
    c = w.config
    spec = transformer_spec.TransformerDecoderModelSpec.from_config(
        c["n_layer"], c["n_head"], pre_norm=True, activation=common_spec.Activation.GELUTanh)
    d = spec.decoder
    d.scale_embeddings = False
    d.embeddings.weight = w.w["transformer.wte.weight"]
    d.projection.weight = d.embeddings.weight
    d.position_encodings.encodings = w.w["transformer.wpe.weight"]
    w.norm(d.layer_norm, "transformer.ln_f")
    for i, layer in enumerate(d.layer):
        at = f"transformer.h.{i}"
        w.norm(layer.self_attention.layer_norm, f"{at}.ln_1")
        w.linear(layer.self_attention.linear[0], f"{at}.attn.c_attn", transposed=True)
        w.linear(layer.self_attention.linear[1], f"{at}.attn.c_proj", transposed=True)
        w.norm(layer.ffn.layer_norm, f"{at}.ln_2")
        w.linear(layer.ffn.linear_0, f"{at}.mlp.c_fc", transposed=True)
        w.linear(layer.ffn.linear_1, f"{at}.mlp.c_proj", transposed=True)
    spec.register_vocabulary(vocabulary(c["vocab_size"]))
    spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = name(c["eos_token_id"])
    return spec


PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")


def bart_layers(w, stack, at, cross):
    for i, layer in enumerate(stack.layer):
        here = f"{at}.layers.{i}"
        w.attention(layer.self_attention, f"{here}.self_attn", True, PROJECTIONS)
        w.norm(layer.self_attention.layer_norm, f"{here}.self_attn_layer_norm")
        if cross:
            w.attention(layer.attention, f"{here}.encoder_attn", False, PROJECTIONS)
            w.norm(layer.attention.layer_norm, f"{here}.encoder_attn_layer_norm")
        w.linear(layer.ffn.linear_0, f"{here}.fc1")
        w.linear(layer.ffn.linear_1, f"{here}.fc2")
        w.norm(layer.ffn.layer_norm, f"{here}.final_layer_norm")


def seq2seq_config(spec, c, start):
    words = vocabulary(c["vocab_size"])
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.bos_token = name(c["decoder_start_token_id"])
    spec.config.eos_token = name(c["eos_token_id"])
    spec.config.unk_token = name(3)
    spec.config.decoder_start_token = name(start)


def bart(subject):
    w = Writer(subject)
    c = w.config
    spec = transformer_spec.TransformerSpec.from_config(
        (c["encoder_layers"], c["decoder_layers"]), c["encoder_attention_heads"], pre_norm=False,
        activation=common_spec.Activation.GELU, layernorm_embedding=True)
    shared = w.w["model.shared.weight"]
    for side, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        at = f"model.{side}"
        stack.scale_embeddings = math.sqrt(c["d_model"]) if c["scale_embedding"] else 1.0
        embeddings = stack.embeddings[0] if side == "encoder" else stack.embeddings
        embeddings.weight = shared
        stack.position_encodings.encodings = w.w[f"{at}.embed_positions.weight"][2:]
        w.norm(stack.layernorm_embedding, f"{at}.layernorm_embedding")
        bart_layers(w, stack, at, side == "decoder")
    spec.decoder.projection.weight = shared
    seq2seq_config(spec, c, c["decoder_start_token_id"])
    return spec


def t5(subject):
    w = Writer(subject)
    c = w.config
    spec = transformer_spec.TransformerSpec.from_config(
        (c["num_layers"], c["num_decoder_layers"]), c["num_heads"], pre_norm=True,
        activation=common_spec.Activation.RELU, relative_attention_bias=True, rms_norm=True)
    shared = w.w["shared.weight"]
    for side, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        stack.scale_embeddings = False
        embeddings = stack.embeddings[0] if side == "encoder" else stack.embeddings
        embeddings.weight = shared
        w.norm(stack.layer_norm, f"{side}.final_layer_norm")
        bias = w.w[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
        for i, layer in enumerate(stack.layer):
            here = f"{side}.block.{i}.layer"
            own = layer.self_attention
            own.queries_scale = 1.0
            own.relative_attention_bias = bias
            own.relative_attention_max_distance = np.int32(c["relative_attention_max_distance"])
            w.attention(own, f"{here}.0.SelfAttention", True, "qkvo")
            w.norm(own.layer_norm, f"{here}.0.layer_norm")
            if side == "decoder":
                layer.attention.queries_scale = 1.0
                w.attention(layer.attention, f"{here}.1.EncDecAttention", False, "qkvo")
                w.norm(layer.attention.layer_norm, f"{here}.1.layer_norm")
            last = 2 if side == "decoder" else 1
            w.linear(layer.ffn.linear_0, f"{here}.{last}.DenseReluDense.wi")
            w.linear(layer.ffn.linear_1, f"{here}.{last}.DenseReluDense.wo")
            w.norm(layer.ffn.layer_norm, f"{here}.{last}.layer_norm")
    spec.decoder.projection.weight = shared
    spec.decoder.scale_outputs = c["d_model"] ** -0.5
    seq2seq_config(spec, c, c["decoder_start_token_id"])
    return spec


def whisper(subject):
    w = Writer(subject)
    c = w.config
    spec = whisper_spec.WhisperSpec(
        c["encoder_layers"], c["encoder_attention_heads"], c["decoder_layers"], c["decoder_attention_heads"])
    for conv, leaf in ((spec.encoder.conv1, "conv1"), (spec.encoder.conv2, "conv2")):
        conv.weight = w.w[f"model.encoder.{leaf}.weight"]
        conv.bias = w.w[f"model.encoder.{leaf}.bias"]
    for side, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        at = f"model.{side}"
        stack.position_encodings.encodings = w.w[f"{at}.embed_positions.weight"]
        w.norm(stack.layer_norm, f"{at}.layer_norm")
        bart_layers(w, stack, at, side == "decoder")
    spec.decoder.embeddings.weight = w.w["model.decoder.embed_tokens.weight"]
    spec.decoder.projection.weight = spec.decoder.embeddings.weight
    spec.register_vocabulary(vocabulary(c["vocab_size"], WHISPER_NAMES))
    spec.config.suppress_ids, spec.config.suppress_ids_begin, spec.config.lang_ids = [], [], [50259]
    spec.config.alignment_heads = [(c["decoder_layers"] - 1, 0)]
    return spec


MAKE = {"gpt2": gpt2, "bart": bart, "t5": t5, "whisper": whisper}


def write(subject, folder):
    """Writes the subject, float32, into a folder that exists."""
    spec = MAKE[subject.split("-")[0]](subject)
    spec.validate()
    spec.optimize(quantization="float32")
    spec.save(str(folder))
