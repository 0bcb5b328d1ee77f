"""Jamba as an exporter can write it for any length of text: a trace holds as many steps of a recurrence as its example has tokens, and
those experts alone that its example hits.

A scripted loop, which becomes ONNX's Loop, and a loop over all experts take their places in the classes of Transformers. The model has
no states to go on from: there is no cache.
"""

import torch

import equal


@torch.jit.script
def recur(decays, gains, reads):
    """States [rows, channels, size] over tokens, read at each; decays and gains [rows, channels, tokens, size], reads [rows, tokens, size]."""
    state = torch.zeros_like(gains[:, :, 0])
    results = []
    for i in range(gains.size(2)):
        state = decays[:, :, i] * state + gains[:, :, i]
        results.append(torch.matmul(state, reads[:, i, :, None])[:, :, 0])
    return torch.stack(results, -1)


def mix(self, hidden_states, cache_params=None, attention_mask=None):
    """JambaMambaMixer.slow_forward without a cache, but for the loop."""
    length = hidden_states.shape[1]
    inner, gate = self.in_proj(hidden_states).transpose(1, 2).chunk(2, dim=1)
    if attention_mask is not None:
        inner = inner * attention_mask.unsqueeze(1)
    inner = self.act(self.conv1d(inner)[..., :length])
    if attention_mask is not None:
        inner = inner * attention_mask.unsqueeze(1)
    sizes = [self.time_step_rank, self.ssm_state_size, self.ssm_state_size]
    step, writes, reads = torch.split(self.x_proj(inner.transpose(1, 2)), sizes, dim=-1)
    step = torch.nn.functional.softplus(self.dt_proj(self.dt_layernorm(step))).transpose(1, 2)[..., None]
    decays = torch.exp(-torch.exp(self.A_log)[None, :, None] * step)
    gains = step * self.b_layernorm(writes)[:, None] * inner[..., None]
    result = recur(decays, gains, self.c_layernorm(reads)) + inner * self.D[None, :, None]
    return self.out_proj((result * self.act(gate)).transpose(1, 2))


def with_loops(model):
    from transformers.models.jamba import modeling_jamba as own

    examples = []
    for length in (1, 3, 40):
        mask = torch.ones(2, length, dtype=torch.int64)
        mask[1, : length // 2] = 0
        examples.append({"input_ids": equal.example(model, 2, length), "attention_mask": mask})

    def change():
        own.JambaMambaMixer.slow_forward = mix
        equal.experts_of(own.JambaSparseMoeBlock, normalised=False)

    equal.replace(model, change, *examples)
