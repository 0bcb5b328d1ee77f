"""Writes models/encoders/vectors/LIBRARY-VERSION.json: folders of sparse, multi-vector and static models, with what their library makes of texts.

    pip install sentence-transformers==6.2.0 transformers==5.24.0 onnx model2vec==0.10.0
    pip install sentence-transformers==5.1.2 transformers==4.57.6 onnx                      # in another environment
    pip install sentence-transformers==5.3.0 transformers==5.3.0 onnx pylate==1.6.0         # in a third one
    python models/encoders/vectors.py

What folders.py says of weights, graphs and files holds here too.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import BertForMaskedLM, BertModel

import folders
import sentence_transformers as st
from folders import VERSION, WIDTH, blobs, config, edited, keep, seeded, tokenizer

HERE = Path(__file__).resolve().parent / "vectors"
TEXTS = ["the cat sat on a mat", "a dog ran far away under the old bridge and sat on the mat", "cat", "  the cat : , the  ", "The Cat [MASK] <x>"]
WORDS = "[Q] [D] , .".split()
cases = []


def words(**more):
    """The tokenizer of folders.py, with marks of queries and documents and with punctuation."""
    if not set(WORDS) <= set(folders.WORDS):
        folders.WORDS += WORDS
    t = tokenizer(**more)
    t.add_special_tokens({"additional_special_tokens": ["[Q]", "[D]"]})
    return t


def sized(kind, t):
    """A model of seeded weights, with a row for each token of a tokenizer: those of the same tokens are the same in all."""
    c = config()
    c.vocab_size = len(t)
    return seeded(kind(c))


def base(kind, folder, t=None):
    t = t or words()
    sized(kind, t).save_pretrained(folder)
    t.save_pretrained(folder)
    return folder


def rounded(x):
    return [float(f"{v:.8g}") for v in np.asarray(x, dtype=np.float64).ravel()]


def dense(x):
    return x.to_dense() if x.is_sparse else x


def of(model, how, task, prompt=None):
    """What a model makes of every text, all together."""
    encode = {"": model.encode, "query": getattr(model, "encode_query", None), "document": getattr(model, "encode_document", None)}[task]
    more = {"prompt_name": prompt} if prompt else {}
    if how == "tokens":
        return [{"width": len(x[0]) if len(x) else 0, "values": rounded(x.cpu())} for x in encode(TEXTS, convert_to_numpy=False, **more)]
    if how == "sparse":
        rows = dense(encode(TEXTS, **more)).cpu().numpy()
        return [{"width": len(r), "indices": np.nonzero(r)[0].tolist(), "values": rounded(r[np.nonzero(r)[0]])} for r in rows]
    return [{"width": len(r), "values": rounded(r)} for r in encode(TEXTS, **more)]


def case(name, how, graph, make, load, edit=None, refused="", tasks=("", "query", "document"), prompt=None, scores=True):
    with tempfile.TemporaryDirectory() as folder:
        make(folder)
        if edit:
            edit(Path(folder))
        found = {"name": name, "gives": how, "graph": graph, "files": keep(folder), "refused": refused, "tasks": {}}
        if not refused:
            model = load(folder)
            for task in tasks:
                found["tasks"][task] = of(model, how, task, prompt)
            found["prompt"] = prompt or ""
            if scores and hasattr(model, "similarity") and "query" in tasks:
                found["scores"] = rounded(model.similarity(model.encode_query(TEXTS), model.encode_document(TEXTS)))
        cases.append(found)
        print(st.__version__, name, flush=True)


def sparse():
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.models import MLMTransformer, SparseAutoEncoder, SparseStaticEmbedding, SpladePooling
    from sentence_transformers.models import Normalize, Pooling, Router, Transformer

    def mlm(t=None, **more):
        if VERSION < (5, 4):
            m = MLMTransformer(base(BertForMaskedLM, tempfile.mkdtemp(), t), **more)
        else:
            m = Transformer(base(BertForMaskedLM, tempfile.mkdtemp(), t), transformer_task="fill-mask", **more)
        return m

    def add(name, *modules, t=None, graph="mlm.onnx", first=None, model=None, **more):
        case(name, "sparse", graph, lambda f: SparseEncoder(modules=[first or mlm(t), *modules], device="cpu", **(model or {})).save(f),
             lambda f: SparseEncoder(f, device="cpu"), **more)

    def static(t=None):
        t = t or words()
        weight = torch.from_numpy(np.abs(np.random.RandomState(7).standard_normal(len(t))).astype(np.float32))
        return SparseStaticEmbedding(t, weight=weight, frozen=True)

    for strategy in ("max", "sum"):
        for activation in ("relu", "log1p_relu"):
            for similarity in ("dot", "cosine"):
                add(f"splade {strategy} {activation} {similarity}", SpladePooling(strategy, activation), model={"similarity_fn_name": similarity})
    add("splade, at most 5", SpladePooling("max"), model={"max_active_dims": 5})
    add("splade, at most 100", SpladePooling("sum"), model={"max_active_dims": 100, "similarity_fn_name": "euclidean"})
    add("splade, short", SpladePooling("max"), t=words(model_max_length=6))
    add("splade, cased", SpladePooling("sum"), t=words(lower=False))
    add("splade, prompts", SpladePooling("max"), model={"prompts": {"query": "query : ", "document": "the "}, "similarity_fn_name": "manhattan"})
    add("splade, default prompt", SpladePooling("max"), model={"prompts": {"a": "old ", "passage": "the "}, "default_prompt_name": "a"})
    add("splade, an unknown key", SpladePooling("max"), edit=lambda f: edited("1_SpladePooling/config.json", chunks=3)(f), refused="the key chunks")
    add("splade, an unknown strategy", SpladePooling("max"), edit=lambda f: edited("1_SpladePooling/config.json", pooling_strategy="mean")(f),
        refused='pooling_strategy is "mean", needed max or sum')
    torch.manual_seed(0)
    for k, normalize in ((3, False), (8, True), (40, False)):
        sae = SparseAutoEncoder(WIDTH, 64, k=k, normalize=normalize)
        seeded(sae)
        add(f"autoencoder {k} {normalize}", Pooling(WIDTH, pooling_mode="mean"), sae, graph="states.onnx",
            first=Transformer(base(BertModel, tempfile.mkdtemp())))
    sae = seeded(SparseAutoEncoder(WIDTH, 64, k=8))
    add("autoencoder, at most 4", Pooling(WIDTH, pooling_mode="cls"), Normalize(), sae, graph="states.onnx",
        first=Transformer(base(BertModel, tempfile.mkdtemp())), model={"max_active_dims": 4})
    add("router", graph="mlm.onnx", first=Router.for_query_document([static()], [mlm(), SpladePooling("max", "log1p_relu")]))
    add("router, default query", graph="mlm.onnx", first=Router({"query": [static()], "document": [mlm(), SpladePooling("max")]}, default_route="query"))
    add("static", graph="", first=static())
    add("static, short on the left", graph="", first=static(words(model_max_length=4, truncation_side="left")))
    add("static after splade", SpladePooling("max"), static())
    add("router without a default", graph="mlm.onnx", first=Router({"query": [static()], "document": [mlm(), SpladePooling("max")]},
        default_route=None, allow_empty_key=False), tasks=("query", "document"))
    if VERSION >= (5, 4):
        add("router by mappings", graph="mlm.onnx", first=Router({"a": [static()], "b": [mlm(), SpladePooling("max")]},
            route_mappings={("query", None): "a", ("document", None): "b"}), refused="route_mappings")


def asymmetric():
    """Dense vectors whose queries and documents go other ways."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense, Normalize, Pooling, Router, StaticEmbedding, Transformer

    def transformer():
        return Transformer(base(BertModel, tempfile.mkdtemp()))

    def add(name, *modules, graph="states.onnx", model=None, **more):
        case(name, "dense", graph, lambda f: SentenceTransformer(modules=list(modules), device="cpu", **(model or {})).save(f),
             lambda f: SentenceTransformer(f, device="cpu"), **more)

    def static(seed=3, width=WIDTH, **more):
        t = words(**more).backend_tokenizer
        weights = np.random.RandomState(seed).standard_normal((t.get_vocab_size(), width)).astype(np.float32)
        return StaticEmbedding(t, embedding_weights=weights)

    torch.manual_seed(0)
    add("static", static(), graph="")
    add("static, normalized", static(), Normalize(), graph="")
    add("static, dense", static(), Dense(WIDTH, 4), graph="", model={"similarity_fn_name": "dot"})
    add("static, prompts", static(), graph="", model={"prompts": {"query": "query : "}, "similarity_fn_name": "euclidean"})
    add("static, truncate_dim", static(), graph="", model={"truncate_dim": 5})
    add("router of static queries", Router.for_query_document([static()], [transformer(), Pooling(WIDTH, pooling_mode="mean")]), Normalize())
    add("router after the pooling", transformer(), Pooling(WIDTH, pooling_mode="mean"),
        Router({"query": [Dense(WIDTH, 4)], "document": [Dense(WIDTH, 4, bias=False)]}, default_route="document"), Normalize(),
        model={"similarity_fn_name": "manhattan"})


