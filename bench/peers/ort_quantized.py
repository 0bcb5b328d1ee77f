"""The graphs of ort_model.py with their matmuls quantised by ONNX Runtime's own tools.

  dynamic-int8          QInt8 a tensor, activations as they come: DynamicQuantizeLinear, MatMulInteger
  dynamic-int8-columns  the same, a scale a column
  nbits-8, nbits-4      MatMulNBits, symmetric blocks of 32, accuracy_level 4: activations in int8

Embeddings and norms stay float32, as in the engine.
"""

import logging

import onnx

GRAPHS = ("group_query", "first", "next")
BLOCK = 32


def dynamic(model, path, columns):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # The types of what contrib operators return, which the tool cannot infer.
    types = {"DefaultTensorType": onnx.TensorProto.FLOAT}
    quantize_dynamic(model, path, op_types_to_quantize=["MatMul"], per_channel=columns, weight_type=QuantType.QInt8,
                     use_external_data_format=True, extra_options=types)


def blocks(model, path, bits):
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(model, bits=bits, block_size=BLOCK, is_symmetric=True, accuracy_level=4)
    quantizer.process()
    quantizer.model.save_model_to_file(str(path), True)


def write(exported, quantization, folder):
    """Writes the graphs of a folder, quantised, into another, which exists."""
    logging.disable(logging.INFO)  # a line a node
    for name in GRAPHS:
        model, path = onnx.load(exported / f"{name}.onnx"), folder / f"{name}.onnx"
        matmuls = sum(n.op_type == "MatMul" for n in model.graph.node)
        if quantization.startswith("nbits-"):
            blocks(model, path, int(quantization.removeprefix("nbits-")))
        else:
            dynamic(model, path, quantization == "dynamic-int8-columns")
        left = sum(n.op_type == "MatMul" for n in onnx.load(path, load_external_data=False).graph.node)
        if left or not matmuls:
            raise ValueError(f"{quantization}: {left} of {matmuls} matmuls of {name} were left as they are")
