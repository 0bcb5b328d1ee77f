"""Decoders that predict the next token in the place of a placeholder after the last one, as files that any loop over tokens can run: a run
puts the placeholder after the tokens that it is fed (Pad), hands out no keys and values of it, and its logits are the
placeholder's alone.
"""

import argparse
import json
from pathlib import Path

import torch


class Placed(torch.autograd.Function):
    """Tokens (rows, length) with a placeholder after them (rows, length + 1)."""

    @staticmethod
    def forward(ctx, tokens, placeholder):
        return torch.nn.functional.pad(tokens, (0, 1), value=placeholder)

    @staticmethod
    def symbolic(g, tokens, placeholder):
        pads = g.op("Constant", value_t=torch.tensor([0, 0, 0, 1]))
        return g.op("Pad", tokens, pads, g.op("Constant", value_t=torch.tensor(placeholder)))


def place(tokens, placeholder):
    return Placed.apply(tokens, placeholder)


def without(state):
    """Keys or values (rows, heads, length + 1, size) of tokens alone."""
    return state[:, :, :-1]


def heads(x, count):
    """(rows, length, count * size) as (rows, count, length, size)."""
    return x.view(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def attend(query, key, value, *added):
    """softmax(query key^T + what is added) value, heads side by side again."""
    scores = query @ key.transpose(2, 3)
    for term in added:
        scores = scores + term
    result = torch.softmax(scores, dim=-1) @ value
    return result.transpose(1, 2).reshape(result.shape[0], result.shape[2], -1)


def positions(length, past):
    """Of queries (length, 1) and of keys (1, past + length)."""
    return torch.arange(length).unsqueeze(1) + past, torch.arange(past + length).unsqueeze(0)


def hide(seen, like):
    """What is added to scores of keys that are seen or not."""
    return torch.where(seen, torch.zeros((), dtype=like.dtype), torch.full((), torch.finfo(like.dtype).min, dtype=like.dtype))


def write(module, path, inputs, outputs, axes):
    """torch's TorchScript exporter, as optimum calls it. inputs: names and examples."""
    with torch.no_grad():
        torch.onnx.export(
            module, tuple(inputs.values()), str(path), input_names=list(inputs), output_names=outputs, dynamic_axes=axes,
            opset_version=18, do_constant_folding=True, dynamo=False)


def save(model, export, words, folder, template, lowercase):
    """A folder that graft generates with: graphs, configurations, and a tokenizer of a list of words (WordPiece, as BERT's)."""
    from transformers import BertTokenizerFast
    from tokenizers.processors import TemplateProcessing

    folder.mkdir(parents=True, exist_ok=True)
    export(model.eval(), folder)
    (folder / "config.json").write_text(json.dumps(model.config.to_dict(), indent=2, sort_keys=True) + "\n")
    model.generation_config.save_pretrained(folder)
    tokenizer = BertTokenizerFast(vocab_file=str(words), do_lower_case=lowercase)
    named = {name: tokenizer.convert_tokens_to_ids(name) for name in ("[CLS]", "[SEP]")}
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=template, special_tokens=list(named.items()))
    tokenizer.save_pretrained(folder)


def arguments(text):
    """The folder of a checkpoint, and that to write."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("checkpoint", type=Path, help="folder with the weights, config.json and the list of words")
    parser.add_argument("folder", type=Path, help="where to write")
    return parser.parse_args()
