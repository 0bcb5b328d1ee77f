"""Exports small models in the ways that people do, and prints what graft makes of each: one row a model.

    python sweep.py DIR WAY[,WAY...] [MODEL...]

The ways of torch and Transformers need requirements-exporter.txt, those of genai requirements-genai.txt. GRAFT names the
command, bin/graft else. Every graph is compared with itself, patched (graft ab, as it is, --force, and --force with rows
that are padded on the left and on the right); generation with Hugging Face's, greedy and with four beams. All is kept below
DIR/WAY/MODEL: graphs, tokens of Hugging Face (expected.json) and what the commands said (row.json). --table FILE writes the
rows below DIR, of this call and earlier ones, as sweep.tsv has them.
"""

import argparse
import contextlib
import copy
import functools
import inspect
import io
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import traceback
import types
import warnings
import wave
from importlib import metadata
from pathlib import Path

import numpy as np
import torch

import generation_families as families
import generation_subjects as subjects
import genai_small
import scale
from transformers.modeling_outputs import BaseModelOutput

GRAFT = os.environ.get("GRAFT", str(Path(__file__).resolve().parents[2] / "bin" / "graft"))
NEW, PROMPTS, BEAMS = 24, 4, {"greedy": 1, "beam 4": 4}
EXPORTER = {"exporter": {}, "exporter23": {"opset_version": 23}, "exporter24": {"opset_version": 24}, "fused": {"ort_fusions": "cpu"}}
DYNAMO = {"dynamo18": 18, "dynamo23": 23, "dynamo24": 24}
GENAI = {"genai": (genai_small.FLOAT32, ()), "genai-int4": (genai_small.INT4, (genai_small.EXACT,))}
WAYS = (*DYNAMO, *EXPORTER, *GENAI)
PACKAGES = ("torch", "transformers", "onnxscript", "onnxruntime-genai")
COLUMNS = ("way", "model", "opset", "attention", "forced", "default", "padded", *BEAMS, "reason")

DECODERS = ("gpt2", "llama", "gptj", "gpt-neo", "gpt-neox", "gpt-bigcode", "bloom", "opt", "falcon", "falcon-new", "mpt", "mistral", "qwen2",
            "qwen3", "phi", "phi3", "gemma", "gemma2", "gemma3", "stablelm", "granite", "olmo", "olmo2", "smollm3", "cohere", "helium", "glm",
            "nemotron", "arcee", "deepseek-v3", "qwen3-moe", "mixtral", "gpt-oss", "diffllama")
READERS = ("bart", "marian", "m2m100", "pegasus", "mbart", "blenderbot", "blenderbot-small", "t5-tied", "mt5", "whisper", "moonshine", "led", "longt5",
           "longt5-global", "pegasus-x")
ENCODERS = ("albert", "roberta", "xlm-roberta", "distilbert", "electra", "mpnet", "deberta", "deberta-v2", "deberta-v3", "esm", "modernbert",
            "roformer", "bigbird", "nystromformer", "squeezebert", "flan-t5-encoder", "mt5-encoder", "beit", "dinov2", "dinov3", "segformer", "swin", "swinv2",
            "vit", "yolos", "ast", "hubert", "wav2vec2", "wavlm", "convbert", "mobilebert", "hiera", "table-transformer", "sew-d", "vits", "layoutlmv3",
            "c2psa")
BUILT = {  # by genai's builder, beside those of generation_families
    "ernie4-5": lambda: families.decoder("ernie4_5", **families.LLAMA, head_dim=16),
    "hunyuan": lambda: families.decoder("hunyuan_v1_dense", **families.LLAMA, head_dim=16),
    "lfm2": lambda: families.decoder("lfm2", **families.LLAMA, layer_types=["conv", "full_attention"]),
}
T5 = {r"shared$": 2.5, r"SelfAttention\.o$|\.wo$": 4, r"\.q$": 5, r"relative_attention_bias": 5, r"decoder.final_layer_norm": families.SIGNS}
LONG_T5 = dict(start=0, prefix=(), pad_token_id=0, num_layers=2, num_decoder_layers=2, d_model=56, d_kv=16, num_heads=4, d_ff=80, vocab_size=296,
               local_radius=5, relative_attention_num_buckets=12, relative_attention_max_distance=24)
