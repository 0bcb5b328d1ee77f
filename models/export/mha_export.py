"""GPT-2 with ONNX Runtime's MultiHeadAttention with past.

ONNX Runtime's optimizer has no pattern that takes optimum's GPT-2 to
MultiHeadAttention: it fuses norms and activations and leaves attention alone. This
adds the missing fusion, in the optimizer's own terms, so that the runtime's fused
operator can be compared on the very same model (same inputs and outputs, same parameters).
"""

import tempfile
from importlib.metadata import version
from pathlib import Path

from onnx import helper
from onnxruntime.transformers.fusion_base import Fusion
from onnxruntime.transformers.fusion_options import FusionOptions
from onnxruntime.transformers.optimizer import optimize_model
from optimum.exporters.onnx.convert import onnx_export_from_model

import store
import subjects

# Fixture: subject, folder and name under graphs/.
TINY = {"gpt2": ("gpt2", "ortopt", "gpt2")}
FULL = {"gpt2-124m-mha": ("gpt2-124m", "full/gpt2-124m-mha", "model")}


class FusionMultiHeadAttentionPast(Fusion):
    """Softmax(Q sqrt(s) (K sqrt(s))^T + mask) V with concatenated past, as optimum writes it."""

    def __init__(self, model, num_heads):
        super().__init__(model, "MultiHeadAttention", "Softmax")
        self.num_heads = num_heads
        self.bias = None

    def fuse(self, softmax, children, producers):
        match = self.model.match_parent_path
        # Rows without a visible key are guarded: Where(IsNaN(softmax), 0, softmax).
        guard = next((n for n in children[softmax.output[0]] if n.op_type == "Where"), None)
        if guard is None:
            return
        value_product = children[guard.output[0]][0]
        transpose = children[value_product.output[0]][0]
        reshape = children[transpose.output[0]][0]
        scores = match(softmax, ["Add", "MatMul"], [0, 0], producers)
        value = match(value_product, ["Concat", "Transpose", "Reshape", "Split"], [1, 1, 0, 0], producers)
        if not scores or not value or transpose.op_type != "Transpose" or reshape.op_type != "Reshape":
            return
        add, score_product = scores
        query = match(score_product, ["Mul", "Transpose", "Reshape", "Split"], [0, 0, 0, 0], producers)
        key = match(score_product, ["Mul", "Transpose", "Concat", "Transpose", "Reshape", "Split"], [1, 0, 0, 1, 0, 0], producers)
        mask = match(add, ["Where", "Slice"], [1, 0], producers)
        if not query or not key or not mask or query[-1] is not key[-1] or key[-1] is not value[-1]:
            return
        key_concat, value_concat = key[2], value[0]
        if self.bias is None:
            # The mask is cut to the length of the present keys, which it has already; the
            # operator makes the present keys itself, so the cut would be a circle. All
            # layers add the same bias: the first one's serves them all.
            where, cut = mask
            where.input[0] = cut.input[0]
            self.bias = where.output[0]
        node = helper.make_node(
            "MultiHeadAttention",
            inputs=[query[2].input[0], key[4].input[0], value[2].input[0], "", "", self.bias,
                    key_concat.input[0], value_concat.input[0]],
            outputs=[reshape.output[0], key_concat.output[0], value_concat.output[0]],
            name=self.model.create_node_name("MultiHeadAttention"),
            domain="com.microsoft",
            num_heads=self.num_heads,
        )
        self.nodes_to_add.append(node)
        self.node_name_to_graph_name[node.name] = self.this_graph_name
        self.nodes_to_remove += [reshape, key_concat, value_concat]
        self.prune_graph = True


def run(fixture, full=False):
    subject, folder, name = (FULL if full else TINY)[fixture]
    model, parameters = subjects.make(subject, "constant_scale")
    config = model.config
    with tempfile.TemporaryDirectory() as scratch:
        onnx_export_from_model(model, scratch, opset=18, task="text-generation-with-past", do_validation=False)
        optimized = optimize_model(
            str(Path(scratch) / "model.onnx"), model_type="gpt2", num_heads=config.n_head,
            hidden_size=config.n_embd, optimization_options=FusionOptions("gpt2"), opt_level=0)
        fusion = FusionMultiHeadAttentionPast(optimized, config.n_head)
        fusion.apply()
        if len(fusion.nodes_to_add) != config.n_layer:
            raise SystemExit(f"{fixture}: {len(fusion.nodes_to_add)} of {config.n_layer} layers were fused")
        path = str(Path(scratch) / "optimized.onnx")
        optimized.save_model_to_file(path)
        made_by = {p: version(p) for p in ("optimum-onnx", "onnxruntime", "transformers", "torch", "onnx")}
        store.save(path, parameters, folder, name, subjects.published(subject, model), made_by)