def model2vec():
    from model2vec import StaticModel

    def make(folder, quantized=None, modules=False, **more):
        t = words().backend_tokenizer
        rows = quantized or t.get_vocab_size()
        draw = np.random.RandomState(5)
        if quantized:
            more |= {"token_mapping": draw.randint(0, rows, t.get_vocab_size()), "weights": draw.standard_normal(t.get_vocab_size()).astype(np.float32)}
        vectors = draw.standard_normal((rows, 8)).astype(np.float32)
        StaticModel((vectors * 50).astype(np.int8) if more.pop("small", False) else vectors, t, **more).save_pretrained(folder)
        if not modules:
            (Path(folder) / "modules.json").unlink()

    def add(name, **more):
        case("model2vec, " + name, "dense", "", lambda f: make(f, **more), lambda f: StaticModel.from_pretrained(f), tasks=("",))

    add("as it is")
    add("normalized", normalize=True)
    add("short", max_length=3)
    add("as long as they are", max_length=None)
    add("quantized vocabulary", quantized=6, normalize=True)
    add("int8", small=True)
    from sentence_transformers import SentenceTransformer

    for name, more in (("normalized", {"normalize": True}), ("short", {"max_length": 3}), ("quantized vocabulary", {"quantized": 6})):
        case("model2vec with modules, " + name, "dense", "", lambda f: make(f, modules=True, **more), lambda f: SentenceTransformer(f, device="cpu"))


