"""GPT-2 as graphs of ONNX Runtime's own operators.

Each is what ONNX Runtime's tools make of GPT-2 (fused norms and activations, packed
projections) around one of its attention operators:

  group_query  GroupQueryAttention, past and present in one buffer
  first, next  MultiHeadAttention for the prompt, DecoderMaskedMultiHeadAttention
               with shared buffers and cache indirection for what follows
  beam_search  Attention inside the BeamSearch operator
  genai        GroupQueryAttention under the names that onnxruntime-genai binds
"""

from types import SimpleNamespace

import numpy as np
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from weights import Weights

MICROSOFT = "com.microsoft"
EPSILON = 1e-5
DATA = "weights.data"


class Builder:
    """Collects the nodes and weights of one graph."""

    def __init__(self, weights, made):
        self.w, self.made, self.nodes, self.weights, self.inputs, self.outputs = weights, made, [], {}, [], []
        c = weights.config
        self.layers, self.heads, self.width = c["n_layer"], c["n_head"], c["n_embd"]
        self.head_size, self.vocab = self.width // self.heads, c["vocab_size"]

    def constant(self, name, value):
        """An initializer; value is an array, or makes one where no graph has it yet."""
        if name not in self.weights:
            if name not in self.made:
                self.made[name] = numpy_helper.from_array(np.asarray(value() if callable(value) else value, order="C"), name)
            self.weights[name] = self.made[name]
        return name

    def parameter(self, name):
        return self.constant(name, lambda: self.w[name])

    def node(self, op, inputs, outputs, domain="", **attributes):
        self.nodes.append(helper.make_node(op, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    def input(self, name, kind, shape):
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name, kind, shape):
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def decoder(self, ids, positions, attention):
        """Hidden states of the last position, normed: [rows, width].

        attention(layer, x) takes a layer's normed input and returns what attention
        gives before its output projection.
        """
        words = self.node("Gather", [self.parameter("transformer.wte.weight"), ids], ["words"])
        places = self.node("Gather", [self.parameter("transformer.wpe.weight"), positions], ["places"])
        residual = self.node("Add", [words, places], ["embedded"])
        norm = [self.parameter(f"transformer.h.0.ln_1.{leaf}") for leaf in ("weight", "bias")]
        x = self.node("LayerNormalization", [residual, *norm], ["normed"], epsilon=EPSILON, axis=-1)
        for i in range(self.layers):
            at = f"transformer.h.{i}"
            x = attention(i, x)
            x = self.node("MatMul", [x, self.parameter(f"{at}.attn.c_proj.weight")], [f"projected_{i}"])
            x, residual = self.skip(x, residual, f"{at}.ln_2", f"{at}.attn.c_proj.bias", f"middle_{i}")
            x = self.node("MatMul", [x, self.parameter(f"{at}.mlp.c_fc.weight")], [f"wide_{i}"])
            x = self.node("FastGelu", [x, self.parameter(f"{at}.mlp.c_fc.bias")], [f"active_{i}"], MICROSOFT)
            x = self.node("MatMul", [x, self.parameter(f"{at}.mlp.c_proj.weight")], [f"narrow_{i}"])
            following = f"transformer.h.{i + 1}.ln_1" if i + 1 < self.layers else "transformer.ln_f"
            x, residual = self.skip(x, residual, following, f"{at}.mlp.c_proj.bias", f"end_{i}")
        return self.node("Gather", [x, self.constant("last", np.int64(-1))], ["hidden"], axis=1)

    def skip(self, x, residual, norm, bias, name):
        self.node("SkipLayerNormalization",
                  [x, residual, self.parameter(f"{norm}.weight"), self.parameter(f"{norm}.bias"), self.parameter(bias)],
                  [f"{name}_normed", "", "", f"{name}_sum"], MICROSOFT, epsilon=EPSILON)
        return f"{name}_normed", f"{name}_sum"

    def logits(self, hidden, name):
        head = self.constant("head", lambda: self.w["transformer.wte.weight"].T)
        return self.node("MatMul", [hidden, head], [name])

    def packed(self, i, x):
        """Queries, keys and values side by side: [rows, positions, 3 * width]."""
        at = f"transformer.h.{i}.attn.c_attn"
        x = self.node("MatMul", [x, self.parameter(f"{at}.weight")], [f"packed_matmul_{i}"])
        return self.node("Add", [x, self.parameter(f"{at}.bias")], [f"packed_{i}"])

    def candidates(self, logits):
        """The best of each row: log-probabilities and tokens, banned ones left out."""
        banned = self.input("banned", T.INT64, ["rows", "banned"])
        count = self.input("count", T.INT64, [1])
        self.node("Shape", [banned], ["banned_shape"])
        self.node("Expand", [self.constant("never", np.float32(-np.inf)), "banned_shape"], ["never_all"])
        self.node("ScatterElements", [logits, banned, "never_all"], ["allowed"], axis=1)
        self.node("LogSoftmax", ["allowed"], ["scores"], axis=-1)
        self.node("TopK", ["scores", count], ["top_scores", "top_tokens"], axis=-1)
        self.output("top_scores", T.FLOAT, ["rows", "candidates"])
        self.output("top_tokens", T.INT64, ["rows", "candidates"])

    def graph(self, name, initializers=True):
        values = list(self.weights.values()) if initializers else []
        return helper.make_graph(self.nodes, name, self.inputs, self.outputs, values)

    def caches(self, shape, shape_present=None, names=("past_key_{}", "past_value_{}", "present_key_{}", "present_value_{}")):
        for i in range(self.layers):
            for name in names[:2]:
                self.input(name.format(i), T.FLOAT, shape)
            for name in names[2:]:
                self.output(name.format(i), T.FLOAT, shape_present or shape)


def save(graph, path, data):
    """Writes a graph; all of a folder have their weights in one file, data, an open
    file with the places of those that it has so far."""
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1)])
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) < 1024:
            continue
        if tensor.name not in data.places:
            data.file.seek(-data.file.tell() % 4096, 1)
            data.places[tensor.name] = data.file.tell()
            data.file.write(tensor.raw_data)
        entries = {"location": DATA, "offset": data.places[tensor.name], "length": len(tensor.raw_data)}
        tensor.ClearField("raw_data")
        tensor.data_location = T.EXTERNAL
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
    path.write_bytes(model.SerializeToString())