families.MAKERS.update({
    "diffllama": lambda: families.decoder("diffllama", **families.LLAMA, head_dim=16),
    "longt5": lambda: families.reader("longt5", T5, **LONG_T5, encoder_attention_type="local"),
    "longt5-global": lambda: families.reader("longt5", T5, **LONG_T5, encoder_attention_type="transient-global", global_block_size=4),
    "pegasus-x": lambda: families.reader("pegasus_x", start=1, prefix=(), **families.READERS, num_global_tokens=4, block_size=8),
})
ALONE = dict(num_hidden_layers=2, hidden_size=64, expand=2, conv_kernel=4, vocab_size=320)
MIXED = dict(**families.LLAMA, mamba_d_head=16, mamba_n_heads=8, mamba_expand=2, mamba_n_groups=1, mamba_d_state=8, mamba_d_conv=4,
             mamba_chunk_size=4)
STATES = {  # recurrent ones, beside keys and values or alone, by Transformers' exporter
    "falcon-h1": lambda: families.decoder("falcon_h1", **families.LLAMA, head_dim=16, mamba_d_ssm=64, mamba_n_heads=4, mamba_d_head=16,
                                          mamba_n_groups=1, mamba_d_state=8, mamba_d_conv=4, mamba_chunk_size=4),
    "bamba": lambda: families.decoder("bamba", **MIXED, attn_layer_indices=[1]),
    "jamba": lambda: families.decoder(
        "jamba", **families.LLAMA, attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1, num_experts=2,
        num_experts_per_tok=1, mamba_d_state=8, mamba_d_conv=4, mamba_dt_rank=8, mamba_expand=1, use_mamba_kernels=False),
    "mamba": lambda: families.decoder("mamba", **ALONE, state_size=8, time_step_rank=8),
    "mamba2": lambda: families.decoder("mamba2", **ALONE, state_size=8, num_heads=8, head_dim=16, n_groups=1, chunk_size=4),
    "qwen3-next": lambda: families.decoder(
        "qwen3_next", **families.LLAMA, head_dim=16, layer_types=["linear_attention", "full_attention"], linear_num_value_heads=4,
        linear_num_key_heads=2, linear_key_head_dim=16, linear_value_head_dim=16, linear_conv_kernel_dim=4, num_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=48, shared_expert_intermediate_size=48),
    "zamba2": lambda: families.decoder(
        "zamba2", **families.WIDTHS, layers_block_type=["mamba", "hybrid"], num_mem_blocks=1, mamba_d_state=8, mamba_ngroups=1,
        n_mamba_heads=8, mamba_expand=2, chunk_size=4, adapter_rank=8, use_mamba_kernels=False),
}
OTHERWISE = {  # graphs that compute something else than their model, seen in the graph
    ("genai", "mistral"): "the builder leaves the window out: local_window_size is -1, sliding_window 16",
    ("genai", "olmo"): "the builder writes LayerNorm as SimplifiedLayerNormalization, which takes no mean off",
}
families.MAKERS.update(BUILT | STATES | families.EXPORTED)
MAKERS = dict(families.MAKERS)


def turned(name, size=32):
    """A model whose heads ONNX Runtime's GroupQueryAttention turns: of 16, 32 and so on."""
    subject = MAKERS[name]()
    subject.config.head_dim = size
    return subject


def models_of(way):
    if way in DYNAMO:
        return (*DECODERS, *READERS, *ENCODERS)
    if way in GENAI:
        return (*DECODERS, *BUILT)
    return (*DECODERS, *BUILT, *STATES, *READERS, *(name for name in ENCODERS if name != "c2psa"))  # which is no class of Transformers


# torch's exporter alone.


def legacy(cache):
    return tuple((layer.keys, layer.values) for layer in cache.layers)


def accepted(model, **values):
    """The arguments that a model has."""
    known = inspect.signature(model.forward).parameters
    return {name: value for name, value in values.items() if name in known}


class Decoder(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, position_ids, past):
        from transformers import DynamicCache

        result = self.model(input_ids=input_ids, past_key_values=DynamicCache(past), use_cache=True,
                            **accepted(self.model, attention_mask=attention_mask, position_ids=position_ids))
        return result.logits, legacy(result.past_key_values)


class Encoder(torch.nn.Module):
    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *values):
        result = self.model(**dict(zip(self.names, values, strict=True)), return_dict=True)
        return result.waveform if "waveform" in result.__dict__ else result.last_hidden_state


def read_of(model, hidden):
    """What an encoder's decoder reads of it."""
    from transformers.models.moonshine.modeling_moonshine import MoonshineEncoderModelOutput

    return (MoonshineEncoderModelOutput if model.config.model_type == "moonshine" else BaseModelOutput)(last_hidden_state=hidden)


