"""The small models of models/small: one of each architecture that graft generates with.

Their weights are seeded like those of the other subjects (seeded.py) with two
changes, which make a random model generate as a trained one does: scores are
spread (a head with a small gain gives nearly equal scores to all tokens), and a
tied head does not favour the last token, whose embedding the residual carries
through: what layers add outweighs it, or the last norm's weights have random
signs. expected.py in tests/generate measures what comes of it.

Nothing here depends on the release of Transformers: the export and the expected
tokens are made with different ones.
"""

import re
from dataclasses import dataclass, field, replace

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSpeechSeq2Seq,
    BartConfig,
    GenerationConfig,
    GPT2Config,
    LlamaConfig,
    MarianConfig,
    MptConfig,
    T5Config,
    WhisperConfig,
)

import seeded

SEED = 1  # models.DefaultSeed
SIGNS = (0.0, 1.0)  # a norm's weights of random sign


@dataclass(frozen=True)
class Subject:
    """A model: its configuration, what its checkpoint's generation_config.json says, and its gains."""

    auto: type
    config: object
    generation: dict
    # Pattern of a parameter's name: by how much its deviation is multiplied, or (mean, deviation).
    gains: dict
    # Ids from `tokens` on are scores without a token: no prompt contains them.
    tokens: int
    # Ids that a prompt begins and ends with.
    prefix: tuple = ()
    suffix: tuple = ()
    # Decoder's prompt after decoder_start_token_id (Whisper: language, task).
    decoder_prompt: tuple = ()
    buffers: dict = field(default_factory=dict)  # name: deviation, of learned values that are no parameters


SUBJECTS = {
    "gpt2": Subject(
        AutoModelForCausalLM,
        GPT2Config(
            n_layer=2, n_embd=48, n_head=4, n_positions=192, vocab_size=293,
            bos_token_id=292, eos_token_id=173),
        dict(bos_token_id=292, eos_token_id=173),
        {r"wte": 7, r"wpe": 4, r"ln_f": SIGNS}, tokens=292),
    "llama": Subject(
        AutoModelForCausalLM,
        LlamaConfig(
            num_hidden_layers=3, hidden_size=64, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=96, vocab_size=320, max_position_embeddings=256,
            tie_word_embeddings=False, rope_theta=10000.0, bos_token_id=1, eos_token_id=[44, 58]),
        dict(bos_token_id=1, eos_token_id=[44, 58]),
        {r"embed_tokens": 20, r"o_proj|down_proj": 2, r"lm_head": 2.5}, tokens=320, prefix=(1,)),
    "llama-mha": Subject(
        AutoModelForCausalLM,
        LlamaConfig(
            num_hidden_layers=3, hidden_size=64, num_attention_heads=4, num_key_value_heads=4,
            intermediate_size=96, vocab_size=320, max_position_embeddings=256,
            tie_word_embeddings=False, rope_theta=10000.0, bos_token_id=1, eos_token_id=[44, 58]),
        dict(bos_token_id=1, eos_token_id=[44, 58]),
        {r"embed_tokens": 20, r"o_proj|down_proj": 2, r"lm_head": 2.5}, tokens=320, prefix=(1,)),
    "mpt": Subject(
        AutoModelForCausalLM,
        MptConfig(
            n_layers=3, d_model=64, n_heads=4, vocab_size=304, max_seq_len=256,
            bos_token_id=1, eos_token_id=167),
        dict(bos_token_id=1, eos_token_id=167),
        {r"wte$": 10, r"Wqkv": 4, r"out_proj|down_proj": 5, r"norm_f": SIGNS},
        tokens=304),
    "bart": Subject(
        AutoModelForSeq2SeqLM,
        BartConfig(
            encoder_layers=2, decoder_layers=2, d_model=48, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=80, vocab_size=300,
            max_position_embeddings=128, eos_token_id=53, decoder_start_token_id=53,
            forced_eos_token_id=53),
        dict(bos_token_id=0, pad_token_id=1, eos_token_id=53, decoder_start_token_id=53, forced_eos_token_id=53),
        {r"shared": 6, r"embed_positions": 6, r"q_proj|k_proj": 4, r"out_proj": 0.6,
         r"decoder.layers.1.final_layer_norm": SIGNS}, tokens=300, prefix=(0,), suffix=(53,),
        buffers={"final_logits_bias": 0.3}),
    "distilbart": Subject(
        AutoModelForSeq2SeqLM,
        BartConfig(
            encoder_layers=3, decoder_layers=2, d_model=32, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=72, vocab_size=264,
            max_position_embeddings=128, scale_embedding=True,
            eos_token_id=217, decoder_start_token_id=217, forced_eos_token_id=None),
        dict(bos_token_id=0, pad_token_id=1, eos_token_id=217, decoder_start_token_id=217, forced_bos_token_id=0),
        {r"shared": 7, r"embed_positions": 100, r"q_proj|k_proj": 4, r"out_proj": 0.5},
        tokens=264, prefix=(0,), suffix=(217,),
        buffers={"final_logits_bias": 0.3}),
    "t5": Subject(
        AutoModelForSeq2SeqLM,
        T5Config(
            num_layers=2, num_decoder_layers=2, d_model=56, d_kv=16, num_heads=4, d_ff=80,
            vocab_size=296, feed_forward_proj="gated-gelu", tie_word_embeddings=False,
            relative_attention_num_buckets=12, relative_attention_max_distance=24, decoder_start_token_id=0,
            eos_token_id=187),
        dict(pad_token_id=0, eos_token_id=187, decoder_start_token_id=0),
        {r"shared": 20, r"lm_head": 2.5, r"\.o$": 2, r"\.wo$": 4, r"\.q$": 5, r"relative_attention_bias": 5},
        tokens=280, suffix=(187,)),
    "t5-tied": Subject(
        AutoModelForSeq2SeqLM,
        T5Config(
            num_layers=3, num_decoder_layers=2, d_model=64, d_kv=12, num_heads=4, d_ff=96,
            vocab_size=288, feed_forward_proj="relu", tie_word_embeddings=True,
            relative_attention_num_buckets=8, relative_attention_max_distance=32, decoder_start_token_id=0,
            eos_token_id=235),
        dict(pad_token_id=0, eos_token_id=235, decoder_start_token_id=0),
        {r"shared": 2.5, r"SelfAttention\.o$|\.wo$": 4, r"\.q$": 5, r"relative_attention_bias": 5,
         r"decoder.final_layer_norm": SIGNS}, tokens=270, suffix=(235,)),
    "t5-wide": Subject(
        AutoModelForSeq2SeqLM,
        T5Config(
            num_layers=2, num_decoder_layers=2, d_model=48, d_kv=32, num_heads=4, d_ff=96,
            vocab_size=280, feed_forward_proj="gated-gelu", tie_word_embeddings=False,
            relative_attention_num_buckets=12, relative_attention_max_distance=24, decoder_start_token_id=0,
            eos_token_id=204),
        dict(pad_token_id=0, eos_token_id=204, decoder_start_token_id=0),
        {r"shared": 20, r"lm_head": 2.5, r"\.o$": 2, r"\.wo$": 4, r"\.q$": 5, r"relative_attention_bias": 5},
        tokens=280, suffix=(204,)),
    "marian": Subject(
        AutoModelForSeq2SeqLM,
        MarianConfig(
            encoder_layers=2, decoder_layers=3, d_model=64, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96, vocab_size=211,
            max_position_embeddings=128, scale_embedding=True, activation_function="swish",
            pad_token_id=210, bos_token_id=0, eos_token_id=208, decoder_start_token_id=210, forced_eos_token_id=208),
        dict(pad_token_id=210, bos_token_id=0, eos_token_id=208, decoder_start_token_id=210,
             forced_eos_token_id=208, bad_words_ids=[[210]]),
        {r"shared": 5, r"embed_positions": 50, r"q_proj|k_proj": 4, r"out_proj": 0.6,
         r"decoder.layers.2.final_layer_norm": SIGNS}, tokens=210, suffix=(208,),
        buffers={"final_logits_bias": 0.3}),
    "whisper": Subject(
        AutoModelForSpeechSeq2Seq,
        WhisperConfig(
            encoder_layers=2, decoder_layers=2, d_model=64, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=128, vocab_size=310,
            num_mel_bins=16, max_source_positions=60, max_target_positions=96,
            pad_token_id=0, bos_token_id=1, eos_token_id=297, decoder_start_token_id=3,
            suppress_tokens=None, begin_suppress_tokens=None),
        dict(pad_token_id=0, bos_token_id=1, eos_token_id=297, decoder_start_token_id=3,
             suppress_tokens=[4, 5, 6, 7], begin_suppress_tokens=[220, 297]),
        {r"decoder.embed_tokens": 6, r"embed_positions": 6, r"q_proj|k_proj": 4, r"out_proj": 1.5,
         r"decoder.layer_norm": SIGNS}, tokens=310,
        decoder_prompt=(4, 6, 7)),
}


