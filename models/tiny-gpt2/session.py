"""Runs the exported model with onnxruntime: one call with past, and greedy decoding."""

from pathlib import Path

import numpy as np
import onnxruntime

import model

LAYERS, HEADS = model.CONFIG["n_layer"], model.CONFIG["n_head"]
HEAD_SIZE = model.CONFIG["n_embd"] // HEADS


class Session:
    def __init__(self, path: Path):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # the products are too small to share
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        names = [output.name for output in self.session.get_outputs()]
        self.past_names = [name.replace("present", "past_key_values") for name in names[1:]]

    def empty_past(self, rows: int) -> list[np.ndarray]:
        return [np.zeros((rows, HEADS, 0, HEAD_SIZE), np.float32) for _ in range(2 * LAYERS)]

    def step(self, ids: np.ndarray, past: list[np.ndarray], mask: np.ndarray | None = None):
        """Logits [rows, tokens, vocabulary] and present, for ids [rows, tokens] after past.

        mask [rows, past + tokens] is 0 over padding on the left; positions count the tokens that are not.
        """
        rows, tokens = ids.shape
        if mask is None:
            mask = np.ones((rows, past[0].shape[2] + tokens), np.int64)
        positions = np.maximum(mask.cumsum(1) - 1, 0)[:, -tokens:]
        feed = dict(zip(self.past_names, past), input_ids=ids, attention_mask=mask, position_ids=positions)
        logits, *present = self.session.run(None, feed)
        return logits, present

    def greedy(self, prompt: list[int], count: int) -> tuple[list[int], float]:
        """The next count tokens, and the smallest gap on the way between the best and the second logit."""
        ids, past = np.array([prompt], np.int64), self.empty_past(1)
        tokens: list[int] = []
        margin = np.inf
        for _ in range(count):
            logits, past = self.step(ids, past)
            second, best = np.sort(logits[0, -1])[-2:]
            margin = min(margin, float(best - second))
            tokens.append(int(logits[0, -1].argmax()))
            ids = np.array([[tokens[-1]]], np.int64)
        return tokens, margin
