"""Writes models/encoders/folders/VERSION.json: small folders as the installed sentence-transformers saves them, with what it makes of texts.

    pip install sentence-transformers==6.2.0 transformers==5.24.0 onnx     # and in other environments 5.4.1, 5.1.2, 3.4.1 and 2.7.0
    python models/encoders/folders.py

All folders have the weights of one encoder, from a seed; the first run exports them to folders/states.onnx and folders/logits.onnx. A file of
several folders stands in the JSON once.
"""

import base64
import hashlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

import sentence_transformers as st
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.models import Dense, Dropout, LayerNorm, Normalize, Pooling, Transformer

HERE = Path(__file__).resolve().parent / "folders"
VERSION = tuple(int(n) for n in st.__version__.split(".")[:2])
WIDTH = 16
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on a mat and dog ran far away under old bridge query The Cat : \u0120".split()
TEXTS = ["the cat sat on a mat", "a dog ran far away under the old bridge and sat on the mat", "cat", "  the cat  ", "The Cat [MASK] <x>"]
PAIRS = [["the cat", "a dog ran far away"], ["the cat ", "the cat sat on a mat"], ["dog", "old bridge"]]


def seeded(model):
    """The same weights in every version of torch and transformers."""
    for name, p in sorted(model.named_parameters()):
        seed = int.from_bytes(hashlib.sha256(name.removeprefix("bert.").encode()).digest()[:4], "little")
        with torch.no_grad():
            p.copy_(torch.from_numpy(np.random.RandomState(seed).standard_normal(tuple(p.shape)).astype(np.float32) * 0.3))
    return model.eval()


def tokenizer(lower=True, words=WORDS, **more):
    t = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lower)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                     special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    more = {"model_max_length": 32, **more}
    return PreTrainedTokenizerFast(tokenizer_object=t, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
                                   mask_token="[MASK]", **more)


def config(**more):
    return BertConfig(vocab_size=len(WORDS) + 8, hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
                      max_position_embeddings=32, **more)


def export(model, output, path, tokens=False):
    class Only(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask, token_type_ids):
            return self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)[output]

    names = ["input_ids", "attention_mask", "token_type_ids"]
    axes = {n: {0: "batch", 1: "sequence"} for n in names} | {output: {0: "batch", 1: "sequence"} if tokens or output != "logits" else {0: "batch"}}
    ids = torch.tensor([[2, 5, 6, 3]])
    torch.onnx.export(Only().eval(), (ids, torch.ones_like(ids), torch.zeros_like(ids)), str(path), input_names=names, output_names=[output],
                      dynamic_axes=axes, opset_version=17, dynamo=False)


blobs, cases = {}, []


def keep(folder):
    """The files of a folder, by name, each as the key of its content."""
    files = {}
    for path in sorted(Path(folder).rglob("*")):
        if not path.is_file() or path.name in ("README.md", "vocab.txt") or path.stat().st_size > 12000 and path.suffix != ".json":
            continue
        data = path.read_bytes() if path.suffix != ".bin" else b""  # pickles are refused, whatever they hold
        text = data.decode() if path.suffix in (".json", ".txt") else "base64:" + base64.b64encode(data).decode()
        key = hashlib.sha256(data).hexdigest()[:12]
        blobs[key] = text
        files[str(path.relative_to(folder))] = key
    return files


def rounded(values):
    return [[float(f"{x:.8g}") for x in np.atleast_1d(v)] for v in values]


def embedder(name, *modules, t=None, prompt="", edit=None, refused="", length=None, transformer=None, **more):
    with tempfile.TemporaryDirectory() as base, tempfile.TemporaryDirectory() as folder:
        seeded(BertModel(config())).save_pretrained(base)
        (t or tokenizer()).save_pretrained(base)
        first = Transformer(base, **(transformer or {}))
        if length:
            first.max_seq_length = length
        SentenceTransformer(modules=[first, *modules], device="cpu", **more).save(folder)
        if edit:
            edit(Path(folder))
        case = {"name": name, "graph": "states.onnx", "files": keep(folder), "prompt": prompt, "refused": refused}
        if not refused:
            again = SentenceTransformer(folder, device="cpu")
            case["values"] = rounded(again.encode(TEXTS, prompt_name=prompt or None))
        cases.append(case)
        print(st.__version__, name, flush=True)


