"""Writes models/small: folders as optimum writes them, without their learned weights.

    python generation_export.py [FOLDER...]

Needs requirements.txt, for folders of onnxruntime-genai's builder requirements-genai.txt, and for those of the exporter of
Transformers 5 requirements-exporter.txt. Several folders
hold one model in different shapes (with separate decoders, merged, without past, without position_ids, as
onnxruntime-genai's builder writes it), so that one list of expected tokens serves them all.
"""

import argparse
import gzip
import importlib
import io
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import exporter_small
import genai_small

SMALL = Path(__file__).resolve().parent.parent / "small"


@dataclass(frozen=True)
class Folder:
    """What is exported, how, and which of the files are kept."""

    subject: str
    task: str
    attention: str | None  # None: what the class chooses
    files: tuple
    positions: bool = True  # whether position_ids is an input (decoder-only)
    options: tuple = ()  # of onnxruntime-genai's builder
    form: str = ""  # as the exporter of Transformers 5 writes it

    @property
    def genai(self):
        return self.task in (genai_small.FLOAT32, genai_small.INT4)


CAUSAL, SEQ2SEQ, SPEECH, VISION = (
    "text-generation-with-past", "text2text-generation-with-past", "automatic-speech-recognition-with-past", "image-to-text-with-past")
SEPARATE = ("encoder_model", "decoder_model", "decoder_with_past_model")
MERGED = ("encoder_model", "decoder_model_merged")
ALL = (*SEPARATE, "decoder_model_merged")

FOLDERS = {
    "gpt2": Folder("gpt2", CAUSAL, "sdpa", ("model",)),
    "gpt2-constant-scale": Folder("gpt2", CAUSAL, "constant_scale", ("model",)),
    "gpt2-eager": Folder("gpt2", CAUSAL, "eager", ("model",)),
    "gpt2-merged": Folder("gpt2", "merge", "sdpa", ("decoder_model_merged",)),
    "gpt2-separate": Folder("gpt2", "merge", "constant_scale", ("decoder_model", "decoder_with_past_model")),
    "gpt2-no-past": Folder("gpt2", "text-generation", "sdpa", ("model",)),
    "gpt2-no-positions": Folder("gpt2", CAUSAL, "sdpa", ("model",), positions=False),
    "llama": Folder("llama", CAUSAL, "sdpa", ("model",)),
    "llama-no-positions": Folder("llama", CAUSAL, "sdpa", ("model",), positions=False),
    "llama-mha": Folder("llama-mha", CAUSAL, "sdpa", ("model",)),
    "mpt": Folder("mpt", CAUSAL, "eager", ("model",)),
    "bart": Folder("bart", SEQ2SEQ, "sdpa", SEPARATE),
    "bart-merged": Folder("bart", SEQ2SEQ, "eager", MERGED),
    "distilbart": Folder("distilbart", SEQ2SEQ, "sdpa", ALL),
    "t5": Folder("t5", SEQ2SEQ, "eager", SEPARATE),
    "t5-merged": Folder("t5", SEQ2SEQ, "eager", MERGED),
    "t5-tied": Folder("t5-tied", SEQ2SEQ, "eager", ALL),
    "t5-wide": Folder("t5-wide", SEQ2SEQ, "eager", SEPARATE),
    "marian": Folder("marian", SEQ2SEQ, "sdpa", SEPARATE),
    "marian-merged": Folder("marian", SEQ2SEQ, "sdpa", MERGED),
    "whisper": Folder("whisper", SPEECH, "sdpa", SEPARATE),
    "whisper-merged": Folder("whisper", SPEECH, "sdpa", MERGED),
    "trocr-merged": Folder("trocr", VISION, None, MERGED),
    "donut-merged": Folder("donut", VISION, None, MERGED),
    "moonshine-merged": Folder("moonshine", SPEECH, "sdpa", MERGED),
    "vit-gpt2-merged": Folder("vit-gpt2", VISION, None, MERGED),
    **{f"{subject}-genai": Folder(subject, genai_small.FLOAT32, "eager", ("model",)) for subject in genai_small.SUBJECTS},
    **{f"{subject}-genai-int4": Folder(subject, genai_small.INT4, "eager", ("model",), options=options)
       for subject, options in genai_small.QUANTISED.items()},
    **{name: Folder(subject, "exporter", "eager" if subject == "gpt-oss" else "sdpa", exporter_small.files(name), form=form)
       for name, (subject, form) in exporter_small.FOLDERS.items()},
}


def folder_of(name):
    """The folder of a name: one of FOLDERS, or that of a family, which has the name of its model."""
    if name in FOLDERS:
        return FOLDERS[name]
    import generation_families

    made = generation_families.MAKERS[name]()
    eager = name in generation_families.EAGER
    if made.config.model_type == "vision-encoder-decoder":
        return Folder(name, VISION, None, SEPARATE)
    if made.config.model_type == "moonshine":
        return Folder(name, SPEECH, "sdpa", SEPARATE)
    if made.config.is_encoder_decoder:
        return Folder(name, SEQ2SEQ, "eager" if eager else "sdpa", SEPARATE)
    return Folder(name, CAUSAL, "eager" if eager else "sdpa", ("model",))


def names():
    import generation_families

    return [*FOLDERS, *generation_families.MAKERS]


