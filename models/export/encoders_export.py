"""Full-size encoders, one graph each: optimum's export (torch's TorchScript exporter), opset 18."""

import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
import transformers
from optimum.exporters.onnx.convert import onnx_export_from_model
from optimum.exporters.onnx.model_configs import CLIPTextOnnxConfig

import pooled
import seeded
import store
from families_export import KEEP, lengths, published

BERT = dict(vocab_size=30522)
MINILM = dict(BERT, hidden_size=384, num_attention_heads=12, intermediate_size=1536)
RERANKER = dict(id2label={0: "LABEL_0"}, label2id={"LABEL_0": 0})

# Subject: class, model type and fields of its configuration, and optimum's task.
FULL = {
    "bert-base": ("BertModel", "bert", BERT, "feature-extraction"),
    "clip-text": ("CLIPTextModel", "clip_text_model", dict(hidden_size=512, intermediate_size=2048, eos_token_id=49407), "text encoder"),
    "clip-vision": ("CLIPVisionModel", "clip_vision_model", dict(patch_size=32), "feature-extraction"),
    "deberta-v3-small": ("DebertaV2Model", "deberta-v2", dict(
        num_hidden_layers=6, hidden_size=768, num_attention_heads=12, intermediate_size=3072, vocab_size=128100,
        relative_attention=True, max_relative_positions=-1, position_buckets=256, pos_att_type=["p2c", "c2p"], share_att_key=True,
        norm_rel_ebd="layer_norm", position_biased_input=False, type_vocab_size=0, pad_token_id=0), "feature-extraction"),
    "minilm-l6": ("BertModel", "bert", dict(MINILM, num_hidden_layers=6), "feature-extraction"),
    "minilm-l6-pooled": ("BertModel", "bert", dict(MINILM, num_hidden_layers=6), "pooled"),
    "minilm-l12-reranker": ("BertForSequenceClassification", "bert", dict(MINILM, **RERANKER), "text-classification"),
    "modernbert-base": ("ModernBertModel", "modernbert", dict(reference_compile=False), "feature-extraction"),
    "vit-b16": ("ViTModel", "vit", {}, "feature-extraction"),
    "wav2vec2-base": ("Wav2Vec2Model", "wav2vec2", {}, "feature-extraction"),
    "xlm-roberta-base": ("XLMRobertaModel", "xlm-roberta", dict(
        vocab_size=250002, max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5), "feature-extraction"),
}


def make(name):
    """A filled model in evaluation mode, and how each parameter was drawn."""
    kind, type_of, fields, _ = FULL[name]
    made = getattr(transformers, kind)
    model = made(transformers.AutoConfig.for_model(type_of, **fields))
    for module in model.modules():
        # A weight that is norm times direction is in a graph as their product, which no instruction makes.
        if torch.nn.utils.parametrize.is_parametrized(module, "weight"):
            torch.nn.utils.parametrize.remove_parametrizations(module, "weight")
    model.eval()
    return model, seeded.initialise(model)


def run(fixture, full=False):
    model, drawn = make(fixture)
    task = FULL[fixture][-1]
    made_by = ["optimum-onnx", "transformers", "torch", "onnx"]
    with tempfile.TemporaryDirectory() as scratch:
        exported, options = model, dict(task=task)
        if task == "pooled":
            exported, options = pooled.make(model, Path(scratch)), dict(task="feature-extraction")
            made_by.append("sentence-transformers")
        elif task == "text encoder":  # optimum knows it as a part of diffusion models
            options = dict(task="feature-extraction", custom_onnx_configs={"model": CLIPTextOnnxConfig(model.config, task="feature-extraction")})
        target = Path(scratch) / "onnx"
        onnx_export_from_model(exported, target, opset=18, do_validation=False, no_post_process=True, **options)
        lengths(target / "model.onnx", False)
        config = {**published(model), "architectures": [type(model).__name__]}
        store.save(target / "model.onnx", drawn, f"full/{fixture}", "model", config, {p: version(p) for p in made_by}, keep=KEEP)
