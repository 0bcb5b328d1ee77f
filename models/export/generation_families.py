"""Small models of families of decoders beside those of generation_subjects: each as its class in
Transformers makes it, with what is particular to it (windows, factors of long contexts, experts)
in so few layers and positions that short prompts meet it.

tests/generate asks each of them a few greedy and beam searches, without options.
"""

from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSeq2SeqLM,
    AutoModelForSpeechSeq2Seq,
)

import unilm  # registers its classes
from generation_subjects import SIGNS, Subject

EMBEDDING = r"(embed_tokens|wte|word_embeddings|embed_in|shared|tok_embeddings)$"
POSITIONS = r"(wpe|embed_positions|position_embeddings)$"
OUTPUT = r"(o_proj|down_proj|out_proj|dense|dense_4h_to_h|fc_out|fc2|c_proj|\.o|\.wo)$"
HEAD = r"(lm_head|embed_out)$"
FINAL_NORM = r"(ln_f|norm_f|final_layer_norm|final_layernorm|final_norm|model\.norm|decoder\.layer_norm|decoder\.layers\.1\.final_layer_norm)$"

UNTIED = {EMBEDDING: 20, POSITIONS: 4, OUTPUT: 2, HEAD: 2.5}
TIED = {EMBEDDING: 7, POSITIONS: 4, OUTPUT: 2, FINAL_NORM: SIGNS}
READING = {EMBEDDING: 6, POSITIONS: 6, r"(q_proj|k_proj)$": 4, r"out_proj$": 0.6, FINAL_NORM: SIGNS}

WIDTHS = dict(num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=96, vocab_size=320)
LLAMA = dict(**WIDTHS, num_key_value_heads=2, max_position_embeddings=192)
READERS = dict(encoder_layers=2, decoder_layers=2, d_model=64, encoder_attention_heads=4, decoder_attention_heads=4,
               encoder_ffn_dim=96, decoder_ffn_dim=80, vocab_size=300, max_position_embeddings=128)
ENDS = dict(bos_token_id=1, eos_token_id=44, pad_token_id=0)


def decoder(kind, gains=UNTIED, prefix=(1,), **fields):
    """A decoder alone. Its embedding is no head unless fields say so."""
    fields = {"tie_word_embeddings": gains is TIED, **ENDS, **fields}
    config = AutoConfig.for_model(kind, **fields)
    return Subject(AutoModelForCausalLM, config, {k: fields[k] for k in ENDS}, gains, tokens=config.vocab_size, prefix=prefix)


def reader(kind, gains=READING, start=2, prefix=(0,), **fields):
    """An encoder with its decoder."""
    ends = dict(bos_token_id=0, pad_token_id=1, eos_token_id=53, decoder_start_token_id=start)
    fields = {**ends, "forced_eos_token_id": None, **fields}
    config = AutoConfig.for_model(kind, **fields)
    given = {k: fields[k] for k in ends}
    if fields["forced_eos_token_id"] is not None:
        given["forced_eos_token_id"] = fields["forced_eos_token_id"]
    return Subject(AutoModelForSeq2SeqLM, config, given, gains, tokens=config.vocab_size, prefix=prefix, suffix=(fields["eos_token_id"],))


def prefixed(kind, gains, **fields):
    """A decoder whose prompt, between two tokens, sees all of itself."""
    config = AutoConfig.for_model(kind, **ENDS, **fields)
    return Subject(AutoModelForCausalLM, config, ENDS, gains, tokens=config.vocab_size, prefix=(1,), suffix=(ENDS["eos_token_id"],))


