"""Writes models/encoders/decoders: folders of decoders that embed and of BGE-M3, as people save and export them, with what their libraries make of texts.

    pip install sentence-transformers==6.2.0 transformers==5.24.0 onnx
    python models/encoders/decoders.py

Weights are from a seed, as folders.py says. The folder of Qwen3-Embedding: padding on the left, the last token's state, a token after each text,
prompts; its graph has an empty past. That of EmbeddingGemma: attention to both sides, the mean, two Dense, prompts. That of BGE-M3: its graph has
the outputs dense_vecs, sparse_vecs and colbert_vecs, of which the values are made as M3Embedder of FlagEmbedding makes its results: one vector of the
first token, the greatest weight of each token that is not special, and a vector of each token but the first; the last two are made in torch here.
"""

import sys
import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn
from transformers import PreTrainedTokenizerFast

import folders
from folders import blobs, keep, seeded

HERE = Path(__file__).resolve().parent / "decoders"
TEXTS = ["the cat sat on a mat", "a dog ran far away under the old bridge and sat on the mat", "cat", "  the cat  "]
WORDS = "<pad> <unk> <bos> <eos> the cat sat on a mat and dog ran far away under old bridge query : Instruct".split()
WIDTH = 16


def tokenizer(single, **more):
    t = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    t.post_processor = processors.TemplateProcessing(single=single, pair=single + " $B:1", special_tokens=[("<bos>", 2), ("<eos>", 3)])
    return PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<pad>", unk_token="<unk>", bos_token="<bos>", eos_token="<eos>",
                                   model_max_length=40, **more)


def export(module, path, inputs, outputs, axes):
    torch.onnx.export(module.eval(), tuple(inputs.values()), str(path), input_names=list(inputs), output_names=outputs, dynamic_axes=axes,
                      opset_version=17, dynamo=False)


