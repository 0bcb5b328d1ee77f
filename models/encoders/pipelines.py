"""Writes models/encoders/pipelines/VERSION.json: small folders of classifiers as the installed transformers saves them, with what its pipelines
and CrossEncoder make of texts.

    pip install sentence-transformers==6.2.0 transformers==5.24.0 onnx     # and in another environment 5.1.2 and 4.57.6
    python models/encoders/pipelines.py

All folders of one graph have its weights, from a seed; the first run exports them to pipelines/NAME.onnx.
"""

import json
import sys
import tempfile
import warnings
from pathlib import Path

import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import nn
from transformers import (AutoTokenizer, BertConfig, BertForSequenceClassification, BertForTokenClassification, BertModel, Qwen3Config, Qwen3ForCausalLM,
                          Qwen3ForSequenceClassification, pipeline)

import folders
from folders import CrossEncoder, Transformer, edited, export, keep, pooling, seeded, tokenizer

HERE = Path(__file__).resolve().parent / "pipelines"
TEXTS = ["the cat sat on a mat", "a dog ran far away under the old bridge", "cat", "  The Cat [MASK] <x> ", ""]
PAIRS = [["the cat", "a dog ran far away"], ["the cat ", "the cat sat on a mat"], ["dog", "old bridge"]]
TAGGED = TEXTS[:4] + ["The Cat, éà ﬁ 中文 cat's mat. dog\u00a0ran  far", "Ångström İstanbul 😀 the[MASK]cat <x>", "unknowable cats sat-on bridges", " "]
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
CANDIDATES = ["dog", "a cat", "far away under the old bridge"]
NLI = ["contradiction", "neutral", "entailment"]

CORPUS = ["the cat sat on a mat and dogs ran far away", "under the old bridge the cat's mat, the dog's mat", "bridges and cats"]

CHAT = """<|im_start|>system judge<|im_end|>
<|im_start|>user
: {% for m in messages if m.role == "system" %}{{ m.content }}{% else %}the query{% endfor %}

query: {{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}
: {{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}<|im_end|>
{% if add_generation_prompt or always %}<|im_start|>assistant
{% endif %}"""

cases = []


def config(labels, **more):
    return BertConfig(vocab_size=320, hidden_size=folders.WIDTH, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
                      max_position_embeddings=64, id2label=dict(enumerate(labels)), label2id={l: i for i, l in enumerate(labels)}, **more)


def names(n):
    return [f"LABEL_{i}" for i in range(n)]


GRAPHS = {
    "one": (BertForSequenceClassification, 1, "logits"),
    "two": (BertForSequenceClassification, 2, "logits"),
    "three": (BertForSequenceClassification, 3, "logits"),
    "tokens": (BertForTokenClassification, 5, "logits"),
    "states": (BertModel, 1, "last_hidden_state"),
}


def folder_of(graph, labels, into, t, edit, more):
    kind, n, _ = GRAPHS[graph]
    seeded(kind(config(labels or names(n), **more))).save_pretrained(into)
    (t or tokenizer()).save_pretrained(into)
    if edit:
        edit(Path(into))


def add(name, graph, files, task, refused="", **more):
    cases.append({"name": name, "graph": graph + ".onnx", "files": files, "task": task, "refused": refused, **more})
    print(transformers.__version__, name, flush=True)


def text(name, graph="three", labels=("bad", "so so", "good"), t=None, edit=None, refused="", function=None, **more):
    with tempfile.TemporaryDirectory() as folder:
        folder_of(graph, labels, folder, t, edit, more)
        values = None
        if not refused:
            run = pipeline("text-classification", model=folder, device="cpu", top_k=None, truncation=True)
            values = [run(t, **({"function_to_apply": function} if function else {})) for t in TEXTS]
            values = [v[0] if isinstance(v[0], list) else v for v in values]
        add(name, graph, keep(folder), "text", refused, function=function or "", values=values)


