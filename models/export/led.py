"""LED as an exporter can write it for any length of text: what its encoder takes by strides (as_strided) holds for one length in a
trace, and so does whether a text is filled up to a multiple of the window.

Pieces side by side take the place of strides in the class of Transformers, and a text is filled up by 0 positions or more. There is
no global attention, as without global_attention_mask.
"""

import torch

import equal


def windows(pieces, count):
    """Windows of so many pieces, each a piece further: [rows, pieces, width, size] to [rows, windows, count * width, size]."""
    last = 1 - count
    return torch.cat([pieces[:, i : last + i or None] for i in range(count)], dim=2)


def chunk(hidden_states, overlap, onnx_export=False):
    pieces = hidden_states.reshape(hidden_states.size(0), -1, overlap, hidden_states.size(2))
    return windows(pieces, 2)


def weigh(self, probabilities, values, overlap):
    """The sum of each query's values: those of its piece, the one before and the one after."""
    rows, length, heads, size = values.size()
    pieces = probabilities.transpose(1, 2).reshape(rows * heads, -1, overlap, 2 * overlap + 1)
    values = values.transpose(1, 2).reshape(rows * heads, length, size)
    values = torch.nn.functional.pad(values, (0, 0, overlap, overlap), value=-1)
    values = windows(values.reshape(rows * heads, -1, overlap, size), 3)
    sums = torch.einsum("bcwd,bcdh->bcwh", (self._pad_and_diagonalize(pieces), values))
    return sums.reshape(rows, heads, length, size).transpose(1, 2)


class Filled:
    """By how much a text was filled up: the encoder cuts its result at minus this, if it is more than 0."""

    def __init__(self, length):
        self.length = length

    def __gt__(self, other):
        return True

    def __neg__(self):
        return self.length


def fill_up(self, input_ids, attention_mask, inputs_embeds, pad_token_id):
    """To a multiple of the window, by no position where it is one."""
    window, length = max(self.config.attention_window), inputs_embeds.shape[1]
    more = (window - length % window) % window
    padding = torch.full((1, 1), pad_token_id, dtype=torch.long)
    padding = self.embed_tokens(padding).expand(inputs_embeds.shape[0], more, -1)
    ids = None if input_ids is None else torch.nn.functional.pad(input_ids, (0, more), value=pad_token_id)
    return Filled(length), ids, torch.nn.functional.pad(attention_mask, (0, more)), torch.cat([inputs_embeds, padding], dim=1)


def without_strides(model):
    from transformers.models.led import modeling_led as own

    window = max(model.config.attention_window)
    examples = []
    for length in (3, window, 2 * window + 5, 6 * window):
        ids = equal.example(model, 2, length)
        mask = torch.ones_like(ids)
        mask[1, length // 2 + 1 :] = 0
        examples.append({"input_ids": ids, "attention_mask": mask, "decoder_input_ids": ids[:, :3]})

    def change():
        own.LEDEncoderSelfAttention._chunk = staticmethod(chunk)
        own.LEDEncoderSelfAttention._sliding_chunks_matmul_attn_probs_value = weigh
        own.LEDEncoder._pad_to_window_size = fill_up

    equal.replace(model, change, *examples)
