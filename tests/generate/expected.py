"""Writes testdata/MODEL.json.gz: what Hugging Face's generate says about the models of models/small.

    python expected.py [MODEL...] [--kinds greedy,beam4] [--jobs 2]

Needs requirements.txt (the last release whose generate has diverse beam search).
Every case is one prompt, run alone, in float32. It must give the same tokens in
float64, and in float64 with noise on the scores that is larger than what rounding
makes of them, drawn four times; a case that does not is replaced by another prompt, and counted. So
is a case without options that is not real: its 64 tokens are fewer than 20
different ones, or fewer than half of its steps reorder the beams. A case with an
option must differ from the same prompt without it, where one of a few prompts does.
"""

import argparse
import gzip
import io
import json
import logging
import random
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from transformers import cache_utils
from transformers.generation.utils import GenerationMixin

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "models" / "export"))

import generation_families as families  # noqa: E402
import generation_subjects as subjects  # noqa: E402
import seeded  # noqa: E402

# Noise on the scores, in deviations of the scores of its row.
NOISE = 2e-5
# How many times noise is drawn.
DRAWS = 4
# A real answer: distinct tokens of one that runs to LIMIT, share of steps that reorder.
LIMIT, DISTINCT, MOVING = 64, 20, 0.5
# How many prompts are tried for one on which an option changes the answer.
TRIES = 6
# How many prompts of each kind a family is asked, and tokens of an answer.
BRIEF, BRIEF_TOKENS = 3, 40
# Those that may be asked more (--many): an engine feeds them in a way of its own.
MANY = ("prophetnet", "unilm")
# Frames of Whisper's features: two a position of its encoder.
FRAMES = 120
# Samples of a sound: 124, then 40, then 19 positions of Moonshine's encoder.
SAMPLES = 8000

KINDS = {
    "greedy": {"num_beams": 1},
    "beam4": {"num_beams": 4},
    "beam8": {"num_beams": 8},
    "diverse4x2": {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.7},
    "diverse8x4": {"num_beams": 8, "num_beam_groups": 4, "diversity_penalty": 1.5},
}


class Reorders:
    """Counts the steps of a beam search and those that move a beam to another row."""

    def __init__(self):
        self.steps = self.reorders = self.depth = 0

    def watch(self):
        for cache in (cache_utils.DynamicCache, cache_utils.EncoderDecoderCache):
            plain = cache.reorder_cache

            def counted(cache, indices, plain=plain):
                if self.depth == 0:
                    self.steps += 1
                    self.reorders += int((indices != torch.arange(len(indices))).any())
                self.depth += 1
                result = plain(cache, indices)
                self.depth -= 1
                return result

            cache.reorder_cache = counted


def feature_shape(config):
    """What an encoder of sound or images reads, or None."""
    if config.model_type == "whisper":
        return [config.num_mel_bins, FRAMES]
    if config.model_type == "moonshine":
        return [SAMPLES]
    if config.model_type == "vision-encoder-decoder":
        size = config.encoder.image_size
        return [config.encoder.num_channels, *(size if isinstance(size, list) else [size, size])]
    return None


