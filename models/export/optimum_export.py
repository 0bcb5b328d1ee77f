"""Graphs as optimum draws them: torch's TorchScript exporter, opset 18."""

import tempfile
from importlib.metadata import version
from pathlib import Path

from optimum.exporters.onnx.convert import onnx_export_from_model

import store
import subjects

# Fixture: subject, optimum's task, attention implementation, {file written: name stored}.
TINY = {
    "gpt2": ("gpt2", "text-generation-with-past", "constant_scale", {"model": "gpt2"}),
    "gpt2-eager": ("gpt2", "text-generation-with-past", "eager", {"model": "gpt2-eager"}),
    "gpt2-runtime-scale": ("gpt2", "text-generation-with-past", "sdpa", {"model": "gpt2-runtime-scale"}),
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
}


def versions():
    return {p: version(p) for p in ("optimum-onnx", "transformers", "torch", "onnx")}


def run(fixture, full=False, keep_files=None):
    subject, task, attention, files = (FULL if full else TINY)[fixture]
    model, seeded = subjects.make(subject, attention)
    shapes = {}
    if model.config.model_type == "whisper":  # two mel frames give one encoder position
        shapes["nb_max_frames"] = 2 * model.config.max_source_positions
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(keep_files or scratch)
        onnx_export_from_model(
            model, folder, opset=18, task=task, do_validation=False,
            **shapes,
            no_post_process="decoder_model_merged" not in files and task.startswith(("text2text", "auto")))
        for written, name in files.items():
            path = folder / f"{written}.onnx"
            store.save(
                path, seeded, f"full/{fixture}" if full else "optimum", name,
                subjects.published(subject, model), versions())
