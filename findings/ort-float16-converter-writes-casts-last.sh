#!/usr/bin/env bash
# onnxruntime 1.32.0, onnxruntime.transformers.float16.convert_float_to_float16 with keep_io_types=True: the casts of the
# model's inputs stand after the nodes that read them, at the end of the graph. onnx 1.22.0's checker passes the model
# before and refuses it after; ONNX Runtime orders the nodes itself and runs it. Whoever reads such files cannot count on
# nodes in topological order.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install -q --disable-pip-version-check onnx==1.22.0 onnxruntime==1.32.0
cat >convert.py <<'PY'
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime.transformers.float16 import convert_float_to_float16


def tensor(name):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"])


graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Relu", ["sum"], ["y"])],
                          "graph", [tensor("a"), tensor("b")], [tensor("y")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
onnx.checker.check_model(model)
half = convert_float_to_float16(model, keep_io_types=True)
print(" ".join(node.op_type for node in half.graph.node))
try:
    onnx.checker.check_model(half)
    print("the checker passes it")
except onnx.checker.ValidationError as e:
    print("the checker refuses it:", str(e).split(",")[0])
session = onnxruntime.InferenceSession(half.SerializeToString(), providers=["CPUExecutionProvider"])
print("it runs:", session.run(None, {"a": np.float32([1, 2]), "b": np.float32([3, -5])})[0])
PY
env/bin/python convert.py | tee found
cat >expected <<'TEXT'
Add Relu Cast Cast Cast
the checker refuses it: Nodes in a graph must be topologically sorted
it runs: [4. 0.]
TEXT
diff expected found
