"""Writes ONNX's node conformance cases to a folder: cases.py FOLDER

Each case is a folder with model.onnx and test_data_set_0/{input,output}_N.pb, as
the installed onnx package computes them: since 1.23 it carries no files of them. An
unfinished copy leaves no FOLDER.
"""

import os
import shutil
import sys

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests

WRITERS = {"sequence_type": numpy_helper.from_list, "optional_type": numpy_helper.from_optional}


def write(folder, side, declared, values):
    for i, (info, value) in enumerate(zip(declared, values)):
        if not isinstance(value, TensorProto):
            kind = info.type.WhichOneof("value")
            value = WRITERS.get(kind, numpy_helper.from_array)(value, info.name)
        with open(os.path.join(folder, f"{side}_{i}.pb"), "wb") as f:
            f.write(value.SerializeToString())


def main():
    target = sys.argv[1]
    unfinished = target + ".unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    np.random.seed(0)  # some cases have random inputs
    for case in load_model_tests(kind="node"):
        folder = os.path.join(unfinished, case.name)
        data = os.path.join(folder, "test_data_set_0")
        os.makedirs(data)
        with open(os.path.join(folder, "model.onnx"), "wb") as f:
            f.write(case.model.SerializeToString())
        inputs, outputs = case.data_sets[0]
        write(data, "input", case.model.graph.input, inputs)
        write(data, "output", case.model.graph.output, outputs)
    with open(os.path.join(unfinished, "VERSION"), "w") as f:
        f.write(onnx.__version__ + "\n")
    shutil.rmtree(target, ignore_errors=True)
    os.rename(unfinished, target)


if __name__ == "__main__":
    main()
