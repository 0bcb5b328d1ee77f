"""Trains the model on the dictionary's words that are not held out.

    python train.py WORK

writes WORK/checkpoint (Hugging Face format, with the tokenizer) and
WORK/train.json (what was done and what it cost). Started again, it goes on from
the last saved step.
"""

import json
import os
import platform
import sys
import time
from pathlib import Path

import numpy as np
import torch
from transformers import BartForConditionalGeneration

import dictionary
import model

STEPS = 5_000
DECAY = 1_800  # the rate is constant until then, and falls to zero over the last DECAY steps
WARMUP = 400
PEAK_RATE = 2e-3
WEIGHT_DECAY = 0.05
SMOOTHING = 0.1
LETTERS_A_STEP = 3072  # a batch holds words of one length, as many as make up this many input tokens
THREADS = 1
SAVE_EVERY = 100
IGNORED = -100  # a label that does not count


def rate(step: int) -> float:
    return PEAK_RATE * min(1.0, (step + 1) / WARMUP, (STEPS - step) / DECAY)


class Pairs:
    """Words and pronunciations as token ids; a word with two pronunciations makes two pairs."""

    def __init__(self, entries: list[dictionary.Entry]):
        tokenizer = model.tokenizer()
        pairs = [(entry.word, phonemes) for entry in entries for phonemes in entry.pronunciations]
        self.words = [p.ids for p in tokenizer.encode_batch([word for word, _ in pairs])]
        self.labels = [p.ids[1:] for p in tokenizer.encode_batch([phonemes for _, phonemes in pairs])]
        if any(model.UNKNOWN in ids for ids in self.words + self.labels):
            raise ValueError("dictionary: found a letter or phoneme outside the vocabulary")
        self.lengths = np.array([len(ids) for ids in self.words])
        self.label_lengths = np.array([len(ids) for ids in self.labels])

    def epoch(self, generator: np.random.Generator) -> list[np.ndarray]:
        """Every pair once, in batches of one word length and of pronunciations about as long, in random order."""
        near = self.label_lengths + generator.uniform(0, 2, len(self.labels))
        batches = []
        for length in np.unique(self.lengths):
            rows = np.flatnonzero(self.lengths == length)
            rows = rows[np.argsort(near[rows])]
            size = LETTERS_A_STEP // length
            batches += [rows[at:at + size] for at in range(0, len(rows), size)]
        return [batches[i] for i in generator.permutation(len(batches))]

    def tensors(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Word [rows, letters], what the decoder reads and what it should answer [rows, phonemes]."""
        words = torch.tensor([self.words[i] for i in rows])
        longest = self.label_lengths[rows].max()
        labels = torch.full((len(rows), longest), IGNORED)
        for to, i in enumerate(rows):
            labels[to, :len(self.labels[i])] = torch.tensor(self.labels[i])
        inputs = labels.roll(1, 1).masked_fill(labels.roll(1, 1) == IGNORED, model.PAD)
        inputs[:, 0] = model.END
        return words, inputs, labels


def optimizer(net: torch.nn.Module) -> torch.optim.Optimizer:
    matrices = [p for p in net.parameters() if p.dim() >= 2]
    vectors = [p for p in net.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.98), eps=1e-8, fused=True)


def train(net: BartForConditionalGeneration, pairs: Pairs, state_path: Path) -> dict:
    """Trains to the last step, from state_path when a run was interrupted before."""
    optim = optimizer(net)
    step, epoch, at, seen, running, spent_before = 0, 0, 0, 0, None, 0.0
    if state_path.exists():
        state = torch.load(state_path, weights_only=True)
        net.load_state_dict(state["net"])
        optim.load_state_dict(state["optim"])
        torch.set_rng_state(state["random"])
        step, epoch, at, seen = state["step"], state["epoch"], state["at"], state["seen"]
        running, spent_before = state["running"], state["seconds"]
        print(f"resuming at step {step}", flush=True)
    batches = pairs.epoch(np.random.default_rng((model.SEED, epoch)))
    began = time.monotonic() - spent_before
    net.train()
    while step < STEPS:
        if at == len(batches):
            epoch, at = epoch + 1, 0
            batches = pairs.epoch(np.random.default_rng((model.SEED, epoch)))
        words, inputs, labels = pairs.tensors(batches[at])
        for group in optim.param_groups:
            group["lr"] = rate(step)
        with torch.autocast("cpu", torch.bfloat16):
            logits = net(input_ids=words, decoder_input_ids=inputs, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten(),
                                                 ignore_index=IGNORED, label_smoothing=SMOOTHING)
        optim.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optim.step()
        step, at, seen = step + 1, at + 1, seen + len(words)
        running = loss.item() if running is None else 0.99 * running + 0.01 * loss.item()
        if step % SAVE_EVERY == 0 or step == STEPS:
            spent = time.monotonic() - began
            state = {"net": net.state_dict(), "optim": optim.state_dict(), "random": torch.get_rng_state(),
                     "step": step, "epoch": epoch, "at": at, "seen": seen, "running": running, "seconds": spent}
            torch.save(state, state_path.with_suffix(".tmp"))
            state_path.with_suffix(".tmp").replace(state_path)
            print(f"step {step}/{STEPS} epoch {epoch} loss {running:.4f} "
                  f"{seen / spent:.0f} pairs/s {spent:.0f} s", flush=True)
    return {"steps": step, "pairs_seen": seen, "epochs": round(seen / len(pairs.words), 2),
            "final_running_loss": round(running, 4), "wall_seconds": round(time.monotonic() - began)}


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python train.py WORK")
    work = Path(sys.argv[1])
    work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(THREADS)
    torch.manual_seed(model.SEED)

    entries = dictionary.load(work)
    training = [entry for entry in entries if not entry.held_out]
    pairs = Pairs(training)
    net = BartForConditionalGeneration(model.config())
    net.set_attn_implementation("eager")  # words are short: plain products are faster here than the fused kernel
    parameters = sum(p.numel() for p in net.parameters())
    print(f"{len(training)} words, {len(pairs.words)} pairs, {len(entries) - len(training)} words held out, "
          f"{parameters} parameters", flush=True)
    report = {"training_words": len(training), "training_pairs": len(pairs.words),
              "held_out_words": len(entries) - len(training), "parameters": parameters, "torch": torch.__version__,
              "threads": THREADS, "cpus": os.cpu_count(), "machine": platform.machine()}
    report.update(train(net, pairs, work / "state.pt"))
    net.generation_config = model.generation_config()
    net.save_pretrained(work / "checkpoint")
    model.tokenizer().save(str(work / "checkpoint" / "tokenizer.json"))
    (work / "train.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
