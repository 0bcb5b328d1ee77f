"""A model of sentence-transformers: an encoder, the mean of its visible rows, their norm."""

import json

from sentence_transformers import SentenceTransformer, models


def make(encoder, folder):
    """encoder as sentence-transformers reads it, with mean pooling and normalisation."""
    source = folder / "encoder"
    encoder.save_pretrained(source)
    # A tokenizer belongs to such a model, and is no part of its graph: any will do.
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
    (source / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (source / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    words = models.Transformer(str(source), max_seq_length=encoder.config.max_position_embeddings)
    made = SentenceTransformer(modules=[words, models.Pooling(encoder.config.hidden_size, "mean"), models.Normalize()], device="cpu")
    return made.eval()