class PositionSensitive(torch.nn.Module):
    """Attention over the pixels of an image as YOLO11 has it (C2PSA): keys and values are narrower and wider than each other, positions
    come last, and values are multiplied by probabilities that are turned; a convolution of the values is added."""

    def __init__(self, width=64, heads=4, size=8):
        super().__init__()
        self.config = types.SimpleNamespace(image_size=16, num_channels=3, model_type="c2psa")
        self.heads, self.size, self.value = heads, size, width // heads
        self.stem = torch.nn.Conv2d(3, width, 4, stride=2, padding=1)
        self.rows = torch.nn.Conv2d(width, heads * (2 * size + self.value), 1)
        self.near = torch.nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.out = torch.nn.Conv2d(width, width, 1)

    def forward(self, pixel_values, return_dict=True):
        x = torch.nn.functional.silu(self.stem(pixel_values))
        batch, width, high, wide = x.shape
        rows = self.rows(x).reshape(batch, self.heads, 2 * self.size + self.value, high * wide)
        query, key, value = rows.split([self.size, self.size, self.value], dim=2)
        weights = (query.transpose(2, 3) @ key * self.size**-0.5).softmax(dim=3)
        seen = (value @ weights.transpose(2, 3)).reshape(batch, width, high, wide)
        return BaseModelOutput(last_hidden_state=x + self.out(seen + self.near(value.reshape(batch, width, high, wide))))


class First(torch.nn.Module):
    """An encoder's decoder, without a past."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, encoder_attention_mask, input_ids, encoder_hidden_states):
        result = self.model(decoder_input_ids=input_ids, encoder_outputs=read_of(self.model, encoder_hidden_states), use_cache=True,
                            **accepted(self.model, attention_mask=encoder_attention_mask))
        cache = result.past_key_values
        return result.logits, legacy(cache.self_attention_cache), legacy(cache.cross_attention_cache)


class Next(torch.nn.Module):
    """An encoder's decoder with a past, which holds what there is of the encoder."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, encoder_attention_mask, input_ids, own, cross):
        from transformers import DynamicCache, EncoderDecoderCache

        keys = cross[0][0]
        hidden = torch.zeros(keys.shape[0], keys.shape[2], self.model.config.hidden_size)
        result = self.model(
            decoder_input_ids=input_ids, encoder_outputs=read_of(self.model, hidden), use_cache=True,
            past_key_values=EncoderDecoderCache(DynamicCache(own), DynamicCache(cross)),
            **accepted(self.model, attention_mask=encoder_attention_mask))
        return result.logits, legacy(result.past_key_values.self_attention_cache)


B, S, P, T, E = "batch_size", "sequence_length", "past_sequence_length", "total_sequence_length", "encoder_sequence_length"


def save(module, arguments, dims, inputs, outputs, opset, path):
    with torch.no_grad():
        program = torch.onnx.export(module, arguments, dynamo=True, opset_version=opset, dynamic_shapes=dims,
                                    input_names=inputs, output_names=outputs, verbose=False)
    program.save(path)


def pasts(prefix, layers, kinds):
    return [f"{prefix}.{n}.{kind}" for n in range(layers) for kind in kinds]


def dynamo_decoder(model, opset, target):
    from transformers.exporters.exporter_onnx import use_experts_implementation

    tokens = torch.arange(6).reshape(2, 3) + 3
    with torch.no_grad():
        past = legacy(model(torch.arange(10).reshape(2, 5) + 3, use_cache=True).past_key_values)
    mask, positions = torch.ones(2, 8, dtype=torch.int64), torch.arange(5, 8).expand(2, 3).contiguous()
    axes = {0: B, 2: P}
    layers, kinds = len(past), ("key", "value")
    with use_experts_implementation(model, "batched_mm"):  # torch has no ONNX for the grouped one
        save(Decoder(model), (tokens, mask, positions, past), ({0: B, 1: S}, {0: B, 1: T}, {0: B, 1: S}, ((axes, axes),) * layers),
             ["input_ids", "attention_mask", "position_ids", *pasts("past_key_values", layers, kinds)],
             ["logits", *pasts("present", layers, kinds)], opset, target / "model.onnx")