def viewer(encoder, decoder, gains=READING, start=2, **ends):
    """An encoder of pixels with its decoder, each as a model's type and fields."""
    ends = dict(bos_token_id=0, pad_token_id=1, eos_token_id=53, decoder_start_token_id=start, **ends)
    config = AutoConfig.for_model("vision-encoder-decoder", **ends, **{
        side: {"model_type": kind, **fields, **({} if side == "encoder" else dict(is_decoder=True, add_cross_attention=True))} for side, (kind, fields) in {"encoder": encoder, "decoder": decoder}.items()})
    return Subject(AutoModelForImageTextToText, config, ends, gains, tokens=config.decoder.vocab_size, decoder_prompt=(7, 8, 9))


def listener(kind, gains=READING, **fields):
    """An encoder of samples of sound with its decoder."""
    ends = dict(bos_token_id=1, pad_token_id=0, eos_token_id=53, decoder_start_token_id=1)
    config = AutoConfig.for_model(kind, **ends, **fields)
    return Subject(AutoModelForSpeechSeq2Seq, config, ends, gains, tokens=config.vocab_size)


LOOKING = dict(num_hidden_layers=2, hidden_size=48, num_attention_heads=4, intermediate_size=80, image_size=32, patch_size=8)
SAYING = dict(decoder_layers=2, d_model=64, decoder_attention_heads=4, decoder_ffn_dim=80, vocab_size=300,
              max_position_embeddings=128, cross_attention_hidden_size=48)

GPTJ = dict(n_layer=2, n_embd=64, n_head=4, n_positions=192, vocab_size=320)

# Those whose class has no other attention than the eager one.
EAGER = ("gpt-oss", "gptj", "codegen", "gpt-neo", "bloom", "mt5", "flan-t5", "bigbird-pegasus", "led", "xglm", "prophetnet", "unilm")

