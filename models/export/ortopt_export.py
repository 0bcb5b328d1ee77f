"""Graphs as the optimizer of ONNX Runtime 1.20 fuses them (onnxruntime.transformers).

Its patterns follow Transformers as it was in 2024, hence requirements-ortopt.txt.
GPT-2 goes through the runtime's own GPT-2 tool; the others are exported by torch's
TorchScript exporter and then fused.
"""

import functools
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import onnxruntime.transformers
import torch
from onnxruntime.transformers.fusion_options import FusionOptions
from onnxruntime.transformers.optimizer import optimize_model

import store
import subjects

# The optimizer was written for the exporter that was torch's default then.
torch.onnx.export = functools.partial(torch.onnx.export, dynamo=False)

OPSET = 17


class BartDecoder(torch.nn.Module):
    """A step of BART's or Whisper's decoder; with past, cross attention reads cached keys."""

    def __init__(self, model, with_past):
        super().__init__()
        self.model, self.with_past = model, with_past

    def forward(self, input_ids, hidden, *past):
        layers = len(past) // 4
        cache = None
        if self.with_past:
            cache = tuple(tuple(past[4 * n : 4 * n + 4]) for n in range(layers))
        decoder = self.model.get_decoder()
        result = decoder(
            input_ids, encoder_hidden_states=hidden, past_key_values=cache, use_cache=self.with_past)
        logits = self.model.get_output_embeddings()(result.last_hidden_state)
        # The optimizer loses the present keys of a first step: it exports without them.
        present = [t for layer in result.past_key_values or () for t in layer[:2]]
        return (logits, *present)


def export_decoder(model, path, with_past):
    config = model.config
    batch, step, past, encoder = 2, 3 if not with_past else 1, 5, 7
    heads, size = config.decoder_attention_heads, config.d_model // config.decoder_attention_heads
    tokens = torch.arange(batch * step).reshape(batch, step) + 4
    hidden = torch.randn(batch, encoder, config.d_model)
    inputs, outputs, cache = ["input_ids", "encoder_hidden_states"], ["logits"], []
    axes = {"input_ids": {0: "batch_size", 1: "sequence_length"},
            "encoder_hidden_states": {0: "batch_size", 1: "encoder_sequence_length"},
            "logits": {0: "batch_size", 1: "sequence_length"}}
    for layer in range(config.decoder_layers):
        for side, length in (("decoder", past), ("encoder", encoder)):
            for kind in ("key", "value"):
                name = f"{layer}.{side}.{kind}"
                if with_past:
                    cache.append(torch.randn(batch, heads, length, size))
                    inputs.append(f"past_key_values.{name}")
                    axes[inputs[-1]] = {0: "batch_size", 2: f"past_{side}_sequence_length"}
                if with_past and side == "decoder":
                    outputs.append(f"present.{name}")
                    axes[outputs[-1]] = {0: "batch_size", 2: f"present_{side}_sequence_length"}
    with torch.no_grad():
        torch.onnx.export(
            BartDecoder(model, with_past), (tokens, hidden, *cache), path, input_names=inputs,
            output_names=outputs, dynamic_axes=axes, opset_version=OPSET)


def export_bert(model, path):
    tokens = torch.ones(2, 3, dtype=torch.int64)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    axes = {n: {0: "batch_size", 1: "sequence_length"} for n in (*names, "last_hidden_state")}
    with torch.no_grad():
        torch.onnx.export(
            model, (tokens, tokens, tokens * 0), path, input_names=names,
            output_names=["last_hidden_state", "pooler_output"], dynamic_axes=axes, opset_version=OPSET)


def export_gpt2(model, path):
    """With the runtime's own tool: past and present are one tensor (2, B, H, P, D) a layer."""
    tools = os.path.dirname(onnxruntime.transformers.__file__)
    sys.path[:0] = [tools, os.path.join(tools, "models", "gpt2")]
    from gpt2_helper import Gpt2Helper, MyGPT2LMHeadModel

    model.__class__ = MyGPT2LMHeadModel
    Gpt2Helper.export_onnx(
        model, torch.device("cpu"), path, input_ids_dtype=torch.int64,
        position_ids_dtype=torch.int64, attention_mask_dtype=torch.int64)


# Fixture: subject, how it is exported, the optimizer's name for the model.
TINY = {
    "gpt2-attention": ("gpt2", export_gpt2, "gpt2"),
    "bert": ("bert", export_bert, "bert"),
    "bart-decoder": ("bart", functools.partial(export_decoder, with_past=False), "bart"),
    "bart-decoder-with-past": ("bart", functools.partial(export_decoder, with_past=True), "bart"),
    "whisper-decoder-with-past": ("whisper", functools.partial(export_decoder, with_past=True), "bart"),
}


def run(fixture):
    subject, export, model_type = TINY[fixture]
    model, parameters = subjects.make(subject, "eager")
    config, published = model.config, subjects.published(subject, model)
    with tempfile.TemporaryDirectory() as scratch:
        path = str(Path(scratch) / "model.onnx")
        export(model, path)
        options = FusionOptions(model_type)
        options.use_multi_head_attention = model_type == "bart"
        optimized = optimize_model(
            path, model_type=model_type, num_heads=config.num_attention_heads,
            hidden_size=config.hidden_size, optimization_options=options, opt_level=0)
        made_by = {p: version(p) for p in ("onnxruntime", "transformers", "torch", "onnx")}
        path = str(Path(scratch) / "optimized.onnx")
        optimized.save_model_to_file(path)
        store.save(path, parameters, "ortopt", fixture, published, made_by)
