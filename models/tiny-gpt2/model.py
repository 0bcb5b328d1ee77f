"""What every step of the recipe shares: sizes, seeds, the vocabulary and the encoded text."""

from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config

import corpus

SEED = 20260
CONTEXT = 1024
END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_ID = 0  # the trainer gives special tokens the first ids

CONFIG = dict(
    vocab_size=1024, n_positions=CONTEXT, n_embd=128, n_layer=5, n_head=4,
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    bos_token_id=END_OF_TEXT_ID, eos_token_id=END_OF_TEXT_ID,
)


def config() -> GPT2Config:
    return GPT2Config(**CONFIG)


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """Byte-level BPE with GPT-2's splitting rule: every byte has a token, so there is no unknown."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=CONFIG["vocab_size"], special_tokens=[END_OF_TEXT], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, documents: list[corpus.Document]) -> np.ndarray:
    """All documents in one row, each begun by the end-of-text token."""
    ids: list[int] = []
    for document in documents:
        ids.append(END_OF_TEXT_ID)
        ids.extend(tokenizer.encode(document.text).ids)
    return np.array(ids, dtype=np.int64)


def tokenizer_path(work: Path) -> Path:
    return work / "tokenizer.json"
