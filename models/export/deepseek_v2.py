"""DeepSeek-V2 as an exporter can write it: ONNX has no complex numbers, of which its rotary embedding is made, and a trace
would hold those experts alone that its example hits.

Real numbers and a loop over all experts take their places in the classes of Transformers.
"""

import torch

import equal


class Angles(tuple):
    """Cosines and sines, which the attention moves to the device of its queries."""

    def to(self, device):
        return self


def angles(self, x, position_ids):
    """In place of torch.polar: each angle twice, for the two features that it turns."""
    turns = position_ids[:, :, None].float() * self.inv_freq[None, None, :].float()
    turns = turns.repeat_interleave(2, dim=-1)
    return Angles((turns.cos() * self.attention_scaling, turns.sin() * self.attention_scaling))


def turned(x):
    """Each pair of features by a right angle."""
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def rotate(query, key, angles):
    """In place of a product of complex numbers, whose parts are features side by side."""
    cos, sin = (a.unsqueeze(1) for a in angles)
    return query * cos + turned(query) * sin, key * cos + turned(key) * sin


def experts(self, rows, chosen, weights):
    result = torch.zeros_like(rows)
    taken = torch.nn.functional.one_hot(chosen, num_classes=len(self.experts)).permute(2, 0, 1)
    for number, expert in enumerate(self.experts):
        row, place = torch.where(taken[number])
        result = result.index_add(0, row, expert(rows[row]) * weights[row, place, None])
    return result


def make_real(model):
    from transformers.models.deepseek_v2 import modeling_deepseek_v2 as own

    def change():
        own.DeepseekV2RotaryEmbedding.forward = angles
        own.apply_rotary_emb = rotate
        own.DeepseekV2MoE.moe = experts

    equal.replace(model, change, {"input_ids": equal.example(model, 2, model.config.max_position_embeddings)})
