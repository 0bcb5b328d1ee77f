"""The models that are exported: Hugging Face architectures made from a configuration.

Tiny ones run in milliseconds and have odd sizes where that tells shapes apart;
full ones have the published sizes. Nothing is downloaded.
"""

from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSpeechSeq2Seq,
    BartConfig,
    BertConfig,
    GPT2Config,
    LlamaConfig,
    T5Config,
    ViTConfig,
    WhisperConfig,
)

import seeded

CAUSAL, SEQ2SEQ, SPEECH, ENCODER = (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSpeechSeq2Seq,
    AutoModel,
)

SUBJECTS = {
    # Tiny.
    "gpt2": (CAUSAL, GPT2Config(
        n_layer=2, n_embd=64, n_head=4, n_positions=256, vocab_size=257,
        bos_token_id=256, eos_token_id=256)),
    "llama": (CAUSAL, LlamaConfig(
        num_hidden_layers=2, hidden_size=64, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=96, vocab_size=288, max_position_embeddings=256,
        tie_word_embeddings=True, rope_theta=10000.0)),
    "bert": (ENCODER, BertConfig(
        num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=128,
        vocab_size=320, max_position_embeddings=128)),
    "vit": (ENCODER, ViTConfig(
        num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=96, image_size=32, patch_size=8)),
    "bart": (SEQ2SEQ, BartConfig(
        encoder_layers=2, decoder_layers=2, d_model=64, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=128, vocab_size=300,
        max_position_embeddings=128)),
    "t5": (SEQ2SEQ, T5Config(
        num_layers=2, num_decoder_layers=2, d_model=56, d_kv=16, num_heads=4, d_ff=80,
        vocab_size=296, feed_forward_proj="gated-gelu", tie_word_embeddings=False,
        decoder_start_token_id=0)),
    "whisper": (SPEECH, WhisperConfig(
        encoder_layers=2, decoder_layers=2, d_model=64, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=128, vocab_size=310,
        num_mel_bins=16, max_source_positions=60, max_target_positions=96,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3,
        suppress_tokens=None, begin_suppress_tokens=None)),
    # Full size.
    "gpt2-124m": (CAUSAL, GPT2Config()),
    "llama-135m": (CAUSAL, LlamaConfig(
        num_hidden_layers=30, hidden_size=576, num_attention_heads=9, num_key_value_heads=3,
        intermediate_size=1536, vocab_size=49152, max_position_embeddings=8192,
        tie_word_embeddings=True, rope_theta=100000.0, rms_norm_eps=1e-5,
        bos_token_id=0, eos_token_id=0)),
    "bart-large": (SEQ2SEQ, BartConfig(
        encoder_layers=12, decoder_layers=12, d_model=1024, encoder_attention_heads=16,
        decoder_attention_heads=16, encoder_ffn_dim=4096, decoder_ffn_dim=4096,
        vocab_size=50265, max_position_embeddings=1024)),
    "t5-base": (SEQ2SEQ, T5Config(
        num_layers=12, num_decoder_layers=12, d_model=768, d_kv=64, num_heads=12, d_ff=3072,
        vocab_size=32128, feed_forward_proj="relu", tie_word_embeddings=True,
        decoder_start_token_id=0)),
    "whisper-small": (SPEECH, WhisperConfig(
        encoder_layers=12, decoder_layers=12, d_model=768, encoder_attention_heads=12,
        decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072,
        vocab_size=51865, num_mel_bins=80, max_source_positions=1500,
        max_target_positions=448, suppress_tokens=None, begin_suppress_tokens=None)),
    "whisper-tiny": (SPEECH, WhisperConfig(
        encoder_layers=4, decoder_layers=4, d_model=384, encoder_attention_heads=6,
        decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536,
        vocab_size=51865, num_mel_bins=80, max_source_positions=1500,
        max_target_positions=448, suppress_tokens=None, begin_suppress_tokens=None)),
}


def make(name, attention):
    """A filled model in evaluation mode, and how each parameter was drawn.

    attention: "eager", "sdpa" or "constant_scale" (sdpa whose scale is always a constant).
    """
    if attention != "eager":
        import scale

        attention = scale.choose(attention)
    auto, config = SUBJECTS[name]
    config = type(config).from_dict(config.to_dict())
    model = auto.from_config(config, attn_implementation=attention)
    model.eval()
    return model, seeded.initialise(model)


def published(name, model):
    """The configuration of a subject as a checkpoint would carry it (config.json)."""
    values = {**SUBJECTS[name][1].to_dict(), "architectures": [type(model).__name__]}
    for key in ("_name_or_path", "transformers_version", "torch_dtype", "dtype"):
        values.pop(key, None)
    return values
