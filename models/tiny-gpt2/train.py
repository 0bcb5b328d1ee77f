"""Trains the model: vocabulary, then AdamW over short windows, then over the whole context.

    python train.py WORK

writes WORK/tokenizer.json, WORK/checkpoint (Hugging Face format) and
WORK/train.json (what was done and what it cost). Started again, it goes on
from the last saved step.
"""

import json
import os
import platform
import sys
import time
from pathlib import Path

import numpy as np
import torch
from transformers import GPT2LMHeadModel

import corpus
import model

# steps, window, rows, attention. Short windows are cheap; the last phase trains the whole context.
# On short windows plain matrix products are faster than the fused kernel, on long ones slower.
PHASES = ((1500, 128, 32, "eager"), (250, 256, 16, "eager"), (350, 1024, 4, "sdpa"))
STEPS = sum(phase[0] for phase in PHASES)
PEAK_RATE = 3e-3
WARMUP = 100
DECAY = PHASES[-1][0]  # the rate is constant until the last phase, and falls to zero in it
WEIGHT_DECAY = 0.1
THREADS = 2
SAVE_EVERY = 50


def phase(step: int) -> tuple[int, int, str]:
    """Window, rows and attention of a step."""
    for steps, *sizes in PHASES:
        if step < steps:
            return tuple(sizes)
        step -= steps
    raise IndexError(f"step {step} past the end of the last phase")


def rate(step: int) -> float:
    return PEAK_RATE * min(1.0, (step + 1) / WARMUP, (STEPS - step) / DECAY)


def windows(ids: np.ndarray, window: int, rows: int, generator: np.random.Generator):
    """Inputs, targets and positions of one step.

    Half of the short windows are placed at a random offset inside the context,
    so that every position embedding is trained from the first step on.
    """
    starts = generator.integers(0, len(ids) - window - 1, rows)
    inputs = np.stack([ids[s:s + window] for s in starts])
    targets = np.stack([ids[s + 1:s + window + 1] for s in starts])
    offsets = generator.integers(0, model.CONTEXT - window + 1, rows) * (generator.random(rows) < 0.5)
    positions = offsets[:, None] + np.arange(window)[None]
    return torch.from_numpy(inputs), torch.from_numpy(targets), torch.from_numpy(positions)


def optimizer(net: GPT2LMHeadModel) -> torch.optim.Optimizer:
    matrices = [p for p in net.parameters() if p.dim() >= 2]
    vectors = [p for p in net.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.95), eps=1e-8, fused=True)


def train(net: GPT2LMHeadModel, ids: np.ndarray, state_path: Path) -> dict:
    """Trains to the last step, from state_path when a run was interrupted before."""
    generator = np.random.default_rng(model.SEED)
    optim = optimizer(net)
    step, tokens, running, spent_before = 0, 0, None, 0.0
    if state_path.exists():
        state = torch.load(state_path, weights_only=True)
        net.load_state_dict(state["net"])
        optim.load_state_dict(state["optim"])
        generator.bit_generator.state = state["generator"]
        step, tokens, running, spent_before = state["step"], state["tokens"], state["running"], state["seconds"]
        print(f"resuming at step {step}", flush=True)
    began = time.monotonic() - spent_before
    net.train()
    while step < STEPS:
        window, rows, attention = phase(step)
        net.set_attn_implementation(attention)
        inputs, targets, positions = windows(ids, window, rows, generator)
        for group in optim.param_groups:
            group["lr"] = rate(step)
        with torch.autocast("cpu", torch.bfloat16):
            logits = net(input_ids=inputs, position_ids=positions, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
        optim.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optim.step()
        step, tokens = step + 1, tokens + inputs.numel()
        running = loss.item() if running is None else 0.98 * running + 0.02 * loss.item()
        if step % SAVE_EVERY == 0 or step == STEPS:
            spent = time.monotonic() - began
            state = {"net": net.state_dict(), "optim": optim.state_dict(), "generator": generator.bit_generator.state,
                     "step": step, "tokens": tokens, "running": running, "seconds": spent}
            torch.save(state, state_path.with_suffix(".tmp"))
            state_path.with_suffix(".tmp").replace(state_path)
            print(f"step {step}/{STEPS} window {window} loss {running:.4f} "
                  f"{tokens / spent:.0f} tokens/s {spent:.0f} s", flush=True)
    return {"steps": step, "tokens_seen": tokens, "final_running_loss": round(running, 4),
            "wall_seconds": round(time.monotonic() - began)}


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python train.py WORK")
    work = Path(sys.argv[1])
    work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(THREADS)
    torch.manual_seed(model.SEED)

    documents = [d for d in corpus.load(work) if not d.held_out]
    tokenizer = model.train_tokenizer([d.text for d in documents])
    tokenizer.save(str(model.tokenizer_path(work)))
    ids = model.encode(tokenizer, documents)
    print(f"{len(documents)} documents, {sum(len(d.text) for d in documents)} characters, {len(ids)} tokens", flush=True)

    config = model.config()
    # The same formula as gelu_new, as one fused operation.
    config.activation_function = "gelu_pytorch_tanh"
    net = GPT2LMHeadModel(config)
    report = {"training_documents": len(documents), "training_tokens": len(ids),
              "parameters": sum(p.numel() for p in net.parameters()), "phases": PHASES,
              "torch": torch.__version__, "threads": THREADS, "cpus": os.cpu_count(), "machine": platform.machine()}
    report.update(train(net, ids, work / "state.pt"))
    net.config.activation_function = "gelu_new"
    net.save_pretrained(work / "checkpoint")
    (work / "train.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
