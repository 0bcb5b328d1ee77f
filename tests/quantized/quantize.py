"""Quantises encoders as their exporters do, and a matmul alone with inputs that are rounded in special ways.

    python quantize.py ENCODER.onnx... FOLDER
    python quantize.py --static ENCODER.onnx... FOLDER

Prints a line for each model: its path, and that of its inputs or nothing.
"""

import os
import sys

import numpy
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

# The ways of quantize_dynamic: Optimum's for AVX-512 with VNNI, its default, and one with weights of 7 bits.
WAYS = {
    "columns": {"per_channel": True, "weight_type": QuantType.QInt8},
    "tensor": {"per_channel": False, "weight_type": QuantType.QInt8},
    "unsigned": {"per_channel": False, "weight_type": QuantType.QUInt8},
    "unsigned-columns": {"per_channel": True, "weight_type": QuantType.QUInt8},
    "reduced": {"per_channel": True, "weight_type": QuantType.QInt8, "reduce_range": True},
}

# The ways of quantize_static: what is rounded by scales of calibration. With everything rounded, masks are too.
STATIC = {"matmuls": ["MatMul", "Gemm"], "all": None}

LARGEST = numpy.finfo(numpy.float32).max

# Rows of the matmul's x.
SPECIAL = {
    "zeros": [0.0, -0.0],
    "positive": [3.0, 1.0],
    "negative": [-3.0, -1.0],
    "halves": [-127.5, 127.5, 0.5, 1.5, -0.5, -1.5],
    "smallest": [1e-45, -1e-45, 3e-45, 0.0],
    "denormal": [1e-40, -1e-39, 3e-40],
    "largest": [LARGEST, 0.0, LARGEST / 2],
    "overflow": [LARGEST, -LARGEST, 1.0],
    "infinite": [numpy.inf, 1.0, -1.0, 0.0],
    "minus-infinite": [-numpy.inf, 1.0, -1.0, 0.0],
    "both-infinite": [numpy.inf, -numpy.inf, 1.0, 0.0],
}


def matmul(path):
    """x W + b, with W drawn by a seed."""
    draw = numpy.random.default_rng(1)
    w = onnx.numpy_helper.from_array(draw.standard_normal((50, 37), numpy.float32), "w")
    b = onnx.numpy_helper.from_array(draw.standard_normal(37, numpy.float32), "b")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["p"]), onnx.helper.make_node("Add", ["p", "b"], ["y"])],
        "matmul",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows", 50])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["rows", 37])],
        [w, b],
    )
    onnx.save(onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)


class Texts(CalibrationDataReader):
    """Token ids without padding, drawn by a seed, for what an encoder reads."""

    def __init__(self, encoder):
        draw = numpy.random.default_rng(1)
        graph = onnx.load(encoder).graph
        vocabulary = max(w.dims[0] for w in graph.initializer if len(w.dims) == 2)
        names = [i.name for i in graph.input]
        made = {"attention_mask": numpy.ones, "token_type_ids": numpy.zeros}
        self.batches = iter([
            {n: made[n]((4, 24), numpy.int64) if n in made else draw.integers(5, min(vocabulary, 400), (4, 24)) for n in names} for _ in range(4)
        ])

    def get_next(self):
        return next(self.batches, None)


def main():
    *encoders, folder = sys.argv[1:]
    if encoders[0] == "--static":
        for at, encoder in enumerate(encoders[1:]):
            for name, kinds in STATIC.items():
                path = os.path.join(folder, f"encoder-{at}-{name}.onnx")
                quantize_static(encoder, path, Texts(encoder), quant_format=QuantFormat.QDQ, op_types_to_quantize=kinds, per_channel=True,
                                activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
                print(path)
        return
    for at, encoder in enumerate(encoders):
        for name, how in WAYS.items():
            path = os.path.join(folder, f"encoder-{at}-{name}.onnx")
            quantize_dynamic(encoder, path, **how)
            print(path)
    plain = os.path.join(folder, "matmul.onnx")
    matmul(plain)
    path = os.path.join(folder, "matmul-q.onnx")
    quantize_dynamic(plain, path, **WAYS["columns"])
    for name, row in SPECIAL.items():
        inputs = os.path.join(folder, name + ".npz")
        numpy.savez(inputs, x=numpy.resize(numpy.array(row, numpy.float32), (3, 50)))
        print(path, inputs, sep="\t")


if __name__ == "__main__":
    main()
