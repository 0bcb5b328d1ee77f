"""Graphs of many families of encoders, each of two layers: TorchScript's exporter (optimum's, where it has the
family) and torch's dynamo exporter, opset 18.
"""

import tempfile
from importlib.metadata import version
from pathlib import Path

import onnx
import torch
import transformers
from transformers import AutoConfig, AutoModel

import jamba
import seeded
import store

TEXT = dict(num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=96, vocab_size=200,
            max_position_embeddings=96, pad_token_id=1)
IMAGE = dict(num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=96, image_size=32,
             patch_size=8, num_channels=3)
T5 = dict(num_layers=2, num_decoder_layers=1, d_model=64, d_kv=16, num_heads=4, d_ff=96, vocab_size=200,
          feed_forward_proj="gated-gelu", decoder_start_token_id=0)
SOUND = dict(num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=96, vocab_size=40,
             conv_dim=(16, 16, 16), conv_kernel=(10, 3, 3), conv_stride=(5, 2, 2), num_feat_extract_layers=3,
             num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=4)
DISENTANGLED = dict(TEXT, relative_attention=True, max_relative_positions=-1, position_buckets=16,
                    pos_att_type=["p2c", "c2p"], share_att_key=True, norm_rel_ebd="layer_norm",
                    position_biased_input=False, type_vocab_size=0, pad_token_id=0)
SWIN = dict(image_size=16, patch_size=2, num_channels=3, embed_dim=32, depths=[2], num_heads=[2], window_size=4)

# Layers with attention beside recurrent ones.
HYBRID = dict(num_hidden_layers=2, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=96, vocab_size=200,
              mamba_d_state=8, mamba_n_groups=1, mamba_n_heads=4, mamba_chunk_size=8, use_cache=False, pad_token_id=0)

