"""Writes models/encoders: small encoders as sentence-transformers saves them, and what it makes of texts.

    pip install -r models/encoders/requirements.txt
    python models/encoders/export.py

The weights come from a seed (models/export/seeded.py), the tokenizer is host/generate/text's test of Bert's kind. Everything
beside the graphs is as SentenceTransformer.save and CrossEncoder.save write it; the graphs are optimum's.
"""

import gzip
import json
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import onnx
import torch
from optimum.exporters.onnx.convert import onnx_export_from_model
from sentence_transformers import CrossEncoder, SentenceTransformer, models
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "models/export"))
import seeded  # noqa: E402
import store  # noqa: E402

WIDTH, POSITIONS, LONGEST = 32, 64, 48
TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "A batch holds the texts that waited while the one before was computed.",
    "Rain is likely tomorrow, and the wind will be strong along the coast.",
    "",
    "   spaces around a text are taken off \t\n",
    "Short.",
    "Capital Letters AND accents: \u00c9t\u00e9, na\u00efve, \u00dcber, \u0130stanbul",
    "\u4f60\u597d, \u4e16\u754c! \u3053\u3093\u306b\u3061\u306f \U0001f600",
    "1,234.56 dollars (on the 3rd of May) for 2x4 boards",
    "word " * 100,
    "The committee met again on Thursday to discuss the budget, which had been delayed twice since the spring, and agreed to "
    "publish a first draft before the end of the month, although two of its members asked for more time to read the figures.",
    "unaffable antidisestablishmentarianism " * 3,
]
QUERY = "When will the budget be published?"
MODES = ("cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")


def tokenizer():
    path = ROOT / "host/generate/text/testdata/bert/tokenizer.json.gz"
    with tempfile.NamedTemporaryFile(suffix=".json") as f:
        f.write(gzip.decompress(path.read_bytes()))
        f.flush()
        return PreTrainedTokenizerFast(tokenizer_file=f.name, cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]",
                                       unk_token="[UNK]", mask_token="[MASK]", model_max_length=POSITIONS,
                                       clean_up_tokenization_spaces=False)


def config(t, **more):
    return BertConfig(vocab_size=len(t), hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                      max_position_embeddings=POSITIONS, pad_token_id=t.pad_token_id, **more)


def saved(model, t, folder):
    model.eval()
    seeded.initialise(model)
    model.save_pretrained(folder)
    t.save_pretrained(folder)


def graph(model, task, to):
    with tempfile.TemporaryDirectory() as scratch:
        onnx_export_from_model(model, Path(scratch), opset=18, task=task, do_validation=False, no_post_process=True)
        m = onnx.load(Path(scratch) / "model.onnx")
    store.strip(m)
    to.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(m, to)


def tidy(folder):
    """Takes out weights and what the tests do not need, and what names a machine or a time."""
    for path in folder.rglob("*"):
        if path.name in ("README.md", "vocab.txt", ".gitattributes") or path.suffix in (".safetensors", ".bin") :
            path.unlink()
    for path in folder.rglob("*.json"):
        if path.name == "tokenizer.json":
            continue
        values = json.loads(path.read_text())
        if isinstance(values, dict):
            for key in ("_name_or_path", "name_or_path"):
                values.pop(key, None)
        path.write_text(json.dumps(values, indent=2, ensure_ascii=False, sort_keys=False) + "\n")


def embedder(t):
    folder = HERE / "embedder"
    shutil.rmtree(folder, ignore_errors=True)
    out = {}
    with tempfile.TemporaryDirectory() as plain:
        model = BertModel(config(t))
        saved(model, t, plain)
        word = models.Transformer(plain, max_seq_length=LONGEST)
        torch.manual_seed(1)
        dense = models.Dense(in_features=WIDTH, out_features=12, activation_function=torch.nn.Tanh())
        pooling = models.Pooling(WIDTH, pooling_mode="mean")
        whole = SentenceTransformer(modules=[word, pooling, models.Normalize()], device="cpu",
                                    prompts={"query": "query: ", "document": ""})
        whole.save(str(folder))
        for mode in MODES:
            one = SentenceTransformer(modules=[word, models.Pooling(WIDTH, pooling_mode=mode)], device="cpu")
            out[mode] = one.encode(TEXTS).tolist()
        several = models.Pooling(WIDTH, pooling_mode_cls_token=True, pooling_mode_mean_tokens=True, pooling_mode_max_tokens=True,
                                 pooling_mode_weightedmean_tokens=True)
        out["cls+max+mean+weightedmean"] = SentenceTransformer(modules=[word, several], device="cpu").encode(TEXTS).tolist()
        out["dense"] = SentenceTransformer(modules=[word, pooling, dense, models.Normalize()], device="cpu").encode(TEXTS).tolist()
        out["normalize"] = whole.encode(TEXTS).tolist()
        out["query"] = whole.encode(TEXTS, prompt_name="query").tolist()
        bare = models.Pooling(WIDTH, pooling_mode="mean", include_prompt=False)
        out["query without prompt"] = SentenceTransformer(
            modules=[word, bare], device="cpu", prompts={"query": "query: "}).encode(TEXTS, prompt_name="query").tolist()
        (HERE / "dense").mkdir(exist_ok=True)
        dense.save(str(HERE / "dense"))
        graph(model, "feature-extraction", folder / "onnx/model.onnx")
    tidy(folder)
    return out


def reranker(t):
    folder = HERE / "reranker"
    shutil.rmtree(folder, ignore_errors=True)
    pairs = [(QUERY, text) for text in TEXTS]
    with tempfile.TemporaryDirectory() as plain:
        model = BertForSequenceClassification(config(t, num_labels=1, architectures=["BertForSequenceClassification"]))
        saved(model, t, plain)
        whole = CrossEncoder(plain, device="cpu")
        whole.save_pretrained(str(folder))
        out = {"sigmoid": whole.predict(pairs).tolist(), "logits": whole.predict(pairs, activation_fn=torch.nn.Identity()).tolist(),
               "rank": [r["corpus_id"] for r in whole.rank(QUERY, TEXTS)]}
        graph(model, "text-classification", folder / "model.onnx")
    tidy(folder)
    return out


def main():
    t = tokenizer()
    packages = ("sentence-transformers", "transformers", "torch", "optimum-onnx", "onnx")
    (HERE / "expected.json").write_text(json.dumps({
        "versions": {p: version(p) for p in packages}, "texts": TEXTS, "query": QUERY, "embeddings": embedder(t), "scores": reranker(t)}) + "\n")


if __name__ == "__main__":
    main()