def group_query(b):
    ids = b.input("input_ids", T.INT64, ["rows", "positions"])
    positions = b.input("position_ids", T.INT64, ["rows", "positions"])
    b.input("seqlens_k", T.INT32, ["rows"])
    b.input("total_sequence_length", T.INT32, [])

    def attention(i, x):
        return b.node("GroupQueryAttention",
                      [b.packed(i, x), "", "", f"past_key_{i}", f"past_value_{i}", "seqlens_k", "total_sequence_length"],
                      [f"attended_{i}", f"present_key_{i}", f"present_value_{i}"], MICROSOFT,
                      num_heads=b.heads, kv_num_heads=b.heads)

    b.candidates(b.logits(b.decoder(ids, positions, attention), "logits"))
    b.caches(["rows", b.heads, "capacity", b.head_size])
    return b.graph("gpt2")


def thirds(b, i, x):
    """Queries, keys and values of a layer, without their biases, and the biases."""
    at = f"transformer.h.{i}.attn.c_attn"
    b.node("MatMul", [x, b.parameter(f"{at}.weight")], [f"packed_{i}"])
    sizes = b.constant("thirds", np.full(3, b.width, np.int64))
    b.node("Split", [f"packed_{i}", sizes], [f"query_{i}", f"key_{i}", f"value_{i}"], axis=-1)
    return [f"query_{i}", f"key_{i}", f"value_{i}"], b.parameter(f"{at}.bias")


def first(b):
    ids = b.input("input_ids", T.INT64, ["rows", "positions"])
    positions = b.input("position_ids", T.INT64, ["rows", "positions"])

    def attention(i, x):
        qkv, bias = thirds(b, i, x)
        return b.node("MultiHeadAttention", [*qkv, bias], [f"attended_{i}", f"present_key_{i}", f"present_value_{i}"],
                      MICROSOFT, num_heads=b.heads, unidirectional=1)

    b.candidates(b.logits(b.decoder(ids, positions, attention), "logits"))
    for i in range(b.layers):
        for name in (f"present_key_{i}", f"present_value_{i}"):
            b.output(name, T.FLOAT, ["rows", b.heads, "positions", b.head_size])
    return b.graph("gpt2")


def following(b):
    ids = b.input("input_ids", T.INT64, ["rows", 1])
    positions = b.input("position_ids", T.INT64, ["rows", 1])
    b.input("past_sequence_length", T.INT32, [1])
    b.input("beam_width", T.INT32, [1])
    b.input("cache_indirection", T.INT32, ["samples", "beams", "capacity"])

    def attention(i, x):
        qkv, bias = thirds(b, i, x)
        return b.node("DecoderMaskedMultiHeadAttention",
                      [*qkv, "", "", f"past_key_{i}", f"past_value_{i}", "past_sequence_length", "beam_width", "cache_indirection", bias],
                      [f"attended_{i}", f"present_key_{i}", f"present_value_{i}"], MICROSOFT,
                      num_heads=b.heads, past_present_share_buffer=1)

    b.candidates(b.logits(b.decoder(ids, positions, attention), "logits"))
    b.caches(["rows", b.heads, "capacity", b.head_size])
    return b.graph("gpt2")