# Fixture: model type and fields of its configuration.
SUBJECTS = {
    "albert": ("albert", dict(TEXT, embedding_size=32)),
    "ast": ("audio-spectrogram-transformer", dict(
        num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=96, patch_size=8,
        frequency_stride=8, time_stride=8, max_length=48, num_mel_bins=16)),
    "bamba": ("bamba", dict(HYBRID, attn_layer_indices=[1], mamba_d_head=32, mamba_expand=2)),
    "beit": ("beit", dict(IMAGE, use_relative_position_bias=True, use_mask_token=False)),
    "bigbird": ("big_bird", dict(TEXT, attention_type="original_full")),
    "clip": ("clip", dict(
        text_config=dict(TEXT, projection_dim=32, eos_token_id=2), vision_config=dict(IMAGE, projection_dim=32),
        projection_dim=32)),
    "deberta": ("deberta", dict(TEXT, relative_attention=True, pos_att_type=["c2p", "p2c"], type_vocab_size=0,
                                position_biased_input=False, pad_token_id=0)),
    "deberta-v2": ("deberta-v2", dict(DISENTANGLED, share_att_key=False, norm_rel_ebd="none", position_buckets=-1,
                                      conv_kernel_size=3)),
    "deberta-v3": ("deberta-v2", DISENTANGLED),
    "dinov2": ("dinov2", dict(IMAGE, mlp_ratio=2)),
    "distilbert": ("distilbert", dict(n_layers=2, dim=64, n_heads=4, hidden_dim=96, vocab_size=200,
                                      max_position_embeddings=96)),
    "donut-swin": ("donut-swin", SWIN),
    "electra": ("electra", dict(TEXT, embedding_size=32)),
    "esm": ("esm", dict(TEXT, position_embedding_type="rotary", mask_token_id=3, token_dropout=True)),
    "falcon-h1": ("falcon_h1", dict(HYBRID, mamba_d_head=16, mamba_d_ssm=64, head_dim=16)),  # both in one layer
    "flan-t5-encoder": ("t5", T5),
    "hubert": ("hubert", SOUND),
    # Two kinds of layers: the first is recurrent, the second has attention, and experts.
    "jamba": ("jamba", dict(
        num_hidden_layers=2, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=96, vocab_size=200,
        attn_layer_period=2, attn_layer_offset=1, num_experts=2, num_experts_per_tok=1, mamba_d_state=8, mamba_dt_rank=8,
        mamba_expand=1, use_mamba_kernels=False, use_cache=False)),
    "longformer": ("longformer", dict(TEXT, num_hidden_layers=1, attention_window=8)),
    "longt5-encoder": ("longt5", dict(T5, encoder_attention_type="local", local_radius=5)),
    "modernbert": ("modernbert", dict(
        num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=96, vocab_size=200,
        max_position_embeddings=96, pad_token_id=1, global_attn_every_n_layers=2, local_attention=8,
        reference_compile=False)),
    "mpnet": ("mpnet", TEXT),
    "mt5-encoder": ("mt5", T5),
    "nystromformer": ("nystromformer", dict(TEXT, num_landmarks=4, segment_means_seq_len=16)),
    "roberta": ("roberta", TEXT),
    "roformer": ("roformer", dict(TEXT, embedding_size=64)),
    "segformer": ("segformer", dict(num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[16, 32],
                                    num_attention_heads=[1, 2], patch_sizes=[7, 3], strides=[4, 2], mlp_ratios=[2, 2],
                                    image_size=32)),
    "siglip": ("siglip", dict(text_config=dict(TEXT), vision_config=dict(IMAGE))),
    "speecht5-encoder": ("speecht5", dict(
        encoder_layers=2, decoder_layers=2, hidden_size=64, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=96, decoder_ffn_dim=96, vocab_size=40, max_text_positions=48, encoder_max_relative_position=16)),
    "squeezebert": ("squeezebert", dict(TEXT, embedding_size=64)),
    "swin": ("swin", SWIN),
    "swinv2": ("swinv2", SWIN),
    "vit": ("vit", IMAGE),
    # Without noise, so that its answers are the same in every run.
    "vits": ("vits", dict(
        num_hidden_layers=2, hidden_size=32, num_attention_heads=2, ffn_dim=64, window_size=4, vocab_size=200, flow_size=16,
        spectrogram_bins=17, prior_encoder_num_flows=2, prior_encoder_num_wavenet_layers=2, posterior_encoder_num_wavenet_layers=2,
        duration_predictor_num_flows=2, duration_predictor_filter_channels=16, depth_separable_num_layers=2,
        upsample_initial_channel=32, upsample_rates=[4, 2], upsample_kernel_sizes=[8, 4], resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3]], noise_scale=0.0, noise_scale_duration=0.0)),
    "wav2vec2": ("wav2vec2", SOUND),
    "wavlm": ("wavlm", SOUND),
    "xlm-roberta": ("xlm-roberta", TEXT),
    "yolos": ("yolos", dict(IMAGE, image_size=[32, 48], num_detection_tokens=5)),
    "zamba2": ("zamba2", dict(
        num_hidden_layers=2, layers_block_type=["mamba", "hybrid"], num_mem_blocks=1, hidden_size=64, num_attention_heads=4,
        intermediate_size=96, vocab_size=200, mamba_d_state=8, mamba_ngroups=1, n_mamba_heads=4, mamba_expand=1, chunk_size=8,
        adapter_rank=8, use_mamba_kernels=False, use_cache=False, pad_token_id=0)),
}


# Models that are parts of others.
CLASSES = {
    "flan-t5-encoder": "T5EncoderModel",
    "longt5-encoder": "LongT5EncoderModel",
    "mt5-encoder": "MT5EncoderModel",
    "speecht5-encoder": "SpeechT5EncoderWithTextPrenet",
}
# Those that optimum does not export, with the kind of their input.
PLAIN = {"bamba": "text", "dinov2": "image", "falcon-h1": "text", "flan-t5-encoder": "text", "jamba": "text", "longt5-encoder": "text",
         "mt5-encoder": "text", "speecht5-encoder": "text", "zamba2": "text"}
