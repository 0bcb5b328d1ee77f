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

    def greedy(self, prompts: list[list[int]], count: int) -> tuple[list[list[int]], list[float]]:
        """For each prompt the next count tokens, and the smallest gap between the two best logits on the way.

        The prompts are decoded together, padded on the left.
        """
        length = max(map(len, prompts))
        ids = np.array([[model.END_OF_TEXT_ID] * (length - len(p)) + p for p in prompts], np.int64)
        mask = np.array([[0] * (length - len(p)) + [1] * len(p) for p in prompts], np.int64)
        past = self.empty_past(len(prompts))
        chosen, margins = [], np.full(len(prompts), np.inf)
        for _ in range(count):
            logits, past = self.step(ids, past, mask)
            ranked = np.sort(logits[:, -1], axis=-1)
            margins = np.minimum(margins, ranked[:, -1] - ranked[:, -2])
            ids = logits[:, -1].argmax(-1)[:, None]
            mask = np.concatenate([mask, np.ones_like(ids)], 1)
            chosen.append(ids)
        return np.concatenate(chosen, 1).tolist(), margins.tolist()