def zero(name, labels=NLI, candidates=CANDIDATES, template=None, several=False, t=None, edit=None, refused="", graph="three"):
    with tempfile.TemporaryDirectory() as folder:
        folder_of(graph, labels, folder, t, edit, {})
        values = None
        if not refused:
            run = pipeline("zero-shot-classification", model=folder, device="cpu")
            more = {"hypothesis_template": template} if template else {}
            values = []
            for text in TEXTS[:4]:  # an empty one is an error
                r = run(text, candidates, multi_label=several, **more)
                values.append([{"label": l, "score": s} for l, s in zip(r["labels"], r["scores"])])
        add(name, graph, keep(folder), "zero-shot", refused, candidates=candidates, template=template or "", several=several, values=values)


def cross(name, labels=3, modules=None, **more):
    graph = "three" if modules is None else "states"
    with tempfile.TemporaryDirectory() as base, tempfile.TemporaryDirectory() as folder:
        folder_of(graph, names(labels) if modules is None else None, base, None, None, {})
        CrossEncoder(**({"model_name_or_path": base} if modules is None else {"modules": [Transformer(base), *modules]}), device="cpu",
                     **more).save_pretrained(folder)
        if modules is not None:
            edited("config.json", id2label={str(i): n for i, n in enumerate(names(labels))})(Path(folder))
        scores = CrossEncoder(folder, device="cpu").predict(PAIRS)
        values = [sorted(({"label": f"LABEL_{i}", "score": float(s)} for i, s in enumerate(row)), key=lambda x: -x["score"]) for row in scores]
        add(name, graph, keep(folder), "pairs", values=values)


def byte_level(prefix=False, trim=True, roberta=False):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    t.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    around = [("</s>", 2), ("<s>", 0)]
    t.post_processor = (processors.RobertaProcessing(*around, trim_offsets=trim, add_prefix_space=prefix) if roberta else
                        processors.ByteLevel(trim_offsets=trim, add_prefix_space=prefix))
    return folders.PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>",
                                           mask_token="<mask>", model_max_length=64)


def unigram(bytes=False, scheme="always"):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    t.decoder = decoders.Metaspace(prepend_scheme=scheme)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"] + ([f"<0x{b:02X}>" for b in range(256)] if bytes else [])
    t.train_from_iterator(CORPUS, trainers.UnigramTrainer(vocab_size=len(special) + 50, special_tokens=special[:5], unk_token="<unk>", show_progress=False))
    if bytes:
        data = json.loads(t.to_str())
        data["model"]["vocab"] += [[b, -20.0] for b in special[5:]]
        data["model"]["vocab"] = data["model"]["vocab"][:5] + data["model"]["vocab"][-256:] + data["model"]["vocab"][5:-256]
        data["model"]["byte_fallback"] = True
        t = Tokenizer.from_str(json.dumps(data))
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return folders.PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>",
                                           mask_token="<mask>", model_max_length=64)