def reranker(name, modules=None, edit=None, refused="", labels=1, t=None, **more):
    with tempfile.TemporaryDirectory() as base, tempfile.TemporaryDirectory() as folder:
        if modules is None:
            seeded(BertForSequenceClassification(config(num_labels=labels))).save_pretrained(base)
        else:
            seeded(BertModel(config())).save_pretrained(base)
        (t or tokenizer()).save_pretrained(base)
        if modules is None:
            whole = CrossEncoder(base, device="cpu", **more)
        else:
            whole = CrossEncoder(modules=[Transformer(base), *modules], device="cpu", **more)
        whole.save_pretrained(folder)
        if edit:
            edit(Path(folder))
        case = {"name": name, "graph": "logits.onnx" if modules is None else "states.onnx", "files": keep(folder), "prompt": "",
                "refused": refused, "rerank": True}
        if not refused:
            case["values"] = rounded(CrossEncoder(folder, device="cpu").predict(PAIRS))
        cases.append(case)
        print(st.__version__, name, flush=True)


def edited(file, **keys):
    def edit(folder):
        path = folder / file
        values = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**values, **keys}))

    return edit


def pooling(mode="mean", **more):
    return Pooling(WIDTH, pooling_mode=mode, **more)


def llama(folder):
    """A tokenizer whose class puts tokens around a text as its configuration says, in transformers 4."""
    data = json.loads((folder / "tokenizer.json").read_text())
    data["post_processor"] = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                              "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                              "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}}}
    (folder / "tokenizer.json").write_text(json.dumps(data))
    edited("tokenizer_config.json", tokenizer_class="LlamaTokenizerFast", add_bos_token=True, add_eos_token=True, bos_token="[CLS]",
           eos_token="[SEP]", padding_side="right")(folder)


def mixed(number):
    """A folder of several choices, the same in every version as far as it has them."""
    draw = np.random.RandomState(number)
    one = lambda *of: of[draw.randint(len(of))]  # noqa: E731
    mode, second = one("mean", "cls", "max", "mean_sqrt_len_tokens"), one(None, None, "max", "mean")
    length, by_tokenizer, side = one(None, 6, 9), one(32, 8), one("right", "left")
    lower, prompt, counts = one(True, False), one("", "query", "none"), one(True, True, False)
    steps = [one("Dense", "LayerNorm", "Normalize", "Dropout", "narrow") for _ in range(draw.randint(4))]
    similarity, residual = one(None, "dot", "euclidean"), one(True, False)
    more, modules, width, pickled = {}, [], WIDTH, False
    if second and second != mode:
        switches = {f"pooling_mode_{m}_tokens".replace("len_tokens_tokens", "len_tokens").replace("cls_tokens", "cls_token"): m in (mode, second)
                    for m in ("mean", "cls", "max", "mean_sqrt_len_tokens")}
        modules.append(Pooling(WIDTH, include_prompt=counts, **switches) if VERSION < (5, 4) else
                       Pooling(WIDTH, pooling_mode=(mode, second), include_prompt=counts))
        width = 2 * WIDTH
    else:
        modules.append(pooling(mode, include_prompt=counts))
    for step in steps:
        pickled = pickled or step in ("Dense", "narrow", "LayerNorm")
        if step == "narrow" or step == "Dense" and VERSION < (6, 0):
            modules.append(Dense(width, 4 if step == "narrow" else width, bias=step == "Dense", activation_function=nn.SiLU()))
            width = 4 if step == "narrow" else width
        elif step == "Dense":
            modules.append(Dense(width, width, activation_function=nn.Sigmoid(), use_residual=residual))
        else:
            modules.append({"LayerNorm": lambda: LayerNorm(width), "Normalize": Normalize, "Dropout": lambda: Dropout(0.1)}[step]())
    if similarity and VERSION >= (3, 0):
        more["similarity_fn_name"] = similarity
    if VERSION >= (6, 0) and number % 4 == 0:
        more["truncate_dim"] = 3
    embedder(f"mixed {number}: {mode}+{second}, {', '.join(steps)}", *modules, t=tokenizer(lower, model_max_length=by_tokenizer, truncation_side=side),
             prompt=prompt, length=length, prompts={"query": "query : ", "none": ""}, default_prompt_name=one(None, "query"),
             refused="pytorch_model.bin, which is a program" if pickled and VERSION < (3, 0) else "", **more)


