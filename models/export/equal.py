"""Parts of a model that are replaced by equal ones, because an exporter would not write them, or a trace would fix what they do."""

import torch

# Largest difference of outputs, in parts of the largest number; rounding makes some.
NEAR = 1e-5


def replace(model, change, *examples):
    """Lets change() replace parts of a model's classes; its outputs for the examples must stay."""
    with torch.no_grad():
        before = [model(**e)[0] for e in examples]
        change()
        after = [model(**e)[0] for e in examples]
    difference = max((a - b).abs().max().item() for a, b in zip(after, before, strict=True))
    largest = max(b.abs().max().item() for b in before)
    print(f"{model.config.model_type}: parts are replaced, outputs of up to {largest:.2g} differ by {difference:.2g} at most")
    if not difference < NEAR * largest:
        raise SystemExit(f"{model.config.model_type}: with replaced parts it is another model")


def example(model, rows, length):
    """Tokens without meaning."""
    return torch.arange(rows * length).reshape(rows, length) * 7 % model.config.vocab_size


def experts_of(block, normalised=True):
    """The forward of a block of experts, with the loop over all experts: a trace would hold those alone that its example hits."""

    def forward(self, hidden_states):
        shape = hidden_states.shape
        rows = hidden_states.view(-1, shape[-1])
        logits = (self.router if hasattr(self, "router") else self.gate)(rows)
        weights, chosen = torch.topk(torch.softmax(logits, dim=1, dtype=torch.float), self.top_k, dim=-1)
        if getattr(self, "norm_topk_prob", normalised):
            weights = weights / weights.sum(dim=-1, keepdim=True)
        result = torch.zeros_like(rows)
        taken = torch.nn.functional.one_hot(chosen, num_classes=self.num_experts).permute(2, 1, 0)
        for number, expert in enumerate(self.experts):
            place, row = torch.where(taken[number])
            result = result.index_add(0, row, expert(rows[row]) * weights[row, place, None])
        if hasattr(self, "shared_expert"):
            result = result + torch.sigmoid(self.shared_expert_gate(rows)) * self.shared_expert(rows)
        return result.reshape(shape), logits

    block.forward = forward