def without_positions(model, task):
    """optimum's configuration of a decoder that takes no position_ids, as its releases before 1.14 wrote it."""
    from optimum.exporters.tasks import TasksManager

    make = TasksManager.get_exporter_config_constructor(
        exporter="onnx", model=model, task=task, library_name="transformers")
    base = make.func

    class WithoutPositions(base):
        @property
        def inputs(self):
            return {name: axes for name, axes in super().inputs.items() if name != "position_ids"}

    return {"model": WithoutPositions(model.config, task=task.removesuffix("-with-past"), use_past=True,
                                      use_past_in_inputs=True)}


def write(folder, model, directory):
    """Lets an exporter write the folder's models into directory."""
    if folder.genai:
        genai_small.build(model, directory, folder.task, folder.options)
        return
    if folder.form:
        exporter_small.build(model, directory, folder.form)
        return
    from optimum.exporters.onnx.convert import onnx_export_from_model

    import generation_families
    import optimum_export

    own = generation_families.own_export(model.config.model_type)
    if own:
        importlib.import_module(own).export(model, directory)
        return
    if folder.task == "merge":
        optimum_export.merge(model, directory, "text-generation")
        return
    options = {}
    if model.config.model_type == "whisper":  # two mel frames give one encoder position
        options["nb_max_frames"] = 2 * model.config.max_source_positions
    if not folder.positions:
        options["custom_onnx_configs"] = without_positions(model, folder.task)
    options.update(generation_families.onnx_configs(model, folder.task))
    if folder.task in (SEQ2SEQ, SPEECH, VISION):
        options["no_post_process"] = "decoder_model_merged" not in folder.files
    onnx_export_from_model(model, directory, opset=18, task=folder.task, do_validation=False, **options)


def pack(path, drawn, seed, limit=1024):
    """The gzipped ModelProto at path without its learned weights, and how many parameters it has.

    limit: of a tensor of floats that is no parameter, such as a table of positions.
    """
    import learned
    import onnx
    import store

    model = onnx.load(path)
    store.strip(model)
    parameters, kept = learned.take_out(model, drawn, seed=seed)
    for t in kept:
        if t.data_type in learned.FLOATS and t.count > limit and not t.even:
            raise SystemExit(f"{path.name}: tensor {t.name} {t.dims} is neither a parameter nor a small constant")
    raw = model.SerializeToString(deterministic=True)
    found = store.MACHINE_PATHS.search(raw)
    if found:
        raise SystemExit(f"{path.name}: contains {raw[found.start() - 40 : found.end() + 40]!r}")
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0, compresslevel=9) as stream:
        stream.write(raw)
    return buffer.getvalue(), len(parameters)


def dump(value):
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def run(name):
    import generation_families
    import generation_subjects
    import scale

    folder = folder_of(name)
    attention = folder.attention if folder.attention in ("eager", None) else scale.choose(folder.attention)
    model, drawn = generation_subjects.make(folder.subject, attention)
    target = SMALL / name
    target.mkdir(parents=True, exist_ok=True)
    for old in target.iterdir():
        old.unlink()
    config, generation = generation_subjects.published(folder.subject, model)
    own = generation_families.own_export(model.config.model_type)
    with tempfile.TemporaryDirectory() as scratch:
        write(folder, model, Path(scratch))
        for file in folder.files:
            limit = 1024 if folder.subject in generation_subjects.SUBJECTS and not folder.genai else 16384
            packed, parameters = pack(Path(scratch) / f"{file}.onnx", drawn, generation_subjects.SEED, limit)
            (target / f"{file}.onnx.gz").write_bytes(packed)
            print(f"{name}/{file}: {parameters} of {len(drawn)} parameters, {len(packed)} bytes")
        beside = genai_small.CONFIG if folder.genai else exporter_small.MANIFEST if folder.form else None
        if beside:  # and the files of the checkpoint, as the release for optimum writes them
            (target / beside).write_bytes((Path(scratch) / beside).read_bytes())
            for file, value in (("config.json", config), ("generation_config.json", generation)):
                other = SMALL / folder.subject / file
                (target / file).write_text(other.read_text() if other.exists() else dump(value))
            record(name, folder, (*(("onnxruntime-genai",) if folder.genai else ("onnxscript",)), "transformers", "torch", "onnx"))
            return
    (target / "config.json").write_text(dump(config))
    (target / "generation_config.json").write_text(dump(generation))
    record(name, folder, ("transformers", "torch", "onnx") if own else ("optimum-onnx", "transformers", "torch", "onnx"))


def record(name, folder, packages):
    import generation_subjects

    path = SMALL / "manifest.json"
    entries = json.loads(path.read_text())["folders"] if path.exists() else []
    entries = [e for e in entries if e["name"] != name and e["name"] in names()]
    entries.append({
        "name": name,
        "model": folder.subject,
        "files": list(folder.files),
        **({} if folder.subject in generation_subjects.SUBJECTS else {"family": True}),
        **({"bits": 4} if folder.task == genai_small.INT4 else {}),
        "made_by": {p: version(p) for p in packages},
    })
    entries.sort(key=lambda e: e["name"])
    path.write_text(json.dumps({"schema_version": 1, "folders": entries}, indent=1) + "\n")


def main():
    # Merging iterates over sets of names: fix their order.
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="*", help="which folders; all when none is named")
    for name in parser.parse_args().folder or names():
        run(name)


if __name__ == "__main__":
    main()
