"""Writes decoders with recurrent states beside keys and values or alone, and one with a cache of latents, as the exporter of
Transformers 5 writes them, or the builder of onnxruntime-genai, and what Hugging Face's generate says of them
(expected.json). Weights are random.

    python make.py [NAME...]

Needs models/export/requirements-exporter.txt, or requirements-genai.txt for those of the builder.
"""

import gzip
import json
import sys
import tempfile
from pathlib import Path

import onnx
import torch
from transformers import (
    BambaConfig, BambaForCausalLM, DeepseekV3Config, DeepseekV3ForCausalLM, FalconH1Config, FalconH1ForCausalLM, GenerationConfig,
    JambaConfig, JambaForCausalLM, Lfm2Config, Lfm2ForCausalLM, Mamba2Config, Mamba2ForCausalLM, MambaConfig, MambaForCausalLM)

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[4] / "models" / "export"))

import genai_small  # noqa: E402

WIDTHS = dict(
    vocab_size=48, hidden_size=16, intermediate_size=24, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=128,
    initializer_range=0.5, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0)
ALONE = dict(  # states without attention
    vocab_size=48, hidden_size=16, num_hidden_layers=2, expand=2, conv_kernel=4, initializer_range=0.5, tie_word_embeddings=False,
    bos_token_id=1, eos_token_id=2, pad_token_id=0)
MODELS = {
    "lfm2": lambda: Lfm2ForCausalLM(Lfm2Config(
        **WIDTHS, num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], conv_L_cache=3, block_multiple_of=8)),
    "falcon-h1": lambda: FalconH1ForCausalLM(FalconH1Config(
        **WIDTHS, num_hidden_layers=2, head_dim=8, mamba_d_ssm=16, mamba_n_heads=2, mamba_d_head=8, mamba_n_groups=1,
        mamba_d_state=6, mamba_d_conv=4, mamba_chunk_size=4)),
    "bamba": lambda: BambaForCausalLM(BambaConfig(
        **WIDTHS, num_hidden_layers=3, attn_layer_indices=[1], mamba_d_head=8, mamba_n_heads=4, mamba_expand=2, mamba_n_groups=1,
        mamba_d_state=6, mamba_d_conv=4, mamba_chunk_size=4)),
    "jamba": lambda: JambaForCausalLM(JambaConfig(  # its graph for prompts is for those of five tokens
        **WIDTHS, num_hidden_layers=3, attn_layer_period=3, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1, num_experts=2,
        num_experts_per_tok=1, mamba_d_state=5, mamba_d_conv=4, mamba_dt_rank=4, mamba_expand=1, use_mamba_kernels=False)),
    "mamba": lambda: MambaForCausalLM(MambaConfig(**ALONE, state_size=5, time_step_rank=4)),
    "mamba2": lambda: Mamba2ForCausalLM(Mamba2Config(**ALONE, state_size=6, num_heads=4, head_dim=8, n_groups=1, chunk_size=4)),
    "deepseek-v3": lambda: DeepseekV3ForCausalLM(DeepseekV3Config(
        **{**WIDTHS, "num_key_value_heads": 2}, num_hidden_layers=2, kv_lora_rank=8, q_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=4,
        v_head_dim=8, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, first_k_dense_replace=1,
        moe_intermediate_size=24)),
    "lfm2-genai": lambda: Lfm2ForCausalLM(Lfm2Config(
        **{**WIDTHS, "hidden_size": 32}, num_hidden_layers=2, layer_types=["conv", "full_attention"], conv_L_cache=3,
        block_multiple_of=8)),
}
LENGTHS, TOKENS = (1, 2, 5, 9, 17), 16


def strip(path):
    """The gzipped model with its weights and without what the exporter says of its own code."""
    model = onnx.load(path)
    graph = model.graph
    del graph.value_info[:], model.metadata_props[:], graph.metadata_props[:]
    for part in [*graph.node, *graph.input, *graph.output, *graph.initializer]:
        del part.metadata_props[:]
        part.doc_string = ""
    return gzip.compress(model.SerializeToString(deterministic=True), 9, mtime=0)


def expected(model):
    generator = torch.Generator().manual_seed(5)
    cases = []
    for n in LENGTHS:
        prompt = torch.randint(3, model.config.vocab_size, (1, n), generator=generator)
        for beams in (1, 4):
            out = model.generate(
                prompt, attention_mask=torch.ones_like(prompt), num_beams=beams, do_sample=False, max_new_tokens=TOKENS)
            cases.append({"prompt": prompt[0].tolist(), "beams": beams, "tokens": out[0, n:].tolist()})
    return cases


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:] or MODELS:
        torch.manual_seed(3)
        model = MODELS[name]().eval()
        model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=2, pad_token_id=0)
        target = HERE / name
        target.mkdir(exist_ok=True)
        cases = ",\n ".join(json.dumps(c) for c in expected(model))
        (target / "expected.json").write_text(f"[{cases}]\n")
        model.config.to_json_file(target / "config.json")
        model.generation_config.to_json_file(target / "generation_config.json")
        if name.endswith("-genai"):
            with tempfile.TemporaryDirectory() as scratch:
                genai_small.build(model, scratch, genai_small.FLOAT32)
                (target / "model.onnx.gz").write_bytes(strip(Path(scratch) / "model.onnx"))
                (target / genai_small.CONFIG).write_bytes((Path(scratch) / genai_small.CONFIG).read_bytes())
            continue
        from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

        tokens = torch.tensor([[1, 5, 6, 7, 8], [1, 9, 10, 11, 12]])
        exported = OnnxExporter().export_for_generation(
            model, {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}, OnnxConfig(dynamic=True),
            generation_config=model.generation_config)
        exported.generation_config = None
        with tempfile.TemporaryDirectory() as scratch:
            exported.save_pretrained(scratch)
            components = {}
            for graph in ("prefill", "decode"):
                (target / f"{graph}.onnx.gz").write_bytes(strip(Path(scratch) / f"{graph}.onnx"))
                components[graph] = {"file": f"{graph}.onnx"}
        manifest = {"export_format": "onnx", "components": components}
        (target / "export.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()