def write(path, **parts):
    """A line for each case and for each file."""
    versions = {"sentence-transformers": st.__version__, "transformers": transformers.__version__}
    path.write_text(lines({"versions": versions, **parts}) + "\n")


def lines(value, depth=2):
    if not depth or not isinstance(value, (dict, list)) or not value:
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return "{\n" + ",\n".join(f"{json.dumps(k)}: {lines(v, depth - 1)}" for k, v in value.items()) + "\n}"
    return "[\n" + ",\n".join(lines(v, depth - 1) for v in value) + "\n]"


def main():
    HERE.mkdir(exist_ok=True)
    if not (HERE / "states.onnx").exists():
        export(seeded(BertModel(config())), "last_hidden_state", HERE / "states.onnx")
        export(seeded(BertForSequenceClassification(config(num_labels=1))), "logits", HERE / "logits.onnx")
    torch.manual_seed(0)
    pickled = "" if VERSION >= (3, 0) else "pytorch_model.bin, which is a program in Python's pickle"
    for mode in Pooling(WIDTH, pooling_mode="mean").POOLING_MODES if hasattr(Pooling, "POOLING_MODES") else ("cls", "max", "mean"):
        embedder(f"pooling {mode}", pooling(mode), Normalize())
    embedder("pooling cls and mean", Pooling(WIDTH, pooling_mode_cls_token=True, pooling_mode_mean_tokens=True))
    embedder("dense", pooling(), Dense(WIDTH, 8), Normalize(), refused=pickled)
    embedder("dense without bias, ReLU", pooling("max"), Dense(WIDTH, 8, bias=False, activation_function=nn.ReLU()), refused=pickled)
    embedder("dense twice, GELU and Identity", pooling(), Dense(WIDTH, 24, activation_function=nn.GELU()),
             Dense(24, 4, activation_function=nn.Identity()), refused=pickled)
    for f in (nn.ELU(), nn.SELU(), nn.LeakyReLU(), nn.Mish(), nn.Softplus(), nn.Hardswish(), nn.LogSigmoid(), nn.Softsign()):
        embedder(f"dense {type(f).__name__}", pooling(), Dense(WIDTH, 4, activation_function=f), refused=pickled)
    embedder("dense Softmax", pooling(), Dense(WIDTH, 4, activation_function=nn.Softmax(dim=1)), refused="Softmax" if not pickled else "activation_function is")
    embedder("layer norm", pooling(), LayerNorm(WIDTH), refused=pickled)
    embedder("dropout", pooling(), Dropout(0.5), Normalize())
    embedder("prompts", pooling(), prompts={"query": "query : ", "none": ""}, prompt="query")
    embedder("default prompt", pooling(), prompts={"query": "query : "}, default_prompt_name="query")
    for mode in ("mean", "cls", "max", "weightedmean", "lasttoken"):
        embedder(f"prompt is not pooled, {mode}", pooling(mode, include_prompt=False), prompts={"query": "query : "}, prompt="query")
    embedder("short", pooling(), length=6)
    embedder("short on the left", pooling(), t=tokenizer(model_max_length=6, truncation_side="left"))
    embedder("short by the tokenizer", pooling(), t=tokenizer(model_max_length=7))
    embedder("cased", pooling(), t=tokenizer(lower=False))
    embedder("padding on the left", pooling(), t=tokenizer(padding_side="left"), refused="padding_side is left")
    embedder("special tokens", pooling(), t=tokenizer(additional_special_tokens=["<x>"]))
    embedder("special tokens beside tokenizer.json", pooling("lasttoken"),
             edit=edited("tokenizer_config.json", **({"extra_special_tokens" if VERSION >= (5, 4) and transformers.__version__ >= "5" else
                                                      "additional_special_tokens": ["<x>"]})))
    embedder("tokens around by a class", pooling("lasttoken"), edit=llama,
             refused="" if transformers.__version__ < "5" else "tokenizer_class is LlamaTokenizer")
    embedder("do_lower_case of a class", pooling(), t=tokenizer(lower=False),
             edit=edited("tokenizer_config.json", tokenizer_class="BertTokenizerFast" if transformers.__version__ < "5" else "BertTokenizer",
                         do_lower_case=True))
    embedder("an unknown key of the pooling", pooling(), edit=edited("1_Pooling/config.json", attention=True), refused="the key attention")
    embedder("an unknown key of the Transformer", pooling(), edit=edited("sentence_bert_config.json", expand=2), refused="the key expand")
    embedder("an unknown key of the model", pooling(), edit=edited("config_sentence_transformers.json", whiten=True), refused="the key whiten")
    embedder("an unknown key of the tokenizer", pooling(), edit=edited("tokenizer_config.json", reverse=True), refused="the key reverse")
    if VERSION < (5, 4):
        embedder("lower case", pooling(), t=tokenizer(lower=False), transformer={"do_lower_case": True})
    if VERSION >= (5, 0):
        reranker("sigmoid")
        reranker("Identity", activation_fn=nn.Identity())
        reranker("Tanh", activation_fn=nn.Tanh())
        reranker("short", t=tokenizer(model_max_length=7))
    else:
        named = "default_activation_function"
        reranker("sigmoid")
        reranker("Identity", **{named: nn.Identity()})
    if VERSION >= (5, 4):
        from sentence_transformers.base.modules.dense import Dense as NewDense
        embedder("pooling of a list", Pooling(WIDTH, pooling_mode=("mean", "cls", "max")))
        embedder("dense of tokens", NewDense(WIDTH, 8, module_input_name="token_embeddings"), Pooling(8, pooling_mode="mean"))
        reranker("modules", modules=[pooling("cls"), NewDense(WIDTH, 1, activation_function=nn.Identity(), module_output_name="scores")])
        reranker("modules, Tanh twice", modules=[pooling(), NewDense(WIDTH, 4), NewDense(4, 1, module_output_name="scores")],
                 activation_fn=nn.Tanh())
    if VERSION >= (6, 0):
        from sentence_transformers.base.modules.normalize import Normalize as NewNormalize
        embedder("normalize tokens", NewNormalize(module_input_name="token_embeddings"), pooling())
        embedder("residual", pooling(), NewDense(WIDTH, WIDTH, use_residual=True))
        embedder("residual, narrow", pooling(), NewDense(WIDTH, 8, use_residual=True), Normalize())
        embedder("truncate_dim", pooling(), truncate_dim=5)
        embedder("truncate_dim after Normalize", pooling(), Normalize(), truncate_dim=5)
        reranker("prompts", prompts={"search": "query : "}, default_prompt_name="search")
    torch.manual_seed(1)
    for number in range(20):
        mixed(number)
    if VERSION >= (5, 0):
        for f in (nn.ReLU(), nn.GELU(), nn.SiLU(), nn.Softplus(), nn.ELU(), nn.LeakyReLU(), nn.Hardswish(), nn.Softsign(), nn.LogSigmoid()):
            reranker(type(f).__name__, activation_fn=f)
        reranker("cased", t=tokenizer(lower=False))
        reranker("short on the left", t=tokenizer(model_max_length=7, truncation_side="left"))
        reranker("max_length", max_length=6)
        reranker("longer than positions", t=tokenizer(model_max_length=10**30))
        reranker("special tokens", t=tokenizer(additional_special_tokens=["<x>"]))
        reranker("without types", t=tokenizer(model_input_names=["input_ids", "attention_mask"]), activation_fn=nn.Identity())
        reranker("the activation of config.json", edit=edited("config.json", sentence_transformers={"activation_fn": "torch.nn.modules.linear.Identity"}))
    write(HERE / f"{st.__version__}.json", texts=TEXTS, pairs=PAIRS, cases=cases, blobs=blobs)


if __name__ == "__main__":
    sys.exit(main())
