"""Times of ONNX Runtime's MatMulNBits and of PackedLinear with the same number of integers in panels, one thread.

    build/peers/new/bin/python plugins/packed-linear/bench/nbits.py build/plugins/packed-linear/libpacked_linear.so 768x768,3072x768

Each cell is the least of nine runs in turn (512 rows: of five) in milliseconds of the thread's processor time, MatMulNBits / panels, and the
ratio; med is that of medians. Products of random integers: what they come to is tested elsewhere.
"""

import itertools
import sys
import time

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(1)
ROWS = (1, 4, 16, 128, 512)


def scales(*shape):
    return numpy_helper.from_array(RANDOM.random(shape, dtype=np.float32) * 0.01, "s")


def exported(depth, columns, bits, block, level, zeros):
    groups = -(-depth // block)
    inputs = ["x", "w", "s"]
    constants = [numpy_helper.from_array(RANDOM.integers(0, 256, (columns, groups, block * bits // 8), dtype=np.uint8), "w"), scales(columns, groups)]
    if zeros:
        inputs.append("z")
        constants.append(numpy_helper.from_array(RANDOM.integers(0, 256, (columns, -(-groups * bits // 8)), dtype=np.uint8), "z"))
    node = helper.make_node("MatMulNBits", inputs, ["y"], domain="com.microsoft", K=depth, N=columns, bits=bits, block_size=block, accuracy_level=level)
    return node, constants


def panels(depth, columns, bits, block, level, zeros):
    count, padded, group = -(-columns // 16), -(-depth // 32) * 32, min(block, 128)
    groups = -(-depth // group)
    weight = RANDOM.integers(0, 256, (count, padded * bits // 8, 16), dtype=np.uint8)
    constants = [numpy_helper.from_array(weight if bits == 4 else weight.view(np.int8), "w"), scales(count, groups, 16)]
    inputs = ["x", "w", "", "", "", "", "", "", "s"]
    if zeros:
        inputs.append("z")
        constants.append(numpy_helper.from_array(RANDOM.integers(-8, 8, (count, groups, 16)).astype(np.int8), "z"))
    node = helper.make_node("PackedLinear", inputs, ["y"], domain="graft", columns=columns, activations="int8" if level == 4 else "float32")
    return node, constants


def session(library, make, depth, columns, *form):
    node, constants = make(depth, columns, *form)
    value = lambda name, width: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", width])
    graph = helper.make_graph([node], "product", [value("x", depth)], [value("y", columns)], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("graft", 1)]
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.register_custom_ops_library(library)
    return ort.InferenceSession(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString(), options)


def seconds(of, x, count):
    begin = time.thread_time()
    for _ in range(count):
        of.run(None, {"x": x})
    return (time.thread_time() - begin) / count


def main(library, shapes):
    print("onnxruntime", ort.__version__, flush=True)
    forms = itertools.product((4, 8), (0, 4), (32, 128), (0, 1))
    for (depth, columns), (bits, level, block, zeros) in itertools.product(shapes, list(forms)):
        sides = [session(library, make, depth, columns, bits, block, level, zeros) for make in (exported, panels)]
        cells = []
        for rows in ROWS:
            x = RANDOM.standard_normal((rows, depth)).astype(np.float32)
            for side in sides:
                seconds(side, x, 1)
            count = max(1, int(0.004 / max(1e-6, seconds(sides[0], x, 1))))
            times = np.array([[seconds(side, x, count) for side in sides] for _ in range(9 if rows < 512 else 5)])
            (a, b), (c, d) = times.min(axis=0), np.median(times, axis=0)
            cells.append(f"{rows}: {a * 1e3:.3f}/{b * 1e3:.3f}={a / b:.2f}x(med {c / d:.2f})")
        print(depth, columns, f"bits{bits} level{level} block{block} zero{zeros}", "  ".join(cells), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], [tuple(map(int, shape.split("x"))) for shape in sys.argv[2].split(",")])
