"""ONNX Runtime as a peer that encodes: the model as exported, or after the optimizer of onnxruntime.transformers."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import cached
import encode

WAYS = tuple(f"{kind}/{division}" for kind in ("exported", "optimized") for division in encode.DIVISIONS)


class Peer(encode.Encoder):
    def __init__(self, subject, way, threads):
        super().__init__(way, threads)
        name, path = encode.named(subject)
        if self.kind == "optimized":
            folder = cached.folder("ort", name, onnxruntime.__version__ + path, [encode], lambda _, target: optimize(path, target))
            path = folder / "model.onnx"
            self.settings["fused"] = json.loads((folder / "fused.json").read_text())
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.inputs = {i.name: np.int32 if i.type == "tensor(int32)" else np.int64 for i in self.session.get_inputs()}
        self.output = self.session.get_outputs()[0].name
        self.versions["onnxruntime"] = onnxruntime.__version__

    def prepare(self, rows):
        ids, mask, lengths = super().prepare(rows)
        values = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return ({n: values[n].astype(t) for n, t in self.inputs.items()},)

    def compute(self, values):
        return self.session.run([self.output], values)[0]


def optimize(path, folder):
    from onnxruntime.transformers.optimizer import optimize_model

    config = json.loads((Path(path).parent / "config.json").read_text())
    model = optimize_model(str(path), model_type="bert", num_heads=config["num_attention_heads"], hidden_size=config["hidden_size"], opt_level=0)
    model.save_model_to_file(str(folder / "model.onnx"))
    kinds = [n.op_type for n in onnx.load(folder / "model.onnx", load_external_data=False).graph.node if n.domain == "com.microsoft"]
    (folder / "fused.json").write_text(json.dumps({k: kinds.count(k) for k in sorted(set(kinds))}))
