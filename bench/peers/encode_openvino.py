"""OpenVINO as a peer that encodes, in float32."""

import threading

import numpy as np
import openvino

import encode

WAYS = tuple(f"float32/{division}" for division in encode.DIVISIONS)


class Peer(encode.Encoder):
    def __init__(self, subject, way, threads):
        super().__init__(way, threads)
        _, path = encode.named(subject)
        core = openvino.Core()
        options = {
            "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": self.runs,
            "PERFORMANCE_HINT": "THROUGHPUT" if self.runs > 1 else "LATENCY",
        }
        self.model = core.compile_model(core.read_model(path), "CPU", options)
        self.names = [i.get_any_name() for i in self.model.inputs]
        self.local = threading.local()
        self.settings.update(options)
        self.versions["openvino"] = openvino.__version__

    def prepare(self, rows):
        ids, mask, _ = super().prepare(rows)
        values = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return ({n: values[n] for n in self.names},)

    def compute(self, values):
        if not hasattr(self.local, "request"):
            self.local.request = self.model.create_infer_request()
        self.local.request.infer(values, share_inputs=True)
        # A copy: the next run of this thread writes to the same memory.
        return self.local.request.get_output_tensor(0).data.copy()