class Model:
    """One subject in float32 and in float64."""

    def __init__(self, name, reorders):
        self.name, self.subject, self.reorders = name, subjects.find(name), reorders
        eager = name.startswith("t5") or name in families.EAGER  # these have no other
        images = self.subject.config.model_type == "vision-encoder-decoder"
        attention = None if images else "eager" if eager else "sdpa"
        self.single, _ = subjects.make(name, attention)
        self.double = subjects.make(name, attention)[0].double()
        self.config = self.single.config
        self.speech = self.config.model_type == "whisper"
        self.shape = feature_shape(self.config)
        self.encoder_decoder = self.config.is_encoder_decoder
        self.vocabulary = getattr(self.config, "decoder", self.config).vocab_size
        eos = self.subject.generation["eos_token_id"]
        self.eos = eos if isinstance(eos, list) else [eos]
        if name == "mpt" or name.startswith("trocr"):  # fill their masks, in torch's default type, with the least number of their weights' type
            self.double.register_forward_pre_hook(lambda *_: torch.set_default_dtype(torch.float64))
        self.double.register_forward_hook(self._add_noise)

    def _add_noise(self, module, arguments, output):
        """Noise on all but the first of the equal rows. generate reads scores in float32 (and diverse search needs them so)."""
        torch.set_default_dtype(torch.float32)
        scores = output.logits
        noise = torch.randn(scores.shape, generator=self.noise, dtype=scores.dtype)
        noise[: len(noise) // (1 + DRAWS)] = 0
        output.logits = (scores + NOISE * scores.std(dim=-1, keepdim=True) * noise).float()
        return output

    def features(self, number):
        drawn = seeded.Seeded(f"features/{number}", (1, *self.shape), "normal", 0.0, 1.0)
        return torch.from_numpy(drawn.values(subjects.SEED))

    def run(self, model, case, options, rows=1):
        """Sequences without their prompt, the scores of beams, and [steps, reorders]; of so many equal rows."""
        inputs, cut = {}, 1
        if self.shape:
            inputs[self.single.get_encoder().main_input_name] = self.features(case["features"]).to(model.dtype)
            start = [self.config.decoder_start_token_id, *case["decoder_prompt"]]
            inputs["decoder_input_ids"] = torch.tensor([start])
            cut = len(start)
        else:
            inputs["input_ids"] = torch.tensor([case["prompt"]])
            inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
            if not self.encoder_decoder:
                cut = len(case["prompt"])
        if self.config.model_type == "prophetnet":  # fills its masks, in their own type, with the least number of its weights' type
            inputs["attention_mask"] = inputs["attention_mask"].to(model.dtype)
        inputs = {name: value.repeat_interleave(rows, 0) for name, value in inputs.items()}
        if self.config.model_type == "unilm":
            inputs["prompt_length"] = len(case["prompt"])
        if "pad_token_id" not in self.subject.generation:
            options = {**options, "pad_token_id": self.eos[0]}
        self.reorders.steps = self.reorders.reorders = 0
        # GenerationMixin.generate: Whisper's own generate would cut speech into segments first.
        result = GenerationMixin.generate(
            model, **inputs, **options, do_sample=False, return_dict_in_generate=True, output_scores=True)
        sequences = [self.ended(s.tolist()[cut:]) for s in result.sequences]
        scores = getattr(result, "sequences_scores", None)
        scores = [] if scores is None else [float(f"{s:.6g}") for s in scores.tolist()]
        return sequences, scores, [self.reorders.steps, self.reorders.reorders]

    def ended(self, tokens):
        """Without the padding behind the first end."""
        for i, token in enumerate(tokens):
            if token in self.eos:
                return tokens[: i + 1]
        return tokens

    def stable(self, case, options, sequences):
        """Whether float64 agrees, and whether it does with noise."""
        self.noise = torch.Generator().manual_seed(1)
        every = self.run(self.double, case, options, rows=1 + DRAWS)[0]
        if every[: len(sequences)] != sequences:
            return "precision"
        return None if every == (1 + DRAWS) * sequences else "near tie"

    def prompt(self, draw):
        """A prompt of 1 to 60 tokens; a third of them repeat a few tokens, so that n-grams come again."""
        if self.shape:
            languages = self.subject.decoder_prompt
            return {"features": draw.randrange(1 << 20), "decoder_prompt": list(languages[: draw.choice((0, 1, 3, 3))])}
        words = [t for t in range(3, self.subject.tokens) if t not in self.eos]
        if draw.random() < 1 / 3:
            words = draw.sample(words, 6)
        extra = len(self.subject.prefix) + len(self.subject.suffix)
        length = draw.choice((1, 2, 3, 5, 8, 13, 21, 34, 47, 60)) - extra
        body = [draw.choice(words) for _ in range(max(length, 0 if extra else 1))]
        return {"prompt": [*self.subject.prefix, *body, *self.subject.suffix]}


# Options: name -> function of (model, case, plain answer, draw, beams) giving
# generate's arguments, or None where the option means nothing.


def bad_words(model, case, plain, draw, beams):
    text = plain[0]
    at = draw.randrange(max(1, len(text) // 2))
    pairs = [text[at : at + 2]] if len(text) > at + 1 else []
    return {"bad_words_ids": [[text[0]], *pairs, [text[-1], text[0], text[0]]]}


def forced_bos(model, case, plain, draw, beams):
    # Forced while the sequence is one token long.
    if model.speech and case["decoder_prompt"] or not model.encoder_decoder and len(case["prompt"]) != 1:
        return None
    return {"forced_bos_token_id": draw.randrange(3, model.vocabulary)}


def begin_suppress(model, case, plain, draw, beams):
    return {"begin_suppress_tokens": sorted({plain[0][0], draw.randrange(model.vocabulary)})}


def suppress(model, case, plain, draw, beams):
    kept = {*model.eos, model.subject.generation.get("forced_bos_token_id")}  # else a step has no token left
    return {"suppress_tokens": sorted(set(draw.sample(plain[0], min(3, len(plain[0])))) - kept)}


def min_length(model, case, plain, draw, beams):
    # Counts the prompt of a decoder-only model, as max_length does.
    start = 0 if model.encoder_decoder else len(case["prompt"])
    return {"min_length": start + min(len(plain[0]) + 3, 24)}


def only_beams(options):
    return lambda model, case, plain, draw, beams: options if beams > 1 else None


def always(options):
    return lambda model, case, plain, draw, beams: options


def from_text(options):
    """For what reads the encoder's tokens (of a decoder-only model, the prompt)."""
    return lambda model, case, plain, draw, beams: None if model.speech else options


def summary(model, case, plain, draw, beams):
    """What a summariser is asked for."""
    options = {"no_repeat_ngram_size": 3, "min_new_tokens": 12, "max_new_tokens": 32}
    if beams > 1:
        options.update(length_penalty=2.0, early_stopping=True)
    return options


def all_bans(model, case, plain, draw, beams):
    options = {"no_repeat_ngram_size": 2, "repetition_penalty": 1.2, "min_new_tokens": 6}
    options.update(bad_words(model, case, plain, draw, beams))
    options.update(begin_suppress(model, case, plain, draw, beams))
    if not model.speech:
        options["encoder_no_repeat_ngram_size"] = 2
    return options


OPTIONS = {
    "no_repeat_ngram_size 3": always({"no_repeat_ngram_size": 3}),
    "no_repeat_ngram_size 1": always({"no_repeat_ngram_size": 1}),
    "encoder_no_repeat_ngram_size 1": from_text({"encoder_no_repeat_ngram_size": 1}),
    "encoder_no_repeat_ngram_size 2": from_text({"encoder_no_repeat_ngram_size": 2}),
    # Greedy only: of several beams this release penalises the first alone.
    "encoder_repetition_penalty": lambda model, case, plain, draw, beams: (
        None if model.speech or beams > 1 else {"encoder_repetition_penalty": 1.4}),
    "repetition_penalty 1.3": always({"repetition_penalty": 1.3}),
    "repetition_penalty 0.8": always({"repetition_penalty": 0.8}),
    "min_length": min_length,
    "min_new_tokens": always({"min_new_tokens": 20}),
    "length_penalty 2": only_beams({"length_penalty": 2.0}),
    "length_penalty 0": only_beams({"length_penalty": 0.0}),
    "length_penalty -1, early_stopping never": only_beams({"length_penalty": -1.0, "early_stopping": "never"}),
    "early_stopping true": only_beams({"early_stopping": True}),
    "early_stopping never": only_beams({"early_stopping": "never", "length_penalty": 1.5}),
    "bad_words_ids": bad_words,
    "forced_bos_token_id": forced_bos,
    "forced_eos_token_id": lambda model, case, plain, draw, beams: {
        "forced_eos_token_id": model.eos[-1], "max_new_tokens": 9},
    "suppress_tokens": suppress,
    "begin_suppress_tokens": begin_suppress,
    "num_return_sequences": lambda model, case, plain, draw, beams: {
        "num_return_sequences": draw.choice((2, beams))} if beams > 1 else None,
    "max_new_tokens 1": always({"max_new_tokens": 1}),
    "max_length": lambda model, case, plain, draw, beams: {
        "max_length": 14 + (0 if model.encoder_decoder else len(case["prompt"]))},
    "summary": summary,
    "all bans": all_bans,
}


def cases_of(name, kind, plain_count, option_count):
    """All cases of one model and kind of search, and what was counted."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    reorders = Reorders()
    reorders.watch()
    model = Model(name, reorders)
    counts = {"replaced_precision": 0, "replaced_near_tie": 0, "replaced_dull": 0, "without_effect": 0}
    cases = []

    def attempt(kind, label, option, number):
        """One case, or None where the option means nothing for the kind."""
        draw = random.Random(f"{name}/{kind}/{label}/{number}")
        fallback = None
        for _ in range(40):
            case = model.prompt(draw)
            base = {**KINDS[kind], "max_new_tokens": LIMIT if option is None else draw.choice((12, 20, 28))}
            sequences, scores, steps = model.run(model.single, case, base)
            changes = True
            if option is not None:
                extra = option(model, case, sequences, draw, base["num_beams"])
                if extra is None:
                    if label == "forced_bos_token_id" and (model.speech or not model.encoder_decoder):
                        continue  # another prompt may have the length
                    return None
                options = {**base, **extra}
                if "max_length" in extra:
                    del options["max_new_tokens"]
                plain = sequences, scores
                sequences, scores, steps = model.run(model.single, case, options)
                changes = (sequences, scores) != plain
            else:
                options = base
                if not real(sequences, steps):
                    counts["replaced_dull"] += 1
                    continue
            unstable = model.stable(case, options, sequences)
            if unstable:
                counts["replaced_precision" if unstable == "precision" else "replaced_near_tie"] += 1
                continue
            made = {"model": name, "kind": kind, "option": label, "options": options, **case,
                    "sequences": sequences, "scores": scores, "steps": steps[0], "reorders": steps[1]}
            if changes:
                return made
            fallback = fallback or made
            attempt.unchanged += 1
            if attempt.unchanged >= TRIES:
                break
        if fallback is None:
            return None
        counts["without_effect"] += 1
        return fallback

    for number in range(plain_count * (2 if kind == "greedy" else 1)):
        attempt.unchanged = 0
        cases.append(attempt(kind, "", None, number))
    for label, option in OPTIONS.items() if kind != "diverse8x4" else ():
        for number in range(option_count):
            attempt.unchanged = 0
            case = attempt(kind, label, option, number)
            if case:
                cases.append(case)
    return cases, counts


def brief_cases(name, asked):
    """A few cases of a family, without options: so many prompts a kind, of lengths far apart."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    reorders = Reorders()
    reorders.watch()
    model = Model(name, reorders)
    counts = {"replaced_precision": 0, "replaced_near_tie": 0, "replaced_dull": 0, "without_effect": 0}
    cases = []
    for kind in ("greedy", "beam4"):
        for number in range(4 * asked):
            made = sum(c["kind"] == kind for c in cases)
            if made == asked:
                break
            draw = random.Random(f"{name}/{kind}/{number}")
            case = model.prompt(draw)
            while made == 0 and len(case.get("prompt", range(30))) < 30:  # the first is longer than any window
                case = model.prompt(draw)
            if name in MANY and any(c["kind"] == kind and c.get("prompt") == case["prompt"] for c in cases):
                continue
            options = {**KINDS[kind], "max_new_tokens": BRIEF_TOKENS}
            sequences, scores, steps = model.run(model.single, case, options)
            try:
                unstable = model.stable(case, options, sequences)
            except RuntimeError:  # experts that compute in float32 whatever their weights are
                unstable = None
            if unstable:
                counts["replaced_precision" if unstable == "precision" else "replaced_near_tie"] += 1
                continue
            cases.append({"model": name, "kind": kind, "option": "", "options": options, **case,
                          "sequences": sequences, "scores": scores, "steps": steps[0], "reorders": steps[1]})
            if asked > BRIEF and (made + 1) % 10 == 0:
                print(f"{name}: {made + 1} of {asked} {kind}", file=sys.stderr, flush=True)
    return cases, counts


def real(sequences, steps):
    whole = len(sequences[0]) == LIMIT
    return (not whole or len(set(sequences[0])) >= DISTINCT) and steps[1] >= MOVING * steps[0]


def measure(cases):
    """How real the long cases are: distinct tokens of those that ran to 64, share of steps that reorder."""
    plain = [c for c in cases if not c["option"]]
    whole = [len(set(c["sequences"][0])) for c in plain if len(c["sequences"][0]) == LIMIT]
    moved = [c["reorders"] / c["steps"] for c in plain if c["steps"] > 0]
    lengths = [len(c["sequences"][0]) for c in plain]

    def spread(values):
        if not values:
            return None
        return {"least": round(min(values), 3), "median": round(float(np.median(values)), 3), "of": len(values)}

    return {
        "cases": len(cases),
        "plain": len(plain),
        "plain_ended": sum(n < LIMIT for n in lengths),
        "distinct_tokens_of_64": spread(whole),
        "share_of_steps_that_reorder": spread(moved),
    }


def write(name, cases, counts):
    head = {
        "schema_version": 1, "model": name, "brief": name not in subjects.SUBJECTS, "seed": subjects.SEED, "noise": NOISE, "counts": counts,
        "made_by": {p: version(p) for p in ("transformers", "torch")},
    }
    shape = feature_shape(subjects.find(name).config)
    if shape:
        head["features"] = shape
    lines = [json.dumps(c, separators=(",", ":")) for c in cases]
    text = json.dumps(head)[:-1] + ', "cases": [\n' + ",\n".join(lines) + "\n]}\n"
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0, compresslevel=9) as stream:
        stream.write(text.encode())
    (HERE / "testdata").mkdir(exist_ok=True)
    (HERE / "testdata" / f"{name}.json.gz").write_bytes(buffer.getvalue())
    return len(buffer.getvalue())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="*", help="which models; all when none is named")
    parser.add_argument("--kinds", default=",".join(KINDS), help="which ways of searching")
    parser.add_argument("--plain", type=int, default=10, help="prompts a kind without options (greedy: twice)")
    parser.add_argument("--each", type=int, default=1, help="prompts a kind and option")
    parser.add_argument("--many", type=int, default=BRIEF, help=f"prompts a kind of {' and '.join(MANY)}")
    parser.add_argument("--jobs", type=int, default=2, help="models at a time")
    arguments = parser.parse_args()
    names = arguments.model or [*subjects.SUBJECTS, *families.MAKERS]
    start = time.time()
    with ProcessPoolExecutor(arguments.jobs) as pool:
        running = {
            name: [
                pool.submit(cases_of, name, kind, arguments.plain, arguments.each)
                for kind in arguments.kinds.split(",")
            ] if name in subjects.SUBJECTS else [pool.submit(brief_cases, name, arguments.many if name in MANY else BRIEF)]
            for name in names
        }
        for name, parts in running.items():
            cases, counts = [], {}
            for part in parts:
                more, counted = part.result()
                cases += more
                counts = {key: counts.get(key, 0) + value for key, value in counted.items()}
            counts.update(measure(cases))
            size = write(name, cases, counts)
            print(f"{name}: {size} bytes after {time.time() - start:.0f} s: {json.dumps(counts)}", flush=True)


if __name__ == "__main__":
    main()
