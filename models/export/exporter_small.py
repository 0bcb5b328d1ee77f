"""Lets the exporter of Transformers 5 write a model: a graph a component, and export.json beside them."""

from pathlib import Path

import torch

MANIFEST = "export.json"
STEPS, FUSED, WHOLE = "steps", "fused", "whole"  # prefill and a step of one token; fused for CPUs, of several; one graph without a past

# What is exported: models of generation_families, each in a form.
FOLDERS = {"qwen2-exporter": ("qwen2", STEPS), "qwen2-exporter-fused": ("qwen2", FUSED), "qwen2-exporter-whole": ("qwen2", WHOLE)}


def build(model, directory, form):
    """Writes the components' .onnx, with their weights inside, and export.json into directory."""
    import onnx
    from transformers import GenerationConfig
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    tokens = torch.tensor([[1, 5, 6, 7, 8], [1, 9, 10, 11, 12]])
    sample = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    config = OnnxConfig(dynamic=True, ort_fusions="cpu" if form == FUSED else None)
    if form == WHOLE:
        exported = OnnxExporter().export(model, sample, config)
    else:
        exported = OnnxExporter().export_for_generation(
            model, sample, config, generation_config=GenerationConfig(pad_token_id=0), multi_token_decode=form == FUSED)
    exported.generation_config = None
    exported.save_pretrained(directory)
    for path in Path(directory).glob("*.onnx"):  # each has its weights in a file beside it
        onnx.save(onnx.load(path), path)
