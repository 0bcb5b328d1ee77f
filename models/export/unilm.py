"""UniLM (Dong et al. 2019) as a sequence-to-sequence model: BERT whose prompt, of one segment, sees all of itself, and whose output, of
another segment, sees what is before it. The next token is predicted in the place of a [MASK] after the last one.

    python unilm.py CHECKPOINT FOLDER

writes a folder of a checkpoint as published: pytorch_model.bin, config.json, vocab.txt.

Model is the published architecture in plain PyTorch, without a cache: it computes the whole text again for each token, and Transformers'
generate searches with it. Exported computes the same of a past. A past of no tokens says that the tokens fed are the prompt.
"""

import json
import math
import re

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

import equal
import placeholder


class Config(PretrainedConfig):
    """Fields of a published config.json of UniLM 1 (type 4 and 5 are its source's and target's segments)."""

    model_type = "unilm"

    def __init__(self, vocab_size=28996, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072,
                 max_position_embeddings=512, type_vocab_size=6, source_type_id=4, target_type_id=5, mask_token_id=103,
                 layer_norm_eps=1e-5, **rest):
        super().__init__(**rest)
        self.vocab_size, self.hidden_size, self.num_hidden_layers = vocab_size, hidden_size, num_hidden_layers
        self.num_attention_heads, self.intermediate_size = num_attention_heads, intermediate_size
        self.max_position_embeddings, self.type_vocab_size = max_position_embeddings, type_vocab_size
        self.source_type_id, self.target_type_id, self.mask_token_id = source_type_id, target_type_id, mask_token_id
        self.layer_norm_eps = layer_norm_eps


