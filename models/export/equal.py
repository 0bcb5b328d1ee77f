"""Parts of a model that are replaced by equal ones, because an exporter would not write them, or a trace would fix what they do."""

import torch

# Largest difference of logits, in parts of the largest logit; rounding makes some.
NEAR = 1e-5


def replace(model, change, *examples):
    """Lets change() replace parts of a model's classes; its logits for the examples must stay."""
    with torch.no_grad():
        before = [model(**e).logits for e in examples]
        change()
        after = [model(**e).logits for e in examples]
    difference = max((a - b).abs().max().item() for a, b in zip(after, before, strict=True))
    largest = max(b.abs().max().item() for b in before)
    print(f"{model.config.model_type}: parts are replaced, logits of up to {largest:.2g} differ by {difference:.2g} at most")
    if not difference < NEAR * largest:
        raise SystemExit(f"{model.config.model_type}: with replaced parts it is another model")


def example(model, rows, length):
    """Tokens without meaning."""
    return torch.arange(rows * length).reshape(rows, length) * 7 % model.config.vocab_size
