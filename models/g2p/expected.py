"""Writes expected.json: what Hugging Face generate answers, in fp32, to the first words of held_out.txt.

    python expected.py WORK

Each word is a batch of its own. A word whose tokens differ between fp32 and fp64,
at greedy or beam search, is replaced by the next one and counted: there another
correct kernel may round to the other answer.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import torch

import decode
import model

CASES = 200


@torch.no_grad()
def tokens(net, tokenizer, word: str, options: dict) -> tuple[list[int], float | None]:
    """The sequence with the decoder's start token, and beam search's score."""
    inputs = tokenizer([word], return_tensors="pt", return_token_type_ids=False)
    out = net.generate(**inputs, **options, return_dict_in_generate=True, output_scores=True)
    score = None if options["num_beams"] == 1 else round(out.sequences_scores.item(), 6)
    return out.sequences[0].tolist(), score


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python expected.py WORK")
    work = Path(sys.argv[1])
    torch.set_num_threads(1)
    single, double = decode.checkpoint(work), decode.checkpoint(work, torch.float64)
    tokenizer = model.fast_tokenizer(decode.HERE / "tokenizer.json")
    cases: list[str] = []
    replaced: list[str] = []
    for line in (decode.HERE / "held_out.txt").read_text().splitlines():
        word = line.split("\t")[0]
        case: dict = {"word": word, "input_ids": tokenizer(word).input_ids}
        agree = True
        for name, options in decode.OPTIONS.items():
            case[name], score = tokens(single, tokenizer, word, options)
            agree &= case[name] == tokens(double, tokenizer, word, options)[0]
            if score is not None:
                case[f"{name}_score"] = score
        if agree:
            cases.append(json.dumps(case))
        else:
            replaced.append(word)
        if len(cases) == CASES:
            break
    else:
        raise ValueError(f"held_out.txt: found {len(cases)} words equal in fp32 and fp64, needed {CASES}")
    head = {"transformers": version("transformers"), "torch": version("torch"), "options": decode.OPTIONS,
            "replaced": replaced}
    text = json.dumps(head)[:-1] + ', "cases": [\n' + ",\n".join(cases) + "\n]}\n"
    json.loads(text)
    (decode.HERE / "expected.json").write_text(text)
    print(f"{len(cases)} words, {len(replaced)} replaced because fp32 and fp64 differ: {replaced}")


if __name__ == "__main__":
    main()
