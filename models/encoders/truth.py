"""Says who is nearer to an encoder's answers in double precision: ONNX Runtime or a patched model.

    python models/encoders/truth.py MODEL PATCHED [--batch 2] [--length 512] [--seeds 2] [--plugins build/plugins]

PATCHED is what `graft patch MODEL -o PATCHED` wrote. Both run in float32 on random tokens without padding; the reference is the
exported graph in float64, node by node, in numpy. Errors in tolerances are those over 1e-5 + 1e-4 of the value. Ends with 1 where the
patched model's root mean square error is more than 1.1 times ONNX Runtime's.
"""

import argparse
import math
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import AttributeProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun


class Erf(OpRun):
    """Erf of float64; the reference evaluator's own rounds to float32."""

    op_domain = ""

    def _run(self, x):
        return (np.vectorize(math.erf, otypes=[x.dtype])(x),)


def widen(model):
    """Makes a float32 graph one of float64."""

    def double(tensor):
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))

    for tensor in model.graph.initializer:
        double(tensor)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                double(attribute.t)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    del model.graph.value_info[:]
    for output in model.graph.output:
        if output.type.tensor_type.elem_type == TensorProto.FLOAT:
            output.type.tensor_type.elem_type = TensorProto.DOUBLE
    return model


def session(path, plugins, level):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = level
    for library in plugins:
        options.register_custom_ops_library(str(library))
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def tokens(inputs, batch, length, seed):
    draw = np.random.RandomState(seed)
    fed = {}
    for i in inputs:
        if "mask" in i.name:
            fed[i.name] = np.ones((batch, length), np.int64)
        elif "type" in i.name:
            fed[i.name] = np.zeros((batch, length), np.int64)
        else:
            fed[i.name] = draw.randint(1000, 30000, (batch, length)).astype(np.int64)
    return fed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("patched", type=Path)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--plugins", type=Path, default=Path("build/plugins"))
    args = parser.parse_args()

    wanted = {f"lib{p}.so" for p in ("fused_gelu", "packed_linear", "flash_decode", "remove_padding")}
    plugins = [library for library in sorted(args.plugins.glob("*/lib*.so")) if library.name in wanted]
    levels = onnxruntime.GraphOptimizationLevel
    sides = {
        "ONNX Runtime": session(args.model, [], levels.ORT_ENABLE_ALL),
        "ONNX Runtime, unoptimised": session(args.model, [], levels.ORT_DISABLE_ALL),
        "patched": session(args.patched, plugins, levels.ORT_ENABLE_ALL),
    }
    reference = ReferenceEvaluator(widen(onnx.load(args.model)), new_ops=[Erf])
    worse = False
    for seed in range(args.seeds):
        fed = tokens(sides["patched"].get_inputs(), args.batch, args.length, seed)
        truth = reference.run(None, fed)[0]
        tolerance = 1e-5 + 1e-4 * np.abs(truth)
        squares, answers = {}, {}
        for name, side in sides.items():
            answers[name] = side.run(None, fed)[0]
            error = np.abs(answers[name] - truth)
            squares[name] = math.sqrt(float((error**2).mean()))
            print(f"seed {seed}: {name}: root mean square {squares[name]:.3g}, greatest {error.max():.3g}, in tolerances {(error / tolerance).max():.2f}")
        apart = np.abs(answers["patched"] - answers["ONNX Runtime"])
        print(f"seed {seed}: patched against ONNX Runtime: greatest {apart.max():.3g}, in tolerances {(apart / tolerance).max():.2f}")
        worse |= squares["patched"] > 1.1 * squares["ONNX Runtime"]
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
