"""Exports the trained model into this folder.

    python export.py WORK

writes encoder_model.onnx, decoder_model_merged.onnx, config.json and
generation_config.json as optimum writes them (TorchScript, with past), tokenizer.json,
and held_out.txt: held-out words, each with its pronunciations, apart by a tab.
"""

import random
import shutil
import sys
import tempfile
from pathlib import Path

from optimum.exporters.onnx import main_export

import dictionary
import model
from decode import HERE

OPSET = 18
WORDS = 500
FILES = ("encoder_model.onnx", "decoder_model_merged.onnx", "config.json", "generation_config.json")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python export.py WORK")
    work = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        main_export(str(work / "checkpoint"), folder, task="text2text-generation-with-past", opset=OPSET,
                    library_name="transformers", do_validation=False)
        for name in FILES:
            shutil.copyfile(Path(folder) / name, HERE / name)
    shutil.copyfile(work / "checkpoint" / "tokenizer.json", HERE / "tokenizer.json")
    chosen = random.Random(model.SEED).sample(dictionary.held_out(work), WORDS)
    (HERE / "held_out.txt").write_text("".join("\t".join((e.word, *e.pronunciations)) + "\n" for e in chosen))


if __name__ == "__main__":
    main()