def dynamo_reader(model, opset, target):
    sound, samples = model.config.model_type == "whisper", model.config.model_type == "moonshine"
    encoder = model.get_encoder()
    tokens = torch.arange(14).reshape(2, 7) + 3
    mask, start = torch.ones_like(tokens), torch.tensor([[3, 5, 6], [3, 7, 8]])
    if sound:
        features = torch.randn(2, model.config.num_mel_bins, 2 * model.config.max_source_positions)
        save(Encoder(encoder, ["input_features"]), (features,), (({0: B},),), ["input_features"], ["last_hidden_state"], opset,
             target / "encoder_model.onnx")
        hidden = torch.randn(2, model.config.max_source_positions, model.config.d_model)
        mask = torch.ones(2, model.config.max_source_positions, dtype=torch.int64)
    elif samples:
        save(Encoder(encoder, ["input_values"]), (torch.randn(2, 4000),), (({0: B, 1: "samples"},),), ["input_values"], ["last_hidden_state"], opset,
             target / "encoder_model.onnx")
        hidden, mask = torch.randn(2, 7, model.config.hidden_size), None
    else:
        names = ["input_ids", "attention_mask"]
        save(Encoder(encoder, names), (tokens, mask), (({0: B, 1: S}, {0: B, 1: S}),), names, ["last_hidden_state"], opset,
             target / "encoder_model.onnx")
        hidden = torch.randn(2, 7, model.config.hidden_size)
    first, later = First(model), Next(model)
    with torch.no_grad():
        _, own, cross = first(mask, start, hidden)
    layers, kinds = len(own), ("key", "value")
    mine, theirs = {0: B, 2: P}, {0: B} if sound else {0: B, 2: E}
    present = [f"present.{n}.decoder.{k}" for n in range(layers) for k in kinds]
    beside = [f"{{}}.{n}.encoder.{k}" for n in range(layers) for k in kinds]
    width = {0: B} if sound else {0: B, 1: E}
    masked, read = None if samples else width, ["input_ids"] if samples else ["encoder_attention_mask", "input_ids"]
    save(first, (mask, start, hidden), (masked, {0: B, 1: S}, width), [*read, "encoder_hidden_states"],
         ["logits", *present, *(n.format("present") for n in beside)], opset, target / "decoder_model.onnx")
    save(later, (mask, start, own, cross), (masked, {0: B, 1: S}, ((mine, mine),) * layers, ((theirs, theirs),) * layers),
         [*read, *(n.replace("present", "past_key_values") for n in present), *(n.format("past_key_values") for n in beside)],
         ["logits", *present], opset, target / "decoder_with_past_model.onnx")


