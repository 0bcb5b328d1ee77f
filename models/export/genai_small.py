"""Lets the model builder of onnxruntime-genai write a model: its graph, and genai_config.json beside it."""

import subprocess
import sys
import tempfile
from pathlib import Path

FLOAT32, INT4 = "fp32", "int4"  # as the builder calls its precisions
CONFIG = "genai_config.json"

# Models of generation_families, each for what is its own: Llama; biases of query, key and value; norms of query and key.
SUBJECTS = ("llama3", "qwen2", "qwen3")

# Those that are written in four bits too, and the builder's options: products in float32 of both; of the second, an embedding that
# reads the integers of the last layer (GatherBlockQuantized).
EXACT, SHARED = "accuracy_level=0", "shared_embeddings=true"
QUANTISED = {"llama3": (EXACT,), "qwen2": (EXACT, SHARED)}


def tokenizer(config):
    """One whose token that ends a text is the model's: the builder adds that of a tokenizer to those of the configuration."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    ends = config.eos_token_id[0] if isinstance(config.eos_token_id, list) else config.eos_token_id
    words = {f"<{i}>": i for i in range(config.vocab_size)}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<0>")), eos_token=f"<{ends}>")


def build(model, directory, precision, options=()):
    """Writes model.onnx and genai_config.json into directory. Options are the builder's own, NAME=VALUE (--extra_options)."""
    if SHARED in options and not model.config.tie_word_embeddings:  # the builder shares what is tied alone
        model.get_input_embeddings().weight = model.get_output_embeddings().weight
        model.config.tie_word_embeddings = True
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch)
        tokenizer(model.config).save_pretrained(scratch)
        subprocess.run(
            [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", scratch, "-o", directory,
             "-p", precision, "-e", "cpu", "-c", Path(scratch) / "cache", *(["--extra_options", *options] if options else [])],
            check=True, stderr=subprocess.PIPE, text=True)
