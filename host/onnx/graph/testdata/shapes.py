"""Runs the fixture graphs in ONNX Runtime and writes down what every value is.

    for f in $(go run ./models/build --list | grep /); do go run ./models/build $f DIR/${f%/*}; done
    python host/onnx/graph/testdata/shapes.py DIR host/onnx/graph/testdata/shapes.json.gz

DIR holds the graphs with their weights filled, as EXPORTER/NAME.onnx. Each is run
with several lengths, every intermediate value an output. A decoder that is one If
is run once for each branch, with the branch's nodes in place of the If; families are run with one length. What is
written for a value: element type, shape, and, for up to eight integers, booleans or
one floating number, the content.

Needs the packages onnx, onnxruntime and numpy.
"""

import gzip
import json
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime as ort

LENGTHS = [
    {"batch": 2, "new": 3, "past": 5, "encoder": 7},
    {"batch": 3, "new": 1, "past": 4, "encoder": 6},
    {"batch": 1, "new": 2, "past": 0, "encoder": 1},
]


def length(name, at):
    """What a length's name means."""
    fixed = {"kv_cache_dim": 16, "num_channels": 3, "height": 32, "width": 32, "samples": 400}
    if name in fixed:  # the head size, as the genai builder calls it; images and sound of the families
        return fixed[name]
    if "+" in name:
        return sum(length(part.strip(), at) for part in name.split("+"))
    if "batch" in name:
        return at["batch"]
    if "encoder" in name and "decoder" not in name:
        return at["encoder"]
    if "total" in name or "present" in name:
        return at["past"] + at["new"]
    return at["past"] if "past" in name else at["new"]


def inputs(graph):
    constants = {t.name for t in graph.initializer}
    return [v for v in graph.input if v.name not in constants]


def feed(value, at, random):
    tensor = value.type.tensor_type
    shape = [length(d.dim_param, at) if d.dim_param else d.dim_value for d in tensor.shape.dim]
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if "mask" in value.name or kind == np.bool_:
        return np.ones(shape, kind)
    if "position" in value.name:
        return np.broadcast_to(np.arange(shape[-1], dtype=kind), shape)
    if "token_type" in value.name:
        return np.zeros(shape, kind)
    if np.issubdtype(kind, np.integer):
        if not shape:
            return np.array(at["past"] + at["new"], kind)
        return random.integers(2, 40 if value.name == "input_values" else 200, shape).astype(kind)
    return (random.standard_normal(shape) * 0.3).astype(kind)


def graphs(model):
    """The model, or each branch of its If with the branch in place of the If."""
    made = {o.name for o in model.graph.output}
    found = [n for n in model.graph.node if n.op_type == "If" and made <= set(n.output)]
    if not found:
        return [("", model)]
    result = []
    for name in ("then_branch", "else_branch"):
        branch = next(a.g for a in found[0].attribute if a.name == name)
        flat = onnx.ModelProto()
        flat.CopyFrom(model)
        del flat.graph.node[:]
        flat.graph.node.extend([n for n in model.graph.node if n.op_type != "If"])
        flat.graph.node.extend(branch.node)
        flat.graph.initializer.extend(branch.initializer)
        del flat.graph.output[:]
        flat.graph.output.extend(branch.output)
        result.append((name, flat))
    return result


def describe(array):
    fact = {"type": onnx.helper.np_dtype_to_tensor_dtype(array.dtype), "dims": list(array.shape)}
    if array.dtype.kind in "iub" and array.size <= 8:
        fact["ints"] = [int(x) for x in array.reshape(-1)]
    if array.dtype.kind == "f" and array.size == 1 and np.isfinite(array).all():
        fact["float"] = float(array.reshape(-1)[0])
    return fact


def run(model, at):
    model = onnx.ModelProto.FromString(model.SerializeToString())
    seen = {o.name for o in model.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in seen:
                seen.add(name)
                model.graph.output.append(onnx.ValueInfoProto(name=name))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(1)
    given = {v.name: feed(v, at, random) for v in inputs(model.graph)}
    read = {i.name for i in session.get_inputs()}
    names = [o.name for o in session.get_outputs()]
    values = session.run(names, {k: v for k, v in given.items() if k in read})
    return {
        "inputs": {k: list(v.shape) for k, v in given.items()},
        "values": {k: describe(v) for k, v in zip(names, values) if isinstance(v, np.ndarray)},  # others are sequences
    }


def main(folder, out):
    runs = []
    for path in sorted(pathlib.Path(folder).glob("*/*.onnx")):
        for branch, model in graphs(onnx.load(path)):
            # Families read more than a decoder does, and write as much: they are run at one length.
            for at in LENGTHS[:1] if path.parent.name == "families" else LENGTHS:
                if path.parent.name == "genai" and at["new"] > 1:
                    at = {**at, "batch": 1}  # its attention takes one row at a time there
                result = run(model, at)
                result["fixture"] = f"{path.parent.name}/{path.stem}"
                result["branch"] = branch
                runs.append(result)
                print(result["fixture"], branch, at, len(result["values"]), "values")
    text = json.dumps({"onnxruntime": ort.__version__, "runs": runs}, separators=(",", ":"), sort_keys=True)
    with open(out, "wb") as file:
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=9, mtime=0) as packed:
            packed.write(text.encode())


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