def multivector():
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling, MultiVectorMask

    def add(name, *after, expansion=None, width=8, query=None, document=None, t=None, prompts=None, mask={}, model=None, **more):
        def make(folder):
            torch.manual_seed(0)
            first = Transformer(base(BertModel, tempfile.mkdtemp(), t), query_length=query, document_length=document, query_expansion=expansion)
            modules = [first]
            if width:
                modules.append(Dense(WIDTH, width, bias=False, activation_function=nn.Identity(), module_input_name="token_embeddings"))
            if mask is not None:
                modules.append(MultiVectorMask(**mask))
            MultiVectorEncoder(modules=[*modules, *after, Normalize(module_input_name="token_embeddings")], prompts=prompts, device="cpu",
                               **(model or {})).save_pretrained(folder)

        case("multi-vector, " + name, "tokens", "states.onnx", make, lambda f: MultiVectorEncoder(f, device="cpu"), **more)

    marks = {"query": "[Q] ", "document": "[D] "}
    add("plain")
    add("marks", prompts=marks)
    add("without a linear layer", width=0)
    add("mean", prompts=marks, model={"similarity_fn_name": "meanmaxsim"})
    for attend in (False, True):
        add(f"expansion {attend}", prompts=marks, expansion={"strategy": "fixed", "length": 10, "attend": attend})
        add(f"expansion at least {attend}", prompts=marks, expansion={"strategy": "min", "length": 8, "attend": attend})
        add(f"expansion without a mask {attend}", mask=None, expansion={"strategy": "fixed", "length": 10, "attend": attend})
    add("expansion by a token", expansion={"strategy": "fixed", "length": 9, "token": "cat"}, prompts=marks)
    add("expansion and a greatest length", expansion={"strategy": "min", "length": 6}, query=9, prompts=marks)
    add("expansion shorter than texts", expansion={"strategy": "fixed", "length": 5}, prompts=marks)
    add("lengths", query=5, document=7, prompts=marks)
    add("punctuation", mask={"skiplist_words": [",", ":", ".", "!"]}, prompts=marks)
    add("words left out of both", mask={"skiplist_words": ["the", "mat"], "skiplist_tasks": ["query", "document"]})
    add("words left out of queries", mask={"skiplist_words": ["the", "mat"], "skiplist_tasks": ["query"]},
        expansion={"strategy": "fixed", "length": 10})
    add("tokens that alone count", mask={"keep_only_token_ids": [2, 5, 6, 7, 17]}, prompts=marks)
    add("lower case is not made", t=words(lower=False), prompts=marks)
    add("pooled tokens", HierarchicalTokenPooling(pool_factor=2), refused="HierarchicalTokenPooling")
    add("an unknown key", edit=lambda f: edited("2_MultiVectorMask/config.json", weigh=True)(f), refused="the key weigh")
    add("an unknown key of the expansion", expansion={"strategy": "fixed", "length": 5},
        edit=lambda f: edited("sentence_bert_config.json", query_expansion={"strategy": "fixed", "length": 5, "mask": 1})(f), refused="the key query_expansion.mask")