# Those whose trace holds for the lengths of optimum's example alone.
FIXED, TRACED = ("longformer", "nystromformer"), {"batch_size": 2, "sequence_length": 16}
# Large constants that are not parameters: folded products of them.
KEEP = ("parametrizations", "Conv", "MatMul", "Constant", "Gather")

TINY = SUBJECTS


def make(name):
    """A filled model in evaluation mode, its configuration and how each parameter was drawn."""
    kind, fields = SUBJECTS[name]
    config = AutoConfig.for_model(kind, **fields)
    if name == "speecht5-encoder":
        from transformers.models.speecht5.modeling_speecht5 import SpeechT5EncoderWithTextPrenet as made
        model = made(config)
    elif name in CLASSES:
        model = getattr(transformers, CLASSES[name])(config)
    else:
        model = AutoModel.from_config(config)
    model.eval()
    return model, seeded.initialise(model)


class First(torch.nn.Module):
    """A model of tokens and their mask, or of pixels, and its last hidden state."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *values):
        return self.model(**dict(zip(self.names, values, strict=True)), return_dict=True).last_hidden_state


def arguments_of(kind, batch=2, length=9):
    """Names of the inputs of a kind of model, examples of them, and which axes are free."""
    if kind == "image":
        return ["pixel_values"], (torch.randn(batch, 3, 32, 32),), ({0: "batch_size"},)
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[1, -2:] = 0
    axes = {0: "batch_size", 1: "sequence_length"}
    name = "input_values" if kind == "speecht5" else "input_ids"
    return [name, "attention_mask"], (torch.arange(batch * length).reshape(batch, length) + 3, mask), (axes, axes)


def plain(model, path, kind):
    """The TorchScript exporter without optimum."""
    names, arguments, axes = arguments_of(kind)
    free = dict(zip(names, axes, strict=True))
    free["last_hidden_state"] = {0: "batch_size"} if kind == "image" else {0: "batch_size", 1: "sequence_length"}
    with torch.no_grad():
        torch.onnx.export(First(model, names), arguments, path, dynamo=False, opset_version=18, input_names=names,
                          output_names=["last_hidden_state"], dynamic_axes=free)


def upright(path):
    """Axes of Transpose counted from the front: the exporter passes on negative ones, which ONNX has not."""
    model = onnx.load(path)
    for node in model.graph.node:
        for a in node.attribute:
            if node.op_type == "Transpose" and a.name == "perm":
                a.ints[:] = [i % len(a.ints) for i in a.ints]
    onnx.save(model, path)


def lengths(path, fixed):
    """Names the length of sound otherwise than that of what is made of it, and states lengths that a trace fixed."""
    model = onnx.load(path)
    for i in model.graph.input:
        for d in i.type.tensor_type.shape.dim:
            if fixed and d.dim_param:
                d.dim_value = TRACED[d.dim_param]
            elif i.name == "input_values" and d.dim_param == "sequence_length":
                d.dim_param = "samples"
    onnx.save(model, path)


def run(fixture):
    model, drawn = make(fixture)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "model.onnx"
        if fixture in PLAIN:
            made_by = ("transformers", "torch", "onnx")
            if fixture == "jamba":
                jamba.with_loops(model)
            plain(model, path, "speecht5" if fixture.startswith("speecht5") else PLAIN[fixture])
            upright(path)
        else:
            from optimum.exporters.onnx.convert import onnx_export_from_model

            made_by = ("optimum-onnx", "transformers", "torch", "onnx")
            task = "text-to-audio" if fixture == "vits" else "feature-extraction"
            onnx_export_from_model(model, Path(scratch), opset=18, task=task, do_validation=False, no_post_process=True)
            lengths(path, fixture in FIXED)
        store.save(path, drawn, "families", fixture, published(model), {p: version(p) for p in made_by}, keep=KEEP)


def published(model):
    """The configuration as a checkpoint would carry it."""
    values = model.config.to_dict()
    for key in ("_name_or_path", "transformers_version", "torch_dtype", "dtype"):
        values.pop(key, None)
    return values