class Past(nn.Module):
    """A decoder with a past among its inputs, as onnx-community exports Qwen3-Embedding."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, position_ids, key, value):
        from transformers import DynamicCache

        cache = DynamicCache(config=self.model.config)
        cache.update(key, value, 0)
        states = self.model(input_ids=input_ids, attention_mask=mask(attention_mask, input_ids, key.shape[2]), position_ids=position_ids,
                            past_key_values=cache, use_cache=True).last_hidden_state
        return states, cache.layers[0].keys, cache.layers[0].values


def mask(attention_mask, input_ids, past):
    """Causal and padding, as numbers that are added to scores."""
    n = input_ids.shape[1]
    at = torch.arange(attention_mask.shape[1])
    seen = (at[None, :] <= (torch.arange(n) + past)[:, None])[None, None] & (attention_mask[:, None, None, :] > 0)
    return torch.where(seen, 0.0, torch.finfo(torch.float32).min)


def save(name, model, t, modules, prompts, graph, gives=""):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Transformer

    with tempfile.TemporaryDirectory() as base, tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(base)
        t.save_pretrained(base)
        SentenceTransformer(modules=[Transformer(base), *modules], prompts=prompts, device="cpu").save(folder)
        again = SentenceTransformer(folder, device="cpu")
        found = {"name": name, "graph": graph, "files": keep(folder), "values": {}}
        for prompt in ["", *prompts]:
            found["values"][prompt] = folders.rounded(again.encode(TEXTS, prompt_name=prompt or None) if prompt else again.encode(TEXTS, prompt=""))
        return found


def qwen3():
    from sentence_transformers.models import Normalize, Pooling
    from transformers import Qwen3Config, Qwen3Model

    model = seeded(Qwen3Model(Qwen3Config(vocab_size=len(WORDS), hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
                                          head_dim=8, intermediate_size=24, max_position_embeddings=64, attn_implementation="eager", pad_token_id=0)))
    ids = torch.tensor([[4, 5, 6], [4, 5, 3]])
    n, empty = ids.shape, torch.zeros(2, 1, 2, 8)
    inputs = {"input_ids": ids, "attention_mask": torch.ones(2, 5, dtype=torch.int64), "position_ids": torch.arange(2, 5).expand(n).contiguous(),
              "past_key_values.0.key": empty, "past_key_values.0.value": empty}
    past = {0: "batch_size", 2: "past_sequence_length"}
    axes = {"input_ids": {0: "batch_size", 1: "sequence_length"}, "attention_mask": {0: "batch_size", 1: "total_sequence_length"},
            "position_ids": {0: "batch_size", 1: "sequence_length"}, "last_hidden_state": {0: "batch_size", 1: "sequence_length"},
            "past_key_values.0.key": past, "past_key_values.0.value": past, "present.0.key": {0: "batch_size", 2: "total_sequence_length"},
            "present.0.value": {0: "batch_size", 2: "total_sequence_length"}}
    export(Past(model), HERE / "qwen3.onnx", inputs, ["last_hidden_state", "present.0.key", "present.0.value"], axes)
    prompts = {"query": "Instruct : the old bridge query : ", "document": ""}
    return save("Qwen3-Embedding", model, tokenizer("$A <eos>", padding_side="left"), [Pooling(WIDTH, pooling_mode="lasttoken"), Normalize()],
                prompts, "qwen3.onnx")


def gemma():
    from sentence_transformers.models import Dense, Normalize, Pooling
    from transformers import Gemma3TextConfig, Gemma3TextModel

    model = seeded(Gemma3TextModel(Gemma3TextConfig(
        vocab_size=len(WORDS), hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=8, intermediate_size=24,
        max_position_embeddings=64, sliding_window=8, layer_types=["sliding_attention", "full_attention"], use_bidirectional_attention=True,
        attn_implementation="eager", pad_token_id=0)))

    class Only(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask):
            at = torch.arange(input_ids.shape[1])
            seen = (attention_mask[:, None, None, :] > 0).expand(-1, 1, input_ids.shape[1], -1)
            near = (at[:, None] - at[None, :]).abs() < model.config.sliding_window
            masks = {"full_attention": seen, "sliding_attention": seen & near[None, None]}
            masks = {k: torch.where(m, 0.0, torch.finfo(torch.float32).min) for k, m in masks.items()}
            return self.model(input_ids=input_ids, attention_mask=masks).last_hidden_state

    ids = torch.tensor([[2, 5, 6, 3]])
    axes = {n: {0: "batch_size", 1: "sequence_length"} for n in ("input_ids", "attention_mask", "last_hidden_state")}
    export(Only(), HERE / "gemma.onnx", {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, ["last_hidden_state"], axes)
    torch.manual_seed(0)
    dense = [Dense(WIDTH, 24, bias=False, activation_function=nn.Identity()), Dense(24, WIDTH, bias=False, activation_function=nn.Identity())]
    prompts = {"query": "Instruct : query : ", "document": "old : "}
    return save("EmbeddingGemma", model, tokenizer("<bos> $A <eos>", padding_side="right"),
                [Pooling(WIDTH, pooling_mode="mean"), *dense, Normalize()], prompts, "gemma.onnx")


def m3():
    from transformers import XLMRobertaConfig, XLMRobertaModel

    model = seeded(XLMRobertaModel(XLMRobertaConfig(vocab_size=len(WORDS), hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=2,
                                                    intermediate_size=24, max_position_embeddings=64, pad_token_id=0, type_vocab_size=1,
                                                    attn_implementation="eager"), add_pooling_layer=False))
    torch.manual_seed(0)
    sparse, late = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, 12)

    class Three(nn.Module):
        def __init__(self):
            super().__init__()
            self.model, self.sparse, self.late = model, sparse, late

        def forward(self, input_ids, attention_mask):
            states = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            vectors = self.late(states[:, 1:]) * attention_mask[:, 1:, None]
            return nn.functional.normalize(states[:, 0], dim=-1), torch.relu(self.sparse(states)), nn.functional.normalize(vectors, dim=-1)

    names = ["dense_vecs", "sparse_vecs", "colbert_vecs"]
    ids = torch.tensor([[2, 5, 6, 3]])
    axes = {n: {0: "batch_size", 1: "sequence_length"} for n in ("input_ids", "attention_mask", "sparse_vecs")}
    axes |= {"dense_vecs": {0: "batch_size"}, "colbert_vecs": {0: "batch_size", 1: "tokens"}}
    three = Three().eval()
    export(three, HERE / "m3.onnx", {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, names, axes)
    t, rows = tokenizer("<bos> $A <eos>", cls_token="<bos>", sep_token="<eos>"), []
    for text in TEXTS:
        fed = t(text, return_tensors="pt")
        with torch.no_grad():
            dense, weights, vectors = three(fed["input_ids"], fed["attention_mask"])
        best = {}
        for i, w in zip(fed["input_ids"][0].tolist(), weights[0, :, 0].tolist()):
            if w > best.get(i, 0) and i not in t.all_special_ids:
                best[i] = w
        rows.append({"dense": folders.rounded(dense)[0], "sparse": {str(i): float(f"{w:.8g}") for i, w in sorted(best.items())},
                     "tokens": folders.rounded(vectors[0])})
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        t.save_pretrained(folder)
        return {"name": "BGE-M3", "graph": "m3.onnx", "files": keep(folder), "rows": rows}


def main():
    HERE.mkdir(exist_ok=True)
    cases, three = [qwen3(), gemma()], m3()
    folders.write(HERE / "expected.json", texts=TEXTS, cases=cases, m3=three, blobs=blobs)


if __name__ == "__main__":
    sys.exit(main())