MAKERS = {
    # Positions.
    "gptj": lambda: decoder("gptj", **GPTJ, rotary_dim=8),
    "codegen": lambda: decoder("codegen", **GPTJ, rotary_dim=8),
    "gpt-neo": lambda: decoder(
        "gpt_neo", TIED, num_layers=2, hidden_size=64, num_heads=4, intermediate_size=96, vocab_size=320,
        max_position_embeddings=192, attention_types=[[["global", "local"], 1]], window_size=16),
    "gpt-neox": lambda: decoder("gpt_neox", **WIDTHS, max_position_embeddings=192, rotary_pct=0.5),
    "gpt-bigcode": lambda: decoder("gpt_bigcode", TIED, **GPTJ, multi_query=True),
    "bloom": lambda: decoder("bloom", TIED, n_layer=2, hidden_size=64, n_head=4, vocab_size=320),
    "opt": lambda: decoder(
        "opt", TIED, num_hidden_layers=2, hidden_size=64, num_attention_heads=4, ffn_dim=96, vocab_size=320,
        max_position_embeddings=192, word_embed_proj_dim=64),
    "xglm": lambda: decoder(
        "xglm", TIED, num_layers=2, d_model=64, attention_heads=4, ffn_dim=96, vocab_size=320, max_position_embeddings=192),
    "falcon": lambda: decoder(
        "falcon", TIED, num_hidden_layers=2, hidden_size=64, num_attention_heads=4, vocab_size=320,
        max_position_embeddings=192, multi_query=True, parallel_attn=True),
    "falcon-new": lambda: decoder(
        "falcon", TIED, num_hidden_layers=2, hidden_size=64, num_attention_heads=4, num_kv_heads=2, vocab_size=320,
        max_position_embeddings=192, new_decoder_architecture=True),
    "falcon-alibi": lambda: decoder(
        "falcon", TIED, num_hidden_layers=2, hidden_size=64, num_attention_heads=4, vocab_size=320,
        max_position_embeddings=192, multi_query=False, parallel_attn=False, alibi=True, bias=True),
    # Llama and what came of it.
    "llama3": lambda: decoder("llama", **LLAMA, rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)),
    "mistral": lambda: decoder("mistral", **LLAMA, sliding_window=16),
    "qwen2": lambda: decoder("qwen2", **LLAMA),
    "qwen3": lambda: decoder("qwen3", **LLAMA, head_dim=24),
    "phi": lambda: decoder("phi", **WIDTHS, max_position_embeddings=192, partial_rotary_factor=0.5),
    "phi3": lambda: decoder("phi3", **LLAMA),
    "phi3-long": lambda: decoder(
        "phi3", prefix=(1, 5, 6, 7, 8, 9, 10, 11, 12, 13), **LLAMA, original_max_position_embeddings=8, rope_scaling=dict(  # all lengths are beyond it
            type="longrope", short_factor=[1.0 + i / 8 for i in range(8)], long_factor=[1.0 + i / 2 for i in range(8)])),
    "gemma": lambda: decoder("gemma", TIED, **LLAMA, head_dim=24),
    "gemma2": lambda: decoder("gemma2", **LLAMA, head_dim=24, sliding_window=16, query_pre_attn_scalar=24),
    "gemma3": lambda: decoder("gemma3_text", **LLAMA, head_dim=24, sliding_window=16, query_pre_attn_scalar=24,
                              layer_types=["sliding_attention", "full_attention"]),
    "stablelm": lambda: decoder("stablelm", **LLAMA, partial_rotary_factor=0.5),
    "granite": lambda: decoder("granite", **LLAMA, attention_multiplier=0.2, residual_multiplier=0.5, logits_scaling=2.0),
    "olmo": lambda: decoder("olmo", **LLAMA, clip_qkv=2.0),
    "olmo2": lambda: decoder("olmo2", **LLAMA),
    "smollm3": lambda: decoder("smollm3", **LLAMA, no_rope_layers=[1, 0]),
    "cohere": lambda: decoder("cohere", TIED, **LLAMA, use_qk_norm=True),
    "helium": lambda: decoder("helium", **LLAMA, head_dim=16),
    "glm": lambda: decoder("glm", **LLAMA, head_dim=16, partial_rotary_factor=0.5),
    # Experts, latent attention, state spaces.
    "deepseek-v3": lambda: decoder(
        "deepseek_v3", **LLAMA | dict(num_key_value_heads=4), kv_lora_rank=16, q_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8,
        v_head_dim=16, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, first_k_dense_replace=1,
        moe_intermediate_size=48),
    "deepseek-v2": lambda: decoder(
        "deepseek_v2", **LLAMA | dict(num_key_value_heads=4), kv_lora_rank=16, q_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8,
        v_head_dim=16, n_routed_experts=6, n_shared_experts=1, num_experts_per_tok=2, topk_method="group_limited_greedy", n_group=3,
        topk_group=2, first_k_dense_replace=1, moe_intermediate_size=48),
    "qwen3-moe": lambda: decoder("qwen3_moe", **LLAMA, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48),
    "mixtral": lambda: decoder("mixtral", **LLAMA, num_local_experts=4, num_experts_per_tok=2),
    "qwen2-moe": lambda: decoder("qwen2_moe", **LLAMA, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48,
                                 shared_expert_intermediate_size=80),
    "nemotron": lambda: decoder("nemotron", **LLAMA, partial_rotary_factor=0.5),
    "arcee": lambda: decoder("arcee", **LLAMA),
    # Encoders with a decoder.
    "m2m100": lambda: reader("m2m_100", **READERS, scale_embedding=True),
    "nllb": lambda: reader("m2m_100", prefix=(250,), **READERS, scale_embedding=True, activation_function="gelu"),
    "blenderbot": lambda: reader("blenderbot", start=1, prefix=(), **READERS),
    "blenderbot-small": lambda: reader("blenderbot-small", start=1, prefix=(), **READERS),
    "pegasus": lambda: reader("pegasus", start=1, prefix=(), **READERS),
    "mbart": lambda: reader("mbart", start=53, **READERS, forced_eos_token_id=53),
    "bigbird-pegasus": lambda: reader("bigbird_pegasus", READING | {EMBEDDING: 12, HEAD: 2.5}, **READERS, tie_word_embeddings=False, attention_type="original_full"),
    "led": lambda: reader(
        "led", **{k: v for k, v in READERS.items() if k != "max_position_embeddings"}, attention_window=8,
        max_encoder_position_embeddings=160, max_decoder_position_embeddings=128),
    "mt5": lambda: reader(
        "mt5", {r"shared$": 20, r"lm_head$": 2.5, r"\.o$": 2, r"\.wo$": 4, r"\.q$": 5, r"relative_attention_bias": 5},
        start=0, prefix=(), pad_token_id=0, num_layers=2, num_decoder_layers=2, d_model=56, d_kv=16, num_heads=4, d_ff=80, vocab_size=296,
        relative_attention_num_buckets=12, relative_attention_max_distance=24),
    "flan-t5": lambda: reader(
        "t5", {r"shared$": 20, r"lm_head$": 2.5, r"\.o$": 2, r"\.wo$": 4, r"\.q$": 5, r"relative_attention_bias": 5},
        start=0, prefix=(), pad_token_id=0, num_layers=2, num_decoder_layers=2, d_model=56, d_kv=16, num_heads=4, d_ff=80, vocab_size=296,
        feed_forward_proj="gated-gelu", tie_word_embeddings=False,
        relative_attention_num_buckets=12, relative_attention_max_distance=24),
    # Models that predict in the place of a placeholder.
    "prophetnet": lambda: reader(
        "prophetnet", {EMBEDDING: 7, POSITIONS: 5, r"ngram_embeddings$": 20, r"(query_proj|key_proj)$": 4, r"relative_pos_embeddings$": 2,
                       r"out_proj$": 1.5, r"decoder\.layers\.1\.feed_forward_layer_norm$": SIGNS},
        start=1, prefix=(), bos_token_id=2, pad_token_id=0, num_encoder_layers=2, num_decoder_layers=2, hidden_size=64,
        num_encoder_attention_heads=4, num_decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=80, vocab_size=300,
        max_position_embeddings=128, ngram=2, num_buckets=12, relative_max_distance=24),
    "unilm": lambda: prefixed(
        "unilm", {EMBEDDING: 7, POSITIONS: 5, r"token_type_embeddings$": 10, r"(query|key)$": 3, r"(dense|output)$": 2, r"transform_norm$": SIGNS},
        **WIDTHS, max_position_embeddings=192, mask_token_id=3),
    # Encoders of pixels with a decoder.
    "trocr": lambda: viewer(("vit", LOOKING), ("trocr", SAYING | dict(activation_function="relu"))),
    "trocr-small": lambda: viewer(("deit", LOOKING), ("trocr", SAYING | dict(
        scale_embedding=True, use_learned_position_embeddings=False, layernorm_embedding=True))),
    "donut": lambda: viewer(
        ("donut-swin", dict(image_size=[64, 48], patch_size=4, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4)),
        ("mbart", dict(decoder_layers=2, d_model=48, decoder_attention_heads=4, encoder_attention_heads=4, decoder_ffn_dim=80, vocab_size=300,
                       max_position_embeddings=128, scale_embedding=True, add_final_layer_norm=True))),
    "vit-gpt2": lambda: viewer(
        ("vit", LOOKING), ("gpt2", dict(n_layer=2, n_embd=48, n_head=4, n_positions=128, vocab_size=300)),
        TIED | {r"crossattention\.(q_attn|c_attn)$": 4}),
    # An encoder of samples of sound with a decoder.
    "moonshine": lambda: listener(
        "moonshine", {EMBEDDING: 7, OUTPUT: 2, r"conv[123]$": 2, r"norm$": SIGNS}, hidden_size=48, intermediate_size=80, vocab_size=300, encoder_num_hidden_layers=2,
        decoder_num_hidden_layers=2, encoder_num_attention_heads=4, decoder_num_attention_heads=4, pad_head_dim_to_multiple_of=8,
        max_position_embeddings=128),
}