def beam_search(b):
    ids = b.input("input_ids", T.INT32, ["rows", "positions"])
    positions = b.input("position_ids", T.INT32, ["rows", "positions"])
    b.input("attention_mask", T.INT32, ["rows", "total"])

    def attention(i, x):
        at = f"transformer.h.{i}.attn.c_attn"
        return b.node("Attention",
                      [x, b.parameter(f"{at}.weight"), b.parameter(f"{at}.bias"), "attention_mask", f"past_{i}"],
                      [f"attended_{i}", f"present_{i}"], MICROSOFT, num_heads=b.heads, unidirectional=1)

    last = b.logits(b.decoder(ids, positions, attention), "last_logits")
    b.node("Unsqueeze", [last, b.constant("axis", np.array([1], np.int64))], ["logits"])
    b.output("logits", T.FLOAT, ["rows", 1, b.vocab])
    for i in range(b.layers):
        b.input(f"past_{i}", T.FLOAT, [2, "rows", b.heads, "past", b.head_size])
        b.output(f"present_{i}", T.FLOAT, [2, "rows", b.heads, "total", b.head_size])
    # The weights lie in the outer graph, where both sessions of the operator find them.
    inner = b.graph("decoder", initializers=False)
    outer = helper.make_node(
        "BeamSearch", ["input_ids", "max_length", "min_length", "num_beams", "num_return_sequences", "length_penalty"],
        ["sequences"], domain=MICROSOFT, decoder=inner, model_type=0, eos_token_id=b.w.config["eos_token_id"],
        pad_token_id=b.w.config["eos_token_id"], no_repeat_ngram_size=1, early_stopping=0, vocab_size=b.vocab)
    numbers = {"max_length": T.INT32, "min_length": T.INT32, "num_beams": T.INT32, "num_return_sequences": T.INT32,
               "length_penalty": T.FLOAT}
    return helper.make_graph(
        [outer], "gpt2",
        [helper.make_tensor_value_info("input_ids", T.INT32, ["samples", "positions"]),
         *(helper.make_tensor_value_info(n, k, [1]) for n, k in numbers.items())],
        [helper.make_tensor_value_info("sequences", T.INT32, ["samples", "returned", "length"])], list(b.weights.values()))


def genai(b):
    ids = b.input("input_ids", T.INT64, ["rows", "positions"])
    b.input("attention_mask", T.INT64, ["rows", "total"])
    positions = b.input("position_ids", T.INT64, ["rows", "positions"])
    b.node("ReduceSum", ["attention_mask", b.constant("axis", np.array([1], np.int64))], ["lengths"], keepdims=0)
    b.node("Sub", ["lengths", b.constant("one", np.int64(1))], ["last_positions"])
    b.node("Cast", ["last_positions"], ["seqlens_k"], to=T.INT32)
    b.node("Shape", ["attention_mask"], ["mask_shape"])
    b.node("Gather", ["mask_shape", b.constant("one", np.int64(1))], ["total_length"])
    b.node("Cast", ["total_length"], ["total_sequence_length"], to=T.INT32)

    def attention(i, x):
        return b.node("GroupQueryAttention",
                      [b.packed(i, x), "", "", f"past_key_values.{i}.key", f"past_key_values.{i}.value", "seqlens_k",
                       "total_sequence_length"],
                      [f"attended_{i}", f"present.{i}.key", f"present.{i}.value"], MICROSOFT,
                      num_heads=b.heads, kv_num_heads=b.heads)

    last = b.logits(b.decoder(ids, positions, attention), "last_logits")
    b.node("Unsqueeze", [last, "axis"], ["logits"])
    b.output("logits", T.FLOAT, ["rows", 1, b.vocab])
    b.caches(["rows", b.heads, "past", b.head_size], ["rows", b.heads, "total", b.head_size],
             ("past_key_values.{}.key", "past_key_values.{}.value", "present.{}.key", "present.{}.value"))
    return b.graph("gpt2")


GRAPHS = {"group_query": group_query, "first": first, "next": following, "beam_search": beam_search, "genai": genai}


def write(subject, folder):
    """Writes every graph into a folder that exists."""
    weights, made = Weights(subject), {}
    with open(folder / DATA, "wb") as file:
        data = SimpleNamespace(file=file, places={})
        for name, make in GRAPHS.items():
            save(make(Builder(weights, made)), folder / f"{name}.onnx", data)