def make_encoder(name):
    import families_export as known

    if name == "c2psa":
        torch.manual_seed(1)
        return PositionSensitive().eval()
    known.SUBJECTS.update({  # beside those that are fixtures
        "convbert": ("convbert", dict(known.TEXT, embedding_size=64)),
        "dinov3": ("dinov3_vit", dict(known.IMAGE, num_register_tokens=2)),
        "hiera": ("hiera", dict(image_size=[64, 64], embed_dim=16, depths=[1, 1, 1], num_heads=[1, 2, 4], masked_unit_size=[4, 4], num_query_pool=1,
                                masked_unit_attention=[True, False, False])),
        "layoutlmv3": ("layoutlmv3", dict(known.TEXT, input_size=32, patch_size=8, coordinate_size=12, shape_size=8, max_2d_position_embeddings=1024,
                                          rel_pos_bins=8, max_rel_pos=16, rel_2d_pos_bins=8, max_rel_2d_pos=32)),
        "mobilebert": ("mobilebert", dict(known.TEXT, embedding_size=64, intra_bottleneck_size=32)),
        "sew-d": ("sew-d", dict(known.SOUND, squeeze_factor=2, position_buckets=16, max_position_embeddings=64, num_feat_extract_layers=3)),
        "table-transformer": ("table-transformer", dict(
            use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, num_queries=6, d_model=32, encoder_layers=2, decoder_layers=2,
            encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
            backbone_config=dict(model_type="resnet", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", out_features=["stage2"]))),
    })
    return known.make(name)[0]


def encoder_sample(model):
    """What an encoder reads, two of it, and the axes that have names."""
    text = {0: B, 1: S}
    main, kind = getattr(model, "main_input_name", "pixel_values" if isinstance(model, PositionSensitive) else "input_ids"), model.config.model_type
    if kind == "layoutlmv3":
        tokens = torch.arange(18).reshape(2, 9) + 3
        boxes = torch.arange(72).reshape(2, 9, 4) % 29
        boxes[..., 2:] += boxes[..., :2]
        return ({"input_ids": tokens, "bbox": boxes, "attention_mask": torch.ones_like(tokens), "pixel_values": torch.randn(2, 3, 32, 32)},
                [text, text, text, {0: B}])
    if kind == "table-transformer":
        return {main: torch.randn(2, 3, 48, 64), "pixel_mask": torch.ones(2, 48, 64, dtype=torch.int64)}, [{0: B}, {0: B}]
    if main == "pixel_values":
        size = model.config.image_size
        high, wide = size if isinstance(size, (list, tuple)) else (size, size)
        return {main: torch.randn(2, model.config.num_channels, high, wide)}, [{0: B}]
    if main == "input_values" and kind == "audio-spectrogram-transformer":
        return {main: torch.randn(2, model.config.max_length, model.config.num_mel_bins)}, [{0: B}]
    if main == "input_values":
        return {main: torch.randn(2, 2000)}, [{0: B, 1: "samples"}]
    tokens = torch.arange(18).reshape(2, 9) + 3
    return {main: tokens, "attention_mask": torch.ones_like(tokens)}, [text, text]


def dynamo_encoder(model, opset, target):
    examples, axes = encoder_sample(model)
    save(Encoder(model, list(examples)), tuple(examples.values()), (tuple(axes),), list(examples), ["last_hidden_state"], opset,
         target / "model.onnx")


# Transformers' exporter.


def by_exporter(model, options, target):
    import onnx
    from transformers import GenerationConfig
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    import exporter_small

    exporter, config = OnnxExporter(), OnnxConfig(dynamic=True, **options)
    sample, start = exporter_small.sample_of(model), {}
    if model.config.is_encoder_decoder:  # of one token, lengths of prompts and of the first past would be constants
        start = {"decoder_input_ids": torch.tensor([[3, 5, 6], [3, 7, 8]])}
    exported = exporter.export_for_generation(model, {**sample, **start}, config, generation_config=GenerationConfig(pad_token_id=0))
    if start and "encoder" not in exported.components:
        exported.components["encoder"] = exporter.export(model.get_encoder(), sample, config).components["model"]
    exported.generation_config = None
    exported.save_pretrained(target)


def exporter_encoder(model, options, target):
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    exported = OnnxExporter().export(model, encoder_sample(model)[0], OnnxConfig(dynamic=True, **options))
    exported.save_pretrained(target)


# What is compared.


def prompts_of(subject):
    drawn = np.random.default_rng(1)
    return [[*subject.prefix, *drawn.integers(3, subject.tokens, n).tolist(), *subject.suffix] for n in (4, 9, 2, 6)[:PROMPTS]]


def sound_of(seed, *shape):
    return np.random.default_rng(seed).normal(size=(1, *shape))[0].astype(np.float32)


def expect(model, subject):
    """Prompts, or features, and Hugging Face's tokens of each, by search."""
    given, answers = [], {search: [] for search in BEAMS}
    prompts = prompts_of(subject)
    for n, prompt in enumerate(prompts):
        if model.config.model_type == "whisper":
            given.append(sound_of(n, model.config.num_mel_bins, 2 * model.config.max_source_positions))
            inputs = {"input_features": torch.from_numpy(given[-1][None]).to(model.dtype)}
        elif model.config.model_type == "moonshine":
            given.append(np.round(sound_of(n, 6000 + 1000 * n).clip(-3, 3) * 8192) / 32768)  # as a file of sound has them
            inputs = {"input_values": torch.from_numpy(given[-1][None]).to(model.dtype)}
        else:
            tokens = torch.tensor([prompt])
            inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
            given.append(prompt)
        for search, beams in BEAMS.items():
            with torch.no_grad():
                out = model.generate(**inputs, num_beams=beams, do_sample=False, max_new_tokens=NEW)[0].tolist()
            if not model.config.is_encoder_decoder:
                out = out[len(prompt):]
            elif "decoder_input_ids" not in inputs and out and out[0] == model.config.decoder_start_token_id:
                out = out[1:]
            answers[search].append(out)
    return given, answers


@functools.lru_cache(maxsize=1)
def asked(name, way):
    """A model, its prompts, and what Hugging Face generates from them."""
    attention = "eager" if name in families.EAGER or way in GENAI else scale.choose("sdpa")
    try:
        model, _ = subjects.make(name, attention)
    except (ImportError, ValueError):  # the class has no other
        model, _ = subjects.make(name, "eager")
    return model, *expect(model, subjects.find(name))


def write_inputs(given, subject, target):
    """A tokenizer whose words are t0, t1, ..., and the lines of the inputs."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({f"t{i}": i for i in range(subject.tokens)}, unk_token="t0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=made).save_pretrained(target)
    lines = []
    for n, value in enumerate(given):
        if isinstance(value, list):
            lines.append(" ".join(f"t{i}" for i in value))
        elif value.ndim == 1:
            with wave.open(str(target / f"sound{n}.wav"), "wb") as file:
                file.setparams((1, 2, 16000, 0, "NONE", None))
                file.writeframes((value * 32768).astype("<i2").tobytes())
            (target / "preprocessor_config.json").write_text(json.dumps({
                "feature_extractor_type": "Wav2Vec2FeatureExtractor", "do_normalize": False, "feature_size": 1, "sampling_rate": 16000}))
            lines.append(str(target / f"sound{n}.wav"))
        else:
            np.save(target / f"features{n}.npy", value)
            lines.append(str(target / f"features{n}.npy"))
    (target / "inputs.txt").write_text("\n".join(lines) + "\n")


def graft(*arguments):
    """The exit code of a command, its output, and its last line on stderr."""
    ran = subprocess.run([GRAFT, *map(str, arguments)], capture_output=True, text=True, timeout=600)
    lines = ran.stderr.strip().splitlines()
    return ran.returncode, ran.stdout, lines[-1] if lines else ""


def error_of(out, said):
    for text in (said, out):
        with contextlib.suppress(ValueError, KeyError):  # no JSON, or a result
            return json.loads(text)["error"]
    return said or out[-300:]


def padded(made, path):
    """The masks of a graph, of two rows: one padded on the left, one on the right. Else None."""
    masks = {}
    for given in made["inputs"]:
        if "mask" in given["name"] and len(given["shape"]) == 2 and given["shape"][0] == 2 and given["shape"][1] > 2:
            value = np.ones(given["shape"], dtype={"bool": bool, "float32": np.float32}.get(given["type"], np.int64))
            third = given["shape"][1] // 3
            value[0, :third], value[1, -third:] = 0, 0
            masks[given["name"]] = value
    if not masks:
        return None
    np.savez(path, **masks)
    return path


def compared(path):
    """How a graph compares with itself, by form; and what is recognised of it."""
    code, out, said = graft("inspect", path, "--force", "-o", "json")
    if code:
        return {"error": error_of(out, said)}
    seen = json.loads(out)
    row = {
        "attention": [{k: b.get(k) for k in ("node", "plugin", "reason")} for b in seen["blocks"] if b["kind"] == "attention"],
        "unrecognised": seen["unrecognised"], "opset": next((o["version"] for o in seen["opsets"] if o["domain"] == "ai.onnx"), None),
        "ab": {},
    }
    few = ("--rounds", 1, "--warmup", 1, "-o", "json")
    axes = lambda count, size: [o for i in seen["inputs"] for n, c in enumerate(i.get("counts") or []) if c == count
                                for o in ("--dim", f"{i['name']}.{n}={size}")]
    # Some graphs hold for one row alone, some for fewer tokens than ab takes.
    tries = {"": axes("batch", 2), "one row": axes("batch", 1), "a past of 32": [*axes("batch", 2), *axes("past", 32)],
             "4,000 samples": [*axes("batch", 2), "--dim", "input_values.1=4000"],
             "64 by 64 pixels": [*axes("batch", 2), "--dim", "pixel_values.2=64", "--dim", "pixel_values.3=64"]}
    masks = None
    for form, options in {"forced": ["--force"], "default": [], "padded": ["--force"]}.items():
        if form == "padded":
            if not masks:
                continue
            options = [*options, "--inputs", masks]
        for sizes, dims in tries.items():
            if any("_values." in o and not any(o.startswith(i["name"] + ".") for i in seen["inputs"]) for o in dims):
                continue
            code, out, said = graft("ab", path, *options, *dims, *few)
            error = error_of(out, said)
            if "a (none): onnxruntime" not in error:
                break
        try:
            made = json.loads(out)
        except ValueError:
            made = {}
        if "parity" not in made:
            row["ab"][form] = {"equal": True, "replaced": 0, "worst": 0} if "nothing is replaced on either side" in error else error
            continue
        row["ab"][form] = {"equal": made["parity"]["ok"], "replaced": made["b"]["replaced"],
                           "worst": max((o.get("of_tolerance") or 0 for o in made["parity"]["outputs"]), default=0)}
        if not made["parity"]["ok"]:
            row["ab"][form]["seeds"] = by_seeds(path, *options, *dims, *few)
        if sizes:
            row["ab"][form]["of"] = f"{sizes}: ONNX Runtime does not run more"
        if form == "forced":
            masks = padded(made, path.with_suffix(".npz"))
    return row


def by_seeds(path, *options):
    """Whether sides that differ do so by rounding: which of them is nearer to the model in float64, over inputs of 16 seeds.

    Outputs are looked at that miss the tolerance, which takes no side; of two that round alike each is nearer in half.
    """
    equal, apart = 0, []
    for seed in range(2, 18):
        _, out, _ = graft("ab", path, *options, "--seed", seed)
        parity = json.loads(out)["parity"]
        equal += parity["ok"]
        apart += [(o["a_from_float64"]["max_absolute"], o["b_from_float64"]["max_absolute"]) for o in parity["outputs"] if o.get("a_from_float64")]
    row = {"equal": f"{equal} of 16", "nearer": f"{sum(b < a for a, b in apart)} of {len(apart)}"}
    if apart:
        row["medians"] = "median plain {:.2g}, patched {:.2g}".format(*np.median(apart, axis=0))
    return row


def generated(target, answers, wide, ends):
    """Of each search how many of the answers are Hugging Face's, or why there are none.

    Where not all are, how many are Hugging Face's in float64, which decides a tie, those of the graph as exported, by ONNX Runtime, and by onnxruntime-genai (greedy: its
    beams end otherwise) where that is there: a graph of four bits has other tokens than its model.
    """
    row = {}
    same = lambda a, b: sum(cut(x, ends) == cut(y, ends) for x, y in zip(a, b, strict=True))
    for search, beams in BEAMS.items():
        mine = tokens_of(target, beams)
        if isinstance(mine, str):
            return {search: mine}
        row[search], row[search + " tokens"] = same(mine, answers[search]), mine
        if row[search] < len(mine):
            row[search + ", Hugging Face in float64"] = same(mine, wide()[search])
            plain = tokens_of(target, beams, "--baseline")
            row[search + ", exported"] = plain if isinstance(plain, str) else same(mine, plain)
            if beams == 1 and (target / genai_small.CONFIG).exists():
                try:
                    row[search + ", genai"] = same(mine, genai_tokens(target))
                except (ImportError, RuntimeError) as error:  # it does not run all that it builds
                    row[search + ", genai"] = f"{error}".splitlines()[0][-300:]
    return row


def tokens_of(target, beams, *options):
    """What graft generates of each input, or its refusal."""
    code, out, said = graft("generate", target, "--input", target / "inputs.txt", "--format", "jsonl", "--max-new-tokens", NEW,
                            "--num-beams", beams, "--do-sample=false", "-q", *options)
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    if not lines or "index" not in lines[0]:
        return error_of(out, said)
    return [line["sequences"][0]["tokens"] if line.get("sequences") else line.get("error") for line in lines]


def genai_tokens(target):
    import onnxruntime_genai as genai

    model, answers = genai.Model(str(target)), []
    for line in (target / "inputs.txt").read_text().splitlines():
        prompt = [int(word[1:]) for word in line.split()]
        options = genai.GeneratorParams(model)
        options.set_search_options(max_length=len(prompt) + NEW, do_sample=False, batch_size=1)
        generator = genai.Generator(model, options)
        generator.append_tokens(prompt)
        while not generator.is_done():
            generator.generate_next_token()
        answers.append([int(t) for t in generator.get_sequence(0)][len(prompt):])
    return answers


def cut(tokens, ends):
    """Tokens before the one that ends."""
    if not isinstance(tokens, list):
        return tokens
    return tokens[: next((n for n, t in enumerate(tokens) if t in ends), len(tokens))]


def run(way, name, target):
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    row = {"way": way, "model": name}
    if name in ENCODERS:
        encoder = make_encoder(name)
        if way in EXPORTER:
            exporter_encoder(encoder, EXPORTER[way], target)
        else:
            dynamo_encoder(encoder, DYNAMO[way], target)
    else:
        subject = subjects.find(name)
        model, given, answers = asked(name, way)
        if way in GENAI:
            precision, options = GENAI[way]
            genai_small.build(model, target, precision, options)
        elif way in EXPORTER:
            by_exporter(model, EXPORTER[way], target)
        elif model.config.is_encoder_decoder:
            dynamo_reader(model, DYNAMO[way], target)
        else:
            dynamo_decoder(model, DYNAMO[way], target)
        config, generation = subjects.published(name, model)
        for file, value in (("config.json", config), ("generation_config.json", generation)):
            (target / file).write_text(json.dumps(value))
        write_inputs(given, subject, target)
        (target / "expected.json").write_text(json.dumps(answers))
    return row | measure(name, way, target)


def measure(name, way, target):
    """Asks graft about a folder that was written."""
    row = {"graphs": {path.stem: compared(path) for path in sorted(target.glob("*.onnx"))}}
    if (target / "expected.json").exists():
        ends = json.loads((target / "generation_config.json").read_text())["eos_token_id"]
        wide = functools.cache(lambda: expect(copy.deepcopy(asked(name, way)[0]).double(), subjects.find(name))[1])
        row["generate"] = generated(target, json.loads((target / "expected.json").read_text()), wide, ends if isinstance(ends, list) else [ends])
    return row


def cells_of(row):
    """A row of the table, without its reasons."""
    graphs = row.get("graphs", {})

    def share(form):
        made = [g["ab"][form] for g in graphs.values() if form in g.get("ab", ())]
        return f"{sum(isinstance(v, dict) and v['equal'] for v in made)}/{len(made)}" if made else ""

    seen = [a for g in graphs.values() for a in g.get("attention", ())]
    missed = sum(len(g.get("unrecognised", ())) for g in graphs.values())
    generate = row.get("generate", {})
    opsets = {g.get("opset") for g in graphs.values()} - {None}
    attention = f"{sum(bool(a['plugin']) for a in seen)} of {len(seen)}" if graphs else ""
    return [row["way"], row["model"], "/".join(map(str, sorted(opsets))), attention + (f", {missed} not" if missed else ""),
            *map(share, ("forced", "default", "padded")),
            *(f"{generate[s]}/{PROMPTS}" if isinstance(generate.get(s), int) else "refused" if s in generate else "" for s in BEAMS)]


def said_of(form):
    """Why a comparison is not one of two rows whose sides are equal."""
    lines = [form["of"]] if "of" in form else []
    if not form["equal"]:
        lines.append(f"{form['worst']:.2g} of the tolerance")
        seeds = form["seeds"]
        lines.append(f"of other seeds {seeds['equal']} equal")
        if "medians" in seeds:
            lines.append(f"nearer to float64 in {seeds['nearer']}, {seeds['medians']}")
    return ", ".join(lines)


def reasons_of(row):
    """What is not as it should be."""
    lines = [OTHERWISE[key]] if (key := (row["way"], row["model"])) in OTHERWISE else []
    if "failed" in row:
        lines.append(f"not exported: {row['failed']}")
    for graph, g in row.get("graphs", {}).items():
        if "error" in g:
            lines.append(f"{graph}: {g['error']}")
        lines += [f"{graph}: {u.get('node')}: {u.get('reason')}" for u in g.get("unrecognised", ())]
        lines += dict.fromkeys(f"{graph}: left: {a['reason']}" for a in g.get("attention", ()) if not a["plugin"])
        lines += [f"{graph} {form}: {v if isinstance(v, str) else said_of(v)}"
                  for form, v in g.get("ab", {}).items() if isinstance(v, str) or not v["equal"] or "of" in v]
    return lines + [f"generate, {s}: {v if isinstance(v, str) else f'{v}/{PROMPTS}'}"
                    for s, v in row.get("generate", {}).items() if isinstance(v, str) or "," in s]


def versions():
    """The packages here that write graphs."""
    made = []
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            made.append(f"{package} {metadata.version(package)}")
    return ", ".join(made)


def failure_of(error):
    """What an exporter's error came from."""
    while error.__cause__:
        error = error.__cause__
    if isinstance(error, subprocess.CalledProcessError):
        return re.sub(r"/\S*/tmp\w+ ", "", (error.stderr or str(error)).strip().splitlines()[-1])[:200]
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def write_table(directory, path):
    """All rows below a directory, sorted, below the versions that made them."""
    rows = sorted((json.loads(file.read_text()) for file in directory.glob("*/*/row.json")), key=lambda row: (row["way"], row["model"]))
    made = {}
    for row in rows:
        made.setdefault(row["versions"], set()).add(row["way"])
    lines = [f"# {', '.join(sorted(ways))}: {versions}" for versions, ways in sorted(made.items())]
    lines.append("\t".join(COLUMNS))
    for row in rows:
        said = "; ".join(reasons_of(row)).replace(f"{directory / row['way'] / row['model']}/", "").replace("\t", " ").replace("\n", " ")
        lines.append("\t".join((*cells_of(row), said)))
    path.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("ways", help="an empty one writes the table alone")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--again", action="store_true", help="ask graft again about what was exported")
    parser.add_argument("--table", type=Path, help="where to write all rows below the directory, with the versions that made them")
    given = parser.parse_intermixed_args()
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    print(f"| {' | '.join(COLUMNS[:-1])} |\n{'|---' * len(COLUMNS[:-1])}|")
    ways = [way for way in given.ways.split(",") if way]
    if set(ways) & set(GENAI):
        families.MAKERS.update({name: functools.partial(turned, name) for name in ("qwen3", "gemma", "gemma2", "gemma3", "nemotron", "phi")})
        families.MAKERS["phi3"] = lambda: families.decoder("phi3", **families.LLAMA, original_max_position_embeddings=192)  # else of long texts
    for name in given.models or dict.fromkeys(name for way in ways for name in models_of(way)):
        for way in ways:
            if name not in models_of(way):
                continue
            target = given.directory / way / name
            row = {"way": way, "model": name}
            try:
                if given.again:
                    if not list(target.glob("*.onnx")):
                        continue
                    row |= measure(name, way, target)
                else:
                    with contextlib.redirect_stdout(io.StringIO()) as said:
                        row = run(way, name, target)
            except Exception as error:  # an exporter's own failure is a row
                row["failed"] = failure_of(error)
                (target / "failed.txt").write_text(traceback.format_exc())
            row["versions"] = versions()
            (target / "row.json").write_text(json.dumps(row, indent=1))
            print(f"| {' | '.join(cells_of(row))} |", *reasons_of(row), sep="\n    ", flush=True)
    if given.table:
        write_table(given.directory, given.table)


if __name__ == "__main__":
    sys.exit(main())
