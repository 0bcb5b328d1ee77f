"""sentence-transformers with its ONNX backend as a peer: it sorts texts by length and pads each run to its longest.

Its tokenizer is left out, as all others' are: texts come as tokens.
"""

import json
import shutil
import time
from pathlib import Path

import numpy as np
import onnxruntime
import sentence_transformers
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Pooling

import cached
import encode

WAYS = tuple(f"onnx/{division}" for division in encode.DIVISIONS if not division.startswith("parallel"))


class Peer(encode.Encoder):
    def __init__(self, subject, way, threads):
        super().__init__(way, threads)
        name, path = encode.named(subject)
        version = sentence_transformers.__version__ + path
        folder = cached.folder("st", name, version, [encode], lambda _, target: write(path, target))
        torch.set_num_threads(threads)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self.model = SentenceTransformer(
            str(folder), backend="onnx", device="cpu", local_files_only=True,
            model_kwargs={"file_name": "model.onnx", "provider": "CPUExecutionProvider", "session_options": options})
        self.model.tokenize = self.features
        self.versions.update(sentence_transformers=sentence_transformers.__version__, onnxruntime=onnxruntime.__version__, torch=torch.__version__)

    def run(self, request):
        vectors, seconds, self.processor = [], [], []
        for rows in request["batches"]:
            size = len(rows) if self.division == "whole" else int(self.division.split("-")[1])
            used, start = time.process_time(), time.perf_counter()
            made = self.model.encode(rows, batch_size=size, show_progress_bar=False, convert_to_numpy=True)
            seconds.append(time.perf_counter() - start)
            self.processor.append(time.process_time() - used)
            vectors += made.astype(np.float64).tolist()
        return vectors, seconds

    def features(self, rows, **_):
        ids, mask, _ = self.prepare(rows)
        return {n: torch.from_numpy(a) for n, a in (("input_ids", ids), ("attention_mask", mask), ("token_type_ids", np.zeros_like(ids)))}


def write(path, folder):
    """A folder as sentence-transformers reads it, with the mean of visible rows as its vector."""
    shutil.copy(Path(path).parent / "config.json", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "model.onnx").symlink_to(path)
    # There has to be a tokenizer; it is not used.
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": config["max_position_embeddings"]}))
    (folder / "1_Pooling").mkdir()
    Pooling(config["hidden_size"], "mean").save(str(folder / "1_Pooling"))
    (folder / "modules.json").write_text(json.dumps([
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]))