EXPORTED = {  # by the exporter of Transformers 5 alone
    "gpt-oss": lambda: decoder("gpt_oss", **LLAMA, head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=16),
}


def like_llama(model, task):
    """Models with experts that optimum has no configuration of: their inputs are Llama's."""
    from optimum.exporters.onnx.model_configs import LlamaOnnxConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
    from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeSparseMoeBlock

    import equal

    def change():
        equal.experts_of(MixtralSparseMoeBlock)
        equal.experts_of(Qwen2MoeSparseMoeBlock)

    equal.replace(model, change, {"input_ids": equal.example(model, 2, 60)})
    return {"custom_onnx_configs": {"model": LlamaOnnxConfig(
        model.config, task=task.removesuffix("-with-past"), use_past=True, use_past_in_inputs=True)}}


def like_deepseek_v3(model, task):
    """DeepSeek-V2, that optimum has no configuration of: its inputs are DeepSeek-V3's."""
    from optimum.exporters.onnx.model_configs import DeepSeekV3OnnxConfig

    import deepseek_v2

    deepseek_v2.make_real(model)
    return {"custom_onnx_configs": {"model": DeepSeekV3OnnxConfig(
        model.config, task=task.removesuffix("-with-past"), use_past=True, use_past_in_inputs=True)}}


