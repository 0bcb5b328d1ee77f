"""Words to phonemes with Hugging Face generate, by the trained checkpoint or by the exported files."""

from pathlib import Path

import torch
from transformers import BartForConditionalGeneration, PreTrainedTokenizerFast

import model

HERE = Path(__file__).resolve().parent
BATCH = 256
OPTIONS = {
    "greedy": {"num_beams": 1, "do_sample": False, "max_length": model.MAX_LENGTH},
    "beam": {"num_beams": 4, "do_sample": False, "max_length": model.MAX_LENGTH, "length_penalty": 1.0,
             "early_stopping": False},
}


def checkpoint(work: Path, dtype: torch.dtype = torch.float32) -> BartForConditionalGeneration:
    return BartForConditionalGeneration.from_pretrained(work / "checkpoint", dtype=dtype).eval()


def exported():
    """The ONNX files of this folder as a model that has generate."""
    from onnxruntime import SessionOptions
    from optimum.onnxruntime import ORTModelForSeq2SeqLM

    options = SessionOptions()
    options.intra_op_num_threads = 1  # the products are too small to share
    return ORTModelForSeq2SeqLM.from_pretrained(HERE, session_options=options, use_io_binding=False)


@torch.no_grad()
def decode(net, tokenizer: PreTrainedTokenizerFast, words: list[str], options: dict) -> list[list[str]]:
    """For each word the returned sequences, best first, as text.

    Words of one length make a batch, so that nothing is padded.
    """
    returned = options.get("num_return_sequences", 1)
    answers: list[list[str]] = [[] for _ in words]
    for length in sorted(set(map(len, words))):
        rows = [i for i, word in enumerate(words) if len(word) == length]
        for at in range(0, len(rows), BATCH):
            batch = rows[at:at + BATCH]
            inputs = tokenizer([words[i] for i in batch], return_tensors="pt", return_token_type_ids=False)
            found = tokenizer.batch_decode(net.generate(**inputs, **options), skip_special_tokens=True)
            for i, first in zip(batch, range(0, len(found), returned)):
                answers[i] = found[first:first + returned]
    return answers
