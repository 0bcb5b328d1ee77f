"""Graphs as optimum writes them: torch's TorchScript exporter, opset 18."""

import tempfile
from importlib.metadata import version
from pathlib import Path

import onnx
from optimum.exporters.onnx.convert import export_models, onnx_export_from_model
from optimum.exporters.tasks import TasksManager

import store
import subjects

# Fixture: subject, optimum's task, attention implementation, {file written: name stored}.
TINY = {
    "gpt2": ("gpt2", "text-generation-with-past", "constant_scale", {"model": "gpt2"}),
    "gpt2-eager": ("gpt2", "text-generation-with-past", "eager", {"model": "gpt2-eager"}),
    "gpt2-runtime-scale": ("gpt2", "text-generation-with-past", "sdpa", {"model": "gpt2-runtime-scale"}),
    "gpt2-merged": ("gpt2", "text-generation", "constant_scale", {"decoder_model_merged": "gpt2-merged"}),
    "llama": ("llama", "text-generation-with-past", "sdpa", {"model": "llama"}),
    "bert": ("bert", "feature-extraction", "sdpa", {"model": "bert"}),
}
for _subject, _task in (
    ("bart", "text2text-generation-with-past"),
    ("t5", "text2text-generation-with-past"),
    ("whisper", "automatic-speech-recognition-with-past"),
):
    TINY[_subject] = (_subject, _task, "eager" if _subject == "t5" else "sdpa", {
        "encoder_model": f"{_subject}-encoder",
        "decoder_model": f"{_subject}-decoder",
        "decoder_with_past_model": f"{_subject}-decoder-with-past",
        "decoder_model_merged": f"{_subject}-decoder-merged",
    })

_GENERATE = {n: n for n in ("encoder_model", "decoder_model", "decoder_with_past_model")}
FULL = {
    "gpt2-124m": ("gpt2-124m", "text-generation-with-past", "constant_scale", {"model": "model"}),
    "gpt2-124m-runtime-scale": ("gpt2-124m", "text-generation-with-past", "sdpa", {"model": "model"}),
    "llama-135m": ("llama-135m", "text-generation-with-past", "sdpa", {"model": "model"}),
    "bart-large": ("bart-large", "text2text-generation-with-past", "sdpa", _GENERATE),
    "t5-base": ("t5-base", "text2text-generation-with-past", "eager", _GENERATE),
    "whisper-small": ("whisper-small", "automatic-speech-recognition-with-past", "sdpa", _GENERATE),
    "whisper-tiny": ("whisper-tiny", "automatic-speech-recognition-with-past", "sdpa", _GENERATE),
}


def versions():
    return {p: version(p) for p in ("optimum-onnx", "transformers", "torch", "onnx")}


def merge(model, folder, task):
    """A decoder without and one with past, and the two merged.

    For a model without encoder optimum writes one graph with past; given one
    configuration for each of two graphs, it still merges them. It takes an input
    that both have from the graph without past, where the mask is as long as the
    tokens are; for the merged graph its length is that of the graph with past.
    """
    make = TasksManager.get_exporter_config_constructor(
        exporter="onnx", model=model, task=task, library_name="transformers")
    pair = {
        name: (model, make(model.config, task=task, use_past=True, use_past_in_inputs=past))
        for name, past in (("decoder_model", False), ("decoder_with_past_model", True))
    }
    names = [f"{name}.onnx" for name in pair]
    export_models(pair, folder, opset=18, output_names=names)
    pair["decoder_model"][1].post_process_exported_models(folder, pair, names)
    path = folder / "decoder_model_merged.onnx"
    merged = onnx.load(path)
    inputs = {i.name: i for i in onnx.load(folder / names[1]).graph.input}
    for i in merged.graph.input:
        if i.name == "attention_mask":
            i.CopyFrom(inputs[i.name])
    onnx.save(merged, path)


def run(fixture, full=False, keep_files=None):
    subject, task, attention, files = (FULL if full else TINY)[fixture]
    model, seeded = subjects.make(subject, attention)
    shapes = {}
    if model.config.model_type == "whisper":  # two mel frames give one encoder position
        shapes["nb_max_frames"] = 2 * model.config.max_source_positions
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(keep_files or scratch)
        if task == "text-generation":
            merge(model, folder, task)
        else:
            onnx_export_from_model(
                model, folder, opset=18, task=task, do_validation=False,
                **shapes,
                no_post_process="decoder_model_merged" not in files and task.startswith(("text2text", "auto")))
        for written, name in files.items():
            path = folder / f"{written}.onnx"
            store.save(
                path, seeded, f"full/{fixture}" if full else "optimum", name,
                subjects.published(subject, model), versions())