def like_bart(model, task):
    """LED, that optimum has no configuration of: its inputs are BART's."""
    from optimum.exporters.onnx.model_configs import BartOnnxConfig

    import led

    led.without_strides(model)
    config = BartOnnxConfig(model.config, task=task.removesuffix("-with-past"), use_past=True, use_past_in_inputs=True)
    return {"custom_onnx_configs": {
        "encoder_model": config.with_behavior("encoder"),
        "decoder_model": config.with_behavior("decoder", use_past=True, use_past_in_inputs=False),
        "decoder_with_past_model": config.with_behavior("decoder", use_past=True, use_past_in_inputs=True)}}


def like_opt(model, task):
    """XGLM, that optimum has no configuration of: its inputs are OPT's."""
    from optimum.exporters.onnx.model_configs import OPTOnnxConfig

    return {"custom_onnx_configs": {"model": OPTOnnxConfig(
        model.config, task=task.removesuffix("-with-past"), use_past=True, use_past_in_inputs=True)}}


def own_export(kind):
    """The module that exports models of a type which optimum has no configuration of, and whose graphs differ from those of all that it has."""
    return {"prophetnet": "prophetnet", "unilm": "unilm"}.get(kind)


def onnx_configs(model, task):
    """What optimum is to be told of how to export a model, as arguments of onnx_export_from_model.

    Falcon's new architecture stores keys and values of all heads; optimum takes it for groups.
    """
    if model.config.model_type in ("mixtral", "qwen2_moe"):
        return like_llama(model, task)
    if model.config.model_type == "deepseek_v2":
        return like_deepseek_v3(model, task)
    if model.config.model_type == "led":
        return like_bart(model, task)
    if model.config.model_type == "xglm":
        return like_opt(model, task)
    if model.config.model_type != "falcon" or not model.config.new_decoder_architecture:
        return {}
    from optimum.exporters.onnx.model_configs import FalconOnnxConfig

    base = FalconOnnxConfig.DUMMY_PKV_GENERATOR_CLASS

    class AllHeads(base):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.num_kv_heads = self.num_attention_heads

    class Config(FalconOnnxConfig):
        DUMMY_PKV_GENERATOR_CLASS = AllHeads
        DUMMY_INPUT_GENERATOR_CLASSES = (*FalconOnnxConfig.DUMMY_INPUT_GENERATOR_CLASSES[:-1], AllHeads)

    return {"custom_onnx_configs": {"model": Config(
        model.config, task=task.removesuffix("-with-past"), use_past=True, use_past_in_inputs=True)}}