def wordpiece(**more):
    t = tokenizer(**more)
    tok = t.backend_tokenizer
    pieces = folders.WORDS + ["un", "##know", "##able", "##s", "b", "##ridge", "##ng", "##str", "##om", ",", ".", "'", "-", "s", "中"]
    model = models.WordPiece({w: i for i, w in enumerate(pieces)}, unk_token="[UNK]")
    new = Tokenizer(model)
    new.normalizer, new.pre_tokenizer, new.post_processor = tok.normalizer, tok.pre_tokenizer, tok.post_processor
    new.decoder = decoders.WordPiece()
    names = {k: getattr(t, k) for k in ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")}
    return folders.PreTrainedTokenizerFast(tokenizer_object=new, model_max_length=t.model_max_length, **names,
                                           additional_special_tokens=["<x>"])


def tags(name, t, strategies=("none", "simple", "first", "average", "max"), labels=TAGS, ignore=None, edit=None, refused="", tagged=TAGGED):
    with tempfile.TemporaryDirectory() as folder:
        folder_of("tokens", labels, folder, t, edit, {})
        files = keep(folder)
        for strategy in strategies:
            entities = None
            if not refused:
                run = pipeline("token-classification", model=folder, device="cpu", aggregation_strategy=strategy,
                               **({} if ignore is None else {"ignore_labels": ignore}))
                # an index of no token in the group, which the pipeline does not name
                entities = [[{"label": e.get("entity", e.get("entity_group")), "score": float(e["score"]), "word": e["word"], "start": e["start"],
                              "end": e["end"], "token": e.get("index", -1)} for e in run(text)] for text in tagged]
            add(f"{name}, {strategy}", "tokens", files, "tokens", refused, aggregation=strategy, ignore=ignore, entities=entities)


def taggers():
    tags("words of a BERT", wordpiece())
    tags("words of a BERT, cased", wordpiece(lower=False))
    tags("words of a BERT, all labels", wordpiece(), ignore=[])
    tags("words of a BERT, labels without marks", wordpiece(), labels=["O", "PER", "I-PER", "X-PER", "B-X-Y"], ignore=["PER"])
    tags("words of a BERT, short", wordpiece(model_max_length=6), strategies=["simple", "first"])
    tags("bytes", byte_level())
    tags("bytes after a blank", byte_level(prefix=True), strategies=["none", "first", "average"])
    tags("bytes with blanks", byte_level(trim=False), strategies=["none", "max"])
    tags("bytes of a RoBERTa", byte_level(prefix=True, roberta=True), strategies=["none", "simple", "max"])
    tags("bytes of a RoBERTa without a blank", byte_level(roberta=True), strategies=["none", "first"])
    tags("pieces", unigram())
    tags("pieces, the first with a blank", unigram(scheme="first"), strategies=["none", "simple"])
    tags("pieces or bytes", unigram(bytes=True), strategies=["none", "average"])
    tags("a label too few", wordpiece(), strategies=["none"], edit=edited("config.json", id2label={"0": "O"}), refused="id2label has 1 labels, needed 5")
    save(f"taggers-{transformers.__version__}.json")


def judge(kind):
    """A decoder, whose tokens are those of a BERT."""
    more = {"num_labels": 1, "pad_token_id": 0} if kind is Qwen3ForSequenceClassification else {}
    return seeded(kind(Qwen3Config(vocab_size=64, hidden_size=folders.WIDTH, num_hidden_layers=1, num_attention_heads=2,
                                   num_key_value_heads=1, head_dim=8, intermediate_size=32, max_position_embeddings=128, **more)))


def words(**more):
    special = ["<|im_start|>", "<|im_end|>"]
    return tokenizer(words=folders.WORDS + ["yes", "no", "system", "user", "assistant", "judge"] + special, padding_side="left",
                     additional_special_tokens=special, **{"model_max_length": 64, **more})


def rerank(name, kind=Qwen3ForCausalLM, t=None, edit=None, refused="", saved=True, by=None, after=None, transformer=None, **more):
    with tempfile.TemporaryDirectory() as base, tempfile.TemporaryDirectory() as folder:
        judge(kind).save_pretrained(base)
        (t or words(chat_template=CHAT)).save_pretrained(base)
        if after:
            more["modules"] = [Transformer(base, **(transformer or {})), *after]
        else:
            more["model_name_or_path"] = base
        if saved:
            CrossEncoder(device="cpu", **more).save_pretrained(folder)
        else:
            folder = base
        if edit:
            edit(Path(folder))
        scores = () if refused else by(folder, PAIRS) if by else CrossEncoder(folder, device="cpu").predict(PAIRS)
        values = None if refused else [[{"label": "", "score": float(s)}] for s in scores]
        add(name, "causal" if kind is Qwen3ForCausalLM else "converted", keep(folder), "rerank", refused, values=values)


def recipe(folder, pairs):
    """What the page of Qwen3-Reranker computes: the share of yes in yes and no, of texts with fixed tokens around."""
    t, model = AutoTokenizer.from_pretrained(folder), Qwen3ForCausalLM.from_pretrained(folder).eval()
    before, after = (t(s, add_special_tokens=False)["input_ids"] for s in ("<|im_start|>system judge<|im_end|>\n<|im_start|>user\n",
                                                                          "<|im_end|>\n<|im_start|>assistant\n"))
    yes, no = t.convert_tokens_to_ids("yes"), t.convert_tokens_to_ids("no")
    for query, document in pairs:
        ids = before + t(f": the query\nquery: {query}\n: {document}", add_special_tokens=False)["input_ids"] + after
        with torch.no_grad():
            last = model(input_ids=torch.tensor([ids])).logits[0, -1]
        yield torch.log_softmax(torch.stack([last[no], last[yes]]), 0)[1].exp().item()


def decoder(kind, path):
    class Only(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = kind

        def forward(self, input_ids, attention_mask):
            return self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits

    ids, names = torch.tensor([[2, 5, 6, 3], [2, 5, 6, 3]]), ["input_ids", "attention_mask"]
    axes = {n: {0: "batch", 1: "sequence"} for n in names} | {"logits": {0: "batch"} | ({} if kind.config.num_labels == 1 else {1: "sequence"})}
    torch.onnx.export(Only().eval(), (ids, torch.ones_like(ids)), str(path), input_names=names, output_names=["logits"], dynamic_axes=axes,
                      opset_version=17, dynamo=False)


def rerankers():
    from sentence_transformers.cross_encoder.modules import LogitScore
    for name, kind in (("causal", Qwen3ForCausalLM), ("converted", Qwen3ForSequenceClassification)):
        if not (HERE / f"{name}.onnx").exists():
            decoder(judge(kind), HERE / f"{name}.onnx")
    generation = {"transformer_task": "text-generation"}
    rerank("yes and no")
    rerank("yes and no, as exported", saved=False)
    rerank("Qwen's recipe", saved=False, by=recipe, t=words(chat_template=CHAT.replace(" or always", " or true")))
    rerank("yes and no, Identity", activation_fn=nn.Identity())
    rerank("yes and no, a prompt", prompts={"search": "the cat sat"}, default_prompt_name="search")
    rerank("yes and no, short", t=words(chat_template=CHAT, model_max_length=20))
    rerank("yes and no, short on the left", t=words(chat_template=CHAT, model_max_length=20, truncation_side="left"))
    rerank("yes and no, without a template", t=words())
    rerank("yes and no, a turn begins", after=[LogitScore(21, 22)],
           transformer={**generation, "processing_kwargs": {"chat_template": {"add_generation_prompt": True}}})
    rerank("a variable, and the end is cut", t=words(chat_template=CHAT, model_max_length=20), after=[LogitScore(21, 22)],
           transformer={**generation, "processing_kwargs": {"chat_template": {"always": True, "restore_suffix": False}}})
    rerank("yes alone", after=[LogitScore(21)], transformer=generation)
    rerank("a template of no reranker", t=words(chat_template="{{ messages[0].content }}"), saved=False,
           refused="a chat template that leaves out messages of the role document")
    rerank("tokens that are not there", edit=edited("1_LogitScore/config.json", true_token_id=99), refused="the tokens 99 and ")
    rerank("a token that is no number", edit=edited("1_LogitScore/config.json", true_token_id="yes"), refused='true_token_id is "yes"')
    rerank("a LogitScore of hidden states", edit=edited("sentence_bert_config.json", transformer_task="feature-extraction", modality_config=None,
           module_output_name="token_embeddings"), refused="a LogitScore after a Transformer that gives no causal_logits")
    rerank("another format of messages", edit=edited("sentence_bert_config.json", modality_config={"text": {"method": "forward",
           "method_output_name": "logits"}, "message": {"method": "forward", "method_output_name": "logits", "format": "structured"}}),
           refused="modality_config is ")
    rerank("converted", kind=Qwen3ForSequenceClassification, t=words())
    rerank("converted, a template", kind=Qwen3ForSequenceClassification)
    rerank("converted, Identity", kind=Qwen3ForSequenceClassification, t=words(), activation_fn=nn.Identity())
    save(f"rerankers-{folders.st.__version__}.json")


def save(file):
    folders.write(HERE / file, texts=TEXTS, tagged=TAGGED, pairs=PAIRS, cases=cases, blobs=folders.blobs)
    cases.clear()
    folders.blobs.clear()


def main():
    HERE.mkdir(exist_ok=True)
    folders.HERE = HERE
    warnings.simplefilter("ignore")
    for name, (kind, n, output) in GRAPHS.items():
        if not (HERE / f"{name}.onnx").exists():
            export(seeded(kind(config(names(n)))), output, HERE / f"{name}.onnx")
    text("three labels")
    text("three labels, stated", problem_type="single_label_classification")
    text("several labels", problem_type="multi_label_classification")
    text("regression", problem_type="regression")
    text("regression of one", graph="one", labels=["worth"], problem_type="regression")
    text("one label", graph="one", labels=None)
    if transformers.__version__ < "5":  # which refuses it
        text("one label, stated", graph="one", labels=["good"], problem_type="single_label_classification")
    text("two labels without names", graph="two", labels=None)
    text("none is asked for", function="none")
    text("sigmoid is asked for", function="sigmoid")
    text("softmax is asked for", function="softmax", problem_type="regression")
    text("short", t=tokenizer(model_max_length=6))
    text("short on the left", t=tokenizer(model_max_length=6, truncation_side="left"))
    text("cased", t=tokenizer(lower=False))
    text("without types", t=tokenizer(model_input_names=["input_ids", "attention_mask"]))
    text("a label too few", edit=edited("config.json", id2label={"0": "bad", "1": "good"}), refused="id2label has 2 labels, needed 3")
    text("a label too many", edit=edited("config.json", id2label=dict(enumerate("abcd"))), refused="id2label has 4 labels, needed 3")
    text("labels from 1", edit=edited("config.json", id2label={"1": "a", "2": "b", "3": "c"}), refused="none of 0, needed those of 0 to 2")
    text("no labels", edit=edited("config.json", id2label=None), refused="no id2label, needed the labels of the graph's 3 outputs")
    text("a label that is a number", edit=edited("config.json", id2label={"0": "a", "1": 7, "2": "c"}), refused="id2label.1 is 7, needed a string")
    text("another problem", edit=edited("config.json", problem_type="ranking"), refused='problem_type is "ranking", needed regression')
    text("another architecture", edit=edited("config.json", architectures=["BertForMaskedLM"]), refused="the architecture BertForMaskedLM")
    zero("zero-shot")
    zero("zero-shot, each by itself", several=True)
    zero("zero-shot, one candidate", candidates=["a dog"])
    zero("zero-shot, a hypothesis", template="{{the}} old {0}")
    zero("zero-shot, entailment first", labels=NLI[::-1], several=True)
    zero("zero-shot, two labels", graph="two", labels=["ENTAILED", "not"])
    zero("zero-shot, short", t=tokenizer(model_max_length=18))
    zero("zero-shot, no entailment", labels=["a", "b", "c"], refused="no label that begins with entail among a, b, c")
    zero("zero-shot, labels that contradict", edit=edited("config.json", label2id={"entailment": 0, "neutral": 1, "contradiction": 2}),
         refused="label2id.contradiction is 2, and id2label.0 is")
    cross("pairs of three labels")
    cross("pairs of three labels, sigmoid", **{"activation_fn": nn.Sigmoid()})
    cross("pairs of three labels, softmax", **{"activation_fn": nn.Softmax(dim=1)})
    if folders.VERSION >= (5, 4):
        from sentence_transformers.base.modules.dense import Dense
        cross("modules of three labels", modules=[pooling("cls"), Dense(folders.WIDTH, 3, activation_function=nn.Identity(),
                                                                         module_output_name="scores")])
    save(f"{transformers.__version__}.json")
    taggers()
    if folders.VERSION >= (6, 0):
        rerankers()


if __name__ == "__main__":
    sys.exit(main())
