"""Lets the exporter of Transformers 5 write a model: a graph a component, and export.json beside them."""

from pathlib import Path

import torch

MANIFEST = "export.json"
STEPS, FUSED, WHOLE = "steps", "fused", "whole"  # prefill and a step of one token; fused for CPUs, of several; one graph without a past

# What is exported: models of generation_subjects and generation_families, each in a form.
# Transformers 5 ties the head of every T5, so that those of models/small that are not tied would be other models.
READERS = ("bart", "marian", "t5-tied", "m2m100", "pegasus", "whisper")
FOLDERS = {"qwen2-exporter": ("qwen2", STEPS), "qwen2-exporter-fused": ("qwen2", FUSED), "qwen2-exporter-whole": ("qwen2", WHOLE),
           **{f"{name}-exporter": (name, STEPS) for name in (*READERS, "falcon", "gpt-oss")}}


def files(name):
    """The graphs of a folder, without ".onnx"."""
    subject, form = FOLDERS[name]
    if form == WHOLE:
        return ("model",)
    return ("encoder", "prefill", "decode") if subject in READERS else ("prefill", "decode")


def sample_of(model):
    """What a model reads, two of it."""
    if model.config.model_type == "whisper":
        return {"input_features": torch.zeros(2, model.config.num_mel_bins, 2 * model.config.max_source_positions)}
    if model.config.model_type == "moonshine":
        return {"input_values": torch.randn(2, 4000)}
    tokens = torch.tensor([[1, 5, 6, 7, 8], [1, 9, 10, 11, 12]])
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def build(model, directory, form):
    """Writes the components' .onnx, with their weights inside, and export.json into directory."""
    import onnx
    from transformers import GenerationConfig
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    exporter, config = OnnxExporter(), OnnxConfig(dynamic=True, ort_fusions="cpu" if form == FUSED else None)
    sample = sample_of(model)
    if form == WHOLE:
        exported = exporter.export(model, sample, config)
    else:
        start = {}
        if model.config.is_encoder_decoder:  # of one token, lengths of prompts and of the first past would be constants
            start = {"decoder_input_ids": torch.tensor([[3, 5, 6], [3, 7, 8]])}
        exported = exporter.export_for_generation(
            model, {**sample, **start}, config, generation_config=GenerationConfig(pad_token_id=0),
            multi_token_decode=form == FUSED)
        if start and "encoder" not in exported.components:
            exported.components["encoder"] = exporter.export(model.get_encoder(), sample, config).components["model"]
    exported.generation_config = None
    exported.save_pretrained(directory)
    for path in Path(directory).glob("*.onnx"):  # each has its weights in a file beside it
        onnx.save(onnx.load(path), path)
