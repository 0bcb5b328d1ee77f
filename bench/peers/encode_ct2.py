"""CTranslate2's encoder as a peer; it leaves out padding by itself."""

import os

import ctranslate2
import numpy as np
from ctranslate2.specs import common_spec, transformer_spec

import cached
import ct2_model
import encode
import weights

WAYS = tuple(f"float32/{division}" for division in encode.DIVISIONS)


class Peer(encode.Encoder):
    def __init__(self, subject, way, threads):
        super().__init__(way, threads)
        name, _ = encode.named(subject)
        folder = cached.folder("ct2-encoder", name, ctranslate2.__version__, [ct2_model, encode, weights], write)
        self.model = ctranslate2.Encoder(str(folder), compute_type="float32", inter_threads=self.runs, intra_threads=self.threads)
        self.settings.update(compute_type=self.model.compute_type, isa=os.environ.get("CT2_FORCE_CPU_ISA", "chosen by CTranslate2"))
        self.versions["ctranslate2"] = ctranslate2.__version__

    def prepare(self, rows):
        ids, _, lengths = super().prepare(rows)
        # Views do not own their memory.
        arrays = ids.astype(np.int32), np.array(lengths, np.int32)
        return (*(ctranslate2.StorageView.from_array(a) for a in arrays), arrays)

    def compute(self, ids, lengths, _):
        return np.array(self.model.forward_batch(ids, lengths).last_hidden_state)


def write(subject, folder):
    """BERT, as CTranslate2's converter for Transformers writes it, without a pooler."""
    w = ct2_model.Writer(subject)
    c = w.config
    encoder = transformer_spec.TransformerEncoderSpec(
        c["num_hidden_layers"], c["num_attention_heads"], pre_norm=False, activation=common_spec.Activation.GELU,
        layernorm_embedding=True, num_source_embeddings=2, embeddings_merge=common_spec.EmbeddingsMerge.ADD)
    spec = transformer_spec.TransformerEncoderModelSpec(encoder)
    encoder.scale_embeddings = False
    encoder.embeddings[0].weight = w.w["embeddings.word_embeddings.weight"]
    encoder.embeddings[1].weight = w.w["embeddings.token_type_embeddings.weight"]
    encoder.position_encodings.encodings = w.w["embeddings.position_embeddings.weight"]
    w.norm(encoder.layernorm_embedding, "embeddings.LayerNorm")
    for i, layer in enumerate(encoder.layer):
        at = f"encoder.layer.{i}"
        w.attention(layer.self_attention, f"{at}.attention", True, ("self.query", "self.key", "self.value", "output.dense"))
        w.norm(layer.self_attention.layer_norm, f"{at}.attention.output.LayerNorm")
        w.linear(layer.ffn.linear_0, f"{at}.intermediate.dense")
        w.linear(layer.ffn.linear_1, f"{at}.output.dense")
        w.norm(layer.ffn.layer_norm, f"{at}.output.LayerNorm")
    spec.register_vocabulary(ct2_model.vocabulary(c["vocab_size"]))
    spec.config.unk_token = ct2_model.name(100)
    spec.config.layer_norm_epsilon = c["layer_norm_eps"]
    spec.validate()
    spec.optimize(quantization="float32")
    spec.save(str(folder))