class Layer(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config.hidden_size
        self.query, self.key, self.value, self.dense = (torch.nn.Linear(width, width) for _ in range(4))
        self.attention_norm = torch.nn.LayerNorm(width, config.layer_norm_eps)
        self.intermediate = torch.nn.Linear(width, config.intermediate_size)
        self.output = torch.nn.Linear(config.intermediate_size, width)
        self.norm = torch.nn.LayerNorm(width, config.layer_norm_eps)

    def project(self, hidden, count):
        """Queries, keys (without their bias, which a softmax does not see) and values."""
        key = torch.nn.functional.linear(hidden, self.key.weight)
        size = self.query.out_features // count
        return (placeholder.heads(x, count) for x in (self.query(hidden) / math.sqrt(size), key, self.value(hidden)))

    def finish(self, attended, hidden):
        hidden = self.attention_norm(self.dense(attended) + hidden)
        return self.norm(self.output(torch.nn.functional.gelu(self.intermediate(hidden))) + hidden)


class Model(PreTrainedModel, GenerationMixin):
    config_class = Config

    def __init__(self, config):
        super().__init__(config)
        width = config.hidden_size
        self.word_embeddings = torch.nn.Embedding(config.vocab_size, width)
        self.position_embeddings = torch.nn.Embedding(config.max_position_embeddings, width)
        self.token_type_embeddings = torch.nn.Embedding(config.type_vocab_size, width)
        self.embeddings_norm = torch.nn.LayerNorm(width, config.layer_norm_eps)
        self.layers = torch.nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.transform = torch.nn.Linear(width, width)
        self.transform_norm = torch.nn.LayerNorm(width, config.layer_norm_eps)
        self.bias = torch.nn.Parameter(torch.zeros(config.vocab_size))
        self.post_init()

    def get_input_embeddings(self):
        return self.word_embeddings

    def embed(self, tokens, places, types):
        embedded = self.word_embeddings(tokens) + self.position_embeddings.weight[places] + self.token_type_embeddings.weight[types]
        return self.embeddings_norm(embedded)

    def head(self, hidden):
        hidden = self.transform_norm(torch.nn.functional.gelu(self.transform(hidden)))
        return hidden @ self.word_embeddings.weight.T + self.bias

    def prepare_inputs_for_generation(self, input_ids, prompt_length=None, attention_mask=None, **rest):
        return {"input_ids": input_ids, "prompt_length": prompt_length}

    def forward(self, input_ids, prompt_length=None, return_dict=True, **rest):
        """Logits (rows, 1, tokens) of what follows texts of prompts of one length: all of the texts where it is not given."""
        rows, length = input_ids.shape
        prompt = length if prompt_length is None else prompt_length
        mask = torch.full((rows, 1), self.config.mask_token_id)
        places = torch.arange(length + 1)
        types = torch.where(places < prompt, self.config.source_type_id, self.config.target_type_id)
        hidden = self.embed(torch.cat([input_ids, mask], dim=1), places, types)
        seen = (places[None] <= places[:, None]) | (places[None] < prompt)
        hidden_keys = (1.0 - seen.to(hidden.dtype)) * -10000.0
        for layer in self.layers:
            attended = placeholder.attend(*layer.project(hidden, self.config.num_attention_heads), hidden_keys)
            hidden = layer.finish(attended, hidden)
        return CausalLMOutput(logits=self.head(hidden[:, -1:]))


class Exported(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, *past):
        m, config, states = self.model, self.model.config, []
        tokens = placeholder.place(input_ids, config.mask_token_id)
        before = past[0].shape[2]
        queries, keys = placeholder.positions(tokens.shape[1], before)
        # The tokens of a prompt: all but the placeholder where there is no past, else none.
        prompt = torch.where(queries[0, 0] > 0, 0, queries[-1, 0])
        types = torch.where(queries.squeeze(1) < prompt, config.source_type_id, config.target_type_id)
        hidden = m.embed(tokens, queries.squeeze(1), types)
        mask = placeholder.hide((keys <= queries) | (keys < prompt), hidden)
        for i, layer in enumerate(m.layers):
            query, key, value = layer.project(hidden, config.num_attention_heads)
            key, value = (torch.cat([old, new], dim=2) for old, new in zip(past[2 * i : 2 * i + 2], (key, value)))
            states += [placeholder.without(key), placeholder.without(value)]
            hidden = layer.finish(placeholder.attend(query, key, value, mask), hidden)
        return m.head(hidden[:, -1:]), *states


AutoConfig.register(Config.model_type, Config)
AutoModelForCausalLM.register(Config, Model)


def empty(config, rows):
    size = config.hidden_size // config.num_attention_heads
    return [torch.zeros(rows, config.num_attention_heads, 0, size)] * (2 * config.num_hidden_layers)


def check(model, exported):
    """The same logits after a prompt, and after tokens that follow it."""
    with torch.no_grad():
        for length in (1, 2, 9):
            text = equal.example(model, 2, length)
            logits, *states = exported(text, *empty(model.config, 2))
            for step in range(3):
                want = model(text, prompt_length=length).logits
                difference, largest = (logits - want).abs().max().item(), want.abs().max().item()
                if not difference < equal.NEAR * largest:
                    raise SystemExit(f"unilm: with a past it is another model: logits of up to {largest:.3g} differ by {difference:.3g}")
                token = text[:, :1] + step + 3
                text = torch.cat([text, token], dim=1)
                logits, *states = exported(token, *states)


def export(model, folder):
    """model.onnx, with the names of optimum."""
    exported = Exported(model).eval()
    check(model, exported)
    config = model.config
    size = config.hidden_size // config.num_attention_heads
    pairs = [f"{i}.{part}" for i in range(config.num_hidden_layers) for part in ("key", "value")]
    past = [torch.ones(2, config.num_attention_heads, 5, size)] * len(pairs)
    placeholder.write(
        exported, folder / "model.onnx",
        {"input_ids": equal.example(model, 2, 3), **{f"past_key_values.{p}": s for p, s in zip(pairs, past)}},
        ["logits", *(f"present.{p}" for p in pairs)],
        {"input_ids": {0: "batch_size", 1: "sequence_length"}, "logits": {0: "batch_size"},
         **{f"past_key_values.{p}": {0: "batch_size", 2: "past_sequence_length"} for p in pairs},
         **{f"present.{p}": {0: "batch_size", 2: "past_sequence_length + sequence_length"} for p in pairs}})


# Names of the published checkpoints' parameters, and those of Model.
PUBLISHED = (
    (r"^bert\.embeddings\.LayerNorm", "embeddings_norm"), (r"^bert\.embeddings\.", ""), (r"^bert\.encoder\.layer\.", "layers."),
    (r"attention\.self\.", ""), (r"attention\.output\.LayerNorm", "attention_norm"), (r"attention\.output\.dense", "dense"),
    (r"intermediate\.dense", "intermediate"), (r"output\.dense", "output"), (r"output\.LayerNorm", "norm"),
    (r"^cls\.predictions\.transform\.dense", "transform"), (r"^cls\.predictions\.transform\.LayerNorm", "transform_norm"),
    (r"^cls\.predictions\.bias", "bias"), (r"\.gamma$", ".weight"), (r"\.beta$", ".bias"))


def load(folder):
    """A published checkpoint. What is not needed to generate (a pooler, a head for pairs of sentences) is left out."""
    fields = json.loads((folder / "config.json").read_text())
    if fields.get("rel_pos_bins") or fields.get("relax_projection") or fields.get("new_pos_ids") or fields.get("hidden_act", "gelu") != "gelu":
        raise SystemExit(f"{folder}: config.json asks for relative positions, projections of their own or another activation than gelu, which this does not write")
    words = (folder / "vocab.txt").read_text().split("\n")
    ends = dict(eos_token_id=words.index("[SEP]"), pad_token_id=words.index("[PAD]"), bos_token_id=words.index("[CLS]"))
    model = Model(Config(**{k: v for k, v in fields.items() if k != "model_type"} | ends | {"mask_token_id": words.index("[MASK]")}))
    model.generation_config.update(**ends)
    named = {}
    for name, value in torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True).items():
        for pattern, to in PUBLISHED:
            name = re.sub(pattern, to, name)
        named[name] = value
    missing = sorted(set(model.state_dict()) - set(named))
    if missing:
        raise SystemExit(f"{folder}: pytorch_model.bin has no {', '.join(missing[:5])}")
    model.load_state_dict({name: named[name] for name in model.state_dict()})
    return model


def main():
    asked = placeholder.arguments(__doc__)
    uncased = "uncased" in asked.checkpoint.name
    placeholder.save(load(asked.checkpoint), export, asked.checkpoint / "vocab.txt", asked.folder, "[CLS] $A [SEP]", lowercase=uncased)


if __name__ == "__main__":
    main()
