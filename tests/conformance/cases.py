"""Writes ONNX's node conformance cases to a folder: cases.py FOLDER

Each case is a folder with model.onnx and test_data_set_0/{input,output}_N.pb, as
the installed onnx package carries them. An unfinished copy leaves no FOLDER.
"""

import os
import shutil
import sys

import onnx
from onnx.backend.test.loader import DATA_DIR


def main():
    target = sys.argv[1]
    unfinished = target + ".unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(os.path.join(DATA_DIR, "node"), unfinished)
    with open(os.path.join(unfinished, "VERSION"), "w") as f:
        f.write(onnx.__version__ + "\n")
    shutil.rmtree(target, ignore_errors=True)
    os.rename(unfinished, target)


if __name__ == "__main__":
    main()