def pylate():
    from pylate import models, scores

    class Late:
        def __init__(self, folder):
            self.model = models.ColBERT(folder, device="cpu")

        def encode_query(self, texts, **more):
            return self.model.encode(texts, is_query=True, convert_to_tensor=True)

        def encode_document(self, texts, **more):
            return self.model.encode(texts, is_query=False, convert_to_tensor=True)

        encode = None

        def similarity(self, a, b):
            return [[scores.colbert_scores(x[None], y[None])[0][0].item() for y in b] for x in a]

    def add(name, t=None, edit=None, refused="", scores=True, **more):
        def make(folder):
            torch.manual_seed(0)
            model = models.ColBERT(base(BertModel, tempfile.mkdtemp(), t), device="cpu", **more)
            seeded(model[0].auto_model)  # with rows of the marks
            model.save(folder)

        case("PyLate, " + name, "tokens", "states.onnx", make, Late, edit, refused, tasks=("query", "document"), scores=scores)

    add("as it is")
    add("another width", embedding_size=12)
    add("bias", embedding_size=12, bias=True)
    add("lengths", query_length=8, document_length=6)
    add("expansion that is attended to", attend_to_expansion_tokens=True, query_length=12)
    add("no expansion", do_query_expansion=False, query_length=12)
    add("other marks", query_prefix="query", document_prefix="dog")
    add("no marks", query_prefix="", document_prefix="")
    add("a mark for queries alone", query_prefix="[Q]", document_prefix="", query_length=9)
    add("no words left out", skiplist_words=[], query_length=9)
    add("words left out", skiplist_words=["the", "mat"], query_length=9)
    add("words left out that are no tokens", skiplist_words=["the", "zebra"], query_length=9)
    add("cased", t=words(lower=False), query_length=9)
    add("an unknown key", edit=edited("config_sentence_transformers.json", whiten=True), refused="the key whiten")


def main():
    HERE.mkdir(exist_ok=True)
    words()
    if not (HERE / "mlm.onnx").exists():
        folders.export(sized(BertForMaskedLM, words()), "logits", HERE / "mlm.onnx", tokens=True)
    try:
        import pylate as _  # noqa: F401

        pylate()
        name = "pylate-1.6.0"
    except ImportError:
        sparse()
        asymmetric()
        name = f"sentence-transformers-{st.__version__}"
        if VERSION >= (6, 0):
            multivector()
            model2vec()
    folders.write(HERE / f"{name}.json", texts=TEXTS, cases=cases, blobs=blobs)


if __name__ == "__main__":
    sys.exit(main())
