"""PackedAttention against ONNX Runtime's MultiHeadAttention, interleaved in one process.

    python against_onnxruntime.py libremove_padding.so [threads] [filter]

Sequences are of one length, so that both compute the same. Times are medians; with one thread they are the
process's own.
"""

import statistics
import sys
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper


def session(node, inputs, library, threads):
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("graft", 1)])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.register_custom_ops_library(library)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def main():
    library, threads = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    chosen = sys.argv[3] if len(sys.argv) > 3 else ""
    clock = time.process_time if threads == 1 else time.perf_counter
    names = ["query", "key", "value"]
    shapes = [(b, n, 12, d) for d in (32, 64) for n in (16, 32, 64, 128, 256, 512) for b in (1, 8, 32) if b * n <= 4096]
    shapes += [(8, 128, 12, d) for d in (80, 96, 128)] + [(8, 20, 12, 32), (8, 50, 12, 32), (8, 100, 12, 64), (1, 2048, 12, 64)]
    print(f"onnxruntime {onnxruntime.__version__}, {threads} threads")
    for batch, length, heads, size in shapes:
        name = f"{batch} x {length}, {heads} heads of {size}"
        if chosen not in name:
            continue
        width, rows = heads * size, batch * length
        rng = np.random.default_rng(1)
        data = [rng.standard_normal((batch, length, width), dtype=np.float32) for _ in names]
        offsets = np.arange(0, rows + 1, length, dtype=np.int32)
        peer = session(helper.make_node("MultiHeadAttention", names, ["output"], domain="com.microsoft", num_heads=heads),
                       [(n, TensorProto.FLOAT, [batch, length, width]) for n in names], library, threads)
        ours = session(helper.make_node(
            "PackedAttention", [*names, "offsets"], ["output"], domain="graft", num_heads=heads, output_rank=3),
            [*((n, TensorProto.FLOAT, [1, rows, width]) for n in names), ("offsets", TensorProto.INT32, [batch + 1])],
            library, threads)
        feeds = [dict(zip(names, data)),
                 {**{n: d.reshape(1, rows, width) for n, d in zip(names, data)}, "offsets": offsets}]
        answers = [s.run(None, f)[0].ravel() for s, f in zip((peer, ours), feeds)]
        difference = float(np.abs(answers[0] - answers[1]).max())
        # Outputs stay where they are: else their allocation is measured too.
        bindings = []
        for s, f in zip((peer, ours), feeds):
            binding = s.io_binding()
            for n, a in f.items():
                binding.bind_cpu_input(n, a)
            out = onnxruntime.OrtValue.ortvalue_from_numpy(s.run(None, f)[0])
            binding.bind_ortvalue_output("output", out)
            bindings.append((s, binding, out))
        work = 4 * batch * heads * length * length * size
        calls = max(1, int(2e8 / work))
        times = [[], []]
        for _ in range(11):
            for side, (s, binding, _out) in enumerate(bindings):
                start = clock()
                for _ in range(calls):
                    s.run_with_iobinding(binding)
                times[side].append((clock() - start) / calls)
        a, b = (statistics.median(t) for t in times)
        print(f"{name:32} MultiHeadAttention {a * 1e6:9.1f} us  PackedAttention {b * 1e6:9.1f} us  "
              f"{work / b / 1e9:6.1f} GFLOP/s  ratio {a / b:5.2f}  best {min(times[0]) / min(times[1]):5.2f}"
              f"  difference {difference:.1e}", flush=True)


if __name__ == "__main__":
    main()
