"""Graphs as torch's dynamo exporter writes them, at opset 18 and at 23."""

import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
from transformers import DynamicCache
from transformers.integrations.executorch import sdpa_mask_without_vmap
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

import store
import subjects

# Fixture: its subject.
TINY = {"gpt2": "gpt2", "gpt2-no-past": "gpt2", "llama": "llama", "bert": "bert", "vit": "vit"}


class WithPast(torch.nn.Module):
    """A decoder with past keys and values as plain inputs and outputs."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, position_ids, past):
        result = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=DynamicCache.from_legacy_cache(past),
            use_cache=True,
        )
        return result.logits, result.past_key_values.to_legacy_cache()


class Encoder(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, token_type_ids):
        return self.model(input_ids, attention_mask, token_type_ids).last_hidden_state


class NoPast(torch.nn.Module):
    """A decoder that reads whole texts."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits


class Image(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, pixel_values):
        return self.model(pixel_values).last_hidden_state


WRAPPERS = {"bert": Encoder, "vit": Image, "gpt2-no-past": NoPast}


def inputs_of(model, fixture, batch=2, step=3, past=5):
    """Example arguments, their dynamic dimensions and the names of the graph's inputs and outputs."""
    config = model.config
    sequence = {0: "batch_size", 1: "sequence_length"}
    tokens = torch.arange(batch * step).reshape(batch, step)
    if fixture == "vit":
        return (torch.randn(batch, 3, 32, 32),), ({0: "batch_size"},), ["pixel_values"], ["last_hidden_state"]
    if fixture in WRAPPERS:
        mask = torch.ones(batch, step, dtype=torch.int64)
        mask[1, -1] = 0
        if fixture == "gpt2-no-past":
            return (tokens, mask), (sequence,) * 2, ["input_ids", "attention_mask"], ["logits"]
        names = ["input_ids", "attention_mask", "token_type_ids"]
        return (tokens, mask, torch.zeros_like(tokens)), (sequence,) * 3, names, ["last_hidden_state"]
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    shape = (batch, heads, past, config.hidden_size // config.num_attention_heads)
    layers = range(config.num_hidden_layers)
    cache = tuple((torch.randn(shape), torch.randn(shape)) for _ in layers)
    mask = torch.ones(batch, past + step, dtype=torch.int64)
    positions = torch.arange(past, past + step).expand(batch, step).contiguous()
    past_dims = {0: "batch_size", 2: "past_sequence_length"}
    dims = (sequence, {0: "batch_size", 1: "total_sequence_length"}, sequence,
            tuple((past_dims, past_dims) for _ in layers))
    kinds = [(n, kind) for n in layers for kind in ("key", "value")]
    names = ["input_ids", "attention_mask", "position_ids"]
    names += [f"past_key_values.{n}.{kind}" for n, kind in kinds]
    return (tokens, mask, positions, cache), dims, names, ["logits"] + [f"present.{n}.{kind}" for n, kind in kinds]


# torch.export cannot follow the vmap that transformers makes masks with; this is
# transformers' own mask for exporting.
ALL_MASK_ATTENTION_FUNCTIONS.register("sdpa", sdpa_mask_without_vmap)


def run(fixture, opset):
    subject = TINY[fixture]
    model, seeded = subjects.make(subject, "sdpa")
    arguments, dims, names, outputs = inputs_of(model, fixture)
    with torch.no_grad(), tempfile.TemporaryDirectory() as scratch:
        program = torch.onnx.export(
            WRAPPERS.get(fixture, WithPast)(model),
            arguments,
            dynamo=True,
            opset_version=opset,
            dynamic_shapes=dims,
            input_names=names,
            output_names=outputs,
        )
        path = Path(scratch) / "model.onnx"
        program.save(path)
        made_by = {p: version(p) for p in ("torch", "onnxscript", "transformers", "onnx")}
        store.save(path, seeded, f"dynamo{opset}", fixture, subjects.published(subject, model), made_by)