def find(name):
    """The subject of a name, here or in generation_families."""
    if name in SUBJECTS:
        return SUBJECTS[name]
    import generation_families

    return (generation_families.MAKERS | generation_families.EXPORTED)[name]()


def initialise(model, subject, seed=SEED):
    """Fills a torch model; returns {name: Seeded} without tied duplicates."""
    planned = seeded.plan(model)
    for name, deviation in subject.buffers.items():
        planned[name] = seeded.Seeded(name, tuple(model.get_buffer(name).shape), "normal", 0.0, deviation)
    values = {**dict(model.named_parameters()), **{n: model.get_buffer(n) for n in subject.buffers}}
    result = {}
    with torch.no_grad():
        for name, value in values.items():
            drawn = planned[name]
            for pattern, gain in subject.gains.items():
                if not re.search(pattern, name.removesuffix(".weight")) or name.endswith(".bias"):
                    continue
                mean, scale = gain if isinstance(gain, tuple) else (drawn.mean, drawn.scale * gain)
                drawn = replace(drawn, mean=mean, scale=float(f"{scale:.4g}"))
            value.copy_(torch.from_numpy(drawn.values(seed)))
            result[name] = drawn
    return result


def make(name, attention="eager", seed=SEED):
    """A filled model in evaluation mode with its generation configuration, and how each parameter was drawn."""
    subject = find(name)
    config = type(subject.config).from_dict(subject.config.to_dict())
    model = subject.auto.from_config(config, attn_implementation=attention)
    model.eval()
    drawn = initialise(model, subject, seed)
    model.generation_config = GenerationConfig(**subject.generation)
    return model, drawn


def published(name, model):
    """config.json and generation_config.json as a checkpoint would carry them."""
    subject = find(name)
    config = {**subject.config.to_dict(), "architectures": [type(model).__name__]}
    for key in ("_name_or_path", "transformers_version", "torch_dtype", "dtype"):
        config.pop(key, None)
    return config, subject.generation
