"""Compares the exported files with the checkpoint, and the folder with its limit.

    python check.py WORK

Exit status 1 if tokens of expected.json differ in onnxruntime, if logits differ by
more than TOLERANCE, or if the folder holds more than LIMIT bytes.
"""

import json
import sys
from pathlib import Path

import onnx
import onnxruntime
import torch

import decode
import dictionary
import model

LIMIT = 8_000_000
TOLERANCE = 1e-3
WORDS = 512


def nodes(graph: onnx.GraphProto) -> int:
    """With those of the branches inside."""
    inner = [a.g for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    return len(graph.node) + sum(map(nodes, inner))


@torch.no_grad()
def logits(work: Path, net, tokenizer) -> tuple[float, float, int]:
    """Largest absolute difference of logits, the largest logit and their number, over padded words of all lengths."""
    entries = dictionary.held_out(work)[:WORDS]
    reference = decode.checkpoint(work)
    words = tokenizer([e.word for e in entries], return_tensors="pt", padding=True, return_token_type_ids=False)
    labels = tokenizer([e.pronunciations[0] for e in entries], return_tensors="pt", padding=True)
    inputs = labels.input_ids[:, :-1].clone()
    inputs[:, 0] = model.END
    wanted = reference(**words, decoder_input_ids=inputs).logits
    found = net(**words, decoder_input_ids=inputs).logits
    return (found - wanted).abs().max().item(), wanted.abs().max().item(), wanted.numel()


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python check.py WORK")
    torch.set_num_threads(1)
    faults = []
    for name in ("encoder_model.onnx", "decoder_model_merged.onnx"):
        graph = onnx.load(decode.HERE / name)
        print(f"{name}: onnx IR {graph.ir_version}, opset {graph.opset_import[0].version}, "
              f"{nodes(graph.graph)} nodes, {len(graph.graph.initializer)} initializers")
    net, tokenizer = decode.exported(), model.fast_tokenizer(decode.HERE / "tokenizer.json")

    difference, largest, count = logits(Path(sys.argv[1]), net, tokenizer)
    print(f"onnxruntime {onnxruntime.__version__} against torch {torch.__version__}: max absolute difference "
          f"{difference:.2e} over {count} logits, {difference / largest:.2e} of the largest")
    if difference > TOLERANCE:
        faults.append("logits")

    cases = json.loads((decode.HERE / "expected.json").read_text())["cases"]
    for name, options in decode.OPTIONS.items():
        equal = 0
        for case in cases:
            inputs = tokenizer([case["word"]], return_tensors="pt", return_token_type_ids=False)
            equal += net.generate(**inputs, **options)[0].tolist() == case[name]
        print(f"{name}: {equal} of {len(cases)} token sequences equal")
        if equal != len(cases):
            faults.append(name)

    size = sum(path.stat().st_size for path in decode.HERE.iterdir() if path.is_file())
    print(f"{size} bytes in the folder, at most {LIMIT}")
    if size > LIMIT:
        faults.append("size")
    if faults:
        sys.exit(f"failed: {', '.join(faults)}")


if __name__ == "__main__":
    main()
