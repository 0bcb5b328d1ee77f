"""Writes what Hugging Face's generate gives for a small model whose scores are hashes.

    python3 -m venv venv && venv/bin/pip install -r requirements.txt
    venv/bin/python make.py                     # all files
    venv/bin/python make.py generate            # one of generate, sampling, warpers, configs

The model has no weights: the score of a token is a hash of the last two tokens (and of the
encoder's input), scaled so that float32 holds it exactly, and hash_test.go computes the same. So a
difference in tokens is a difference in the search. The release is one that still has group beam
search.
"""

import contextlib
import gzip
import json
import pathlib
import random
import sys
import tempfile
import warnings

import numpy as np
import torch
import transformers
from transformers import AutoConfig, GenerationConfig, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.generation import logits_process as lp
from transformers.generation import utils
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput, Seq2SeqLMOutput
from transformers.utils import logging

warnings.filterwarnings("ignore")
logging.set_verbosity_error()
HERE = pathlib.Path(__file__).parent
MASK = (1 << 64) - 1
VOCAB = 48
EOS, PAD, BOS = 2, 1, 0
NOISE = 0  # added to the scores: see double


def mix(x):
    """splitmix64's finaliser, for a Python integer or a numpy array of uint64."""
    if isinstance(x, int):
        x &= MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        return x ^ (x >> 31)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def logits(seed, encoder, tokens):
    """The scores after a sequence: multiples of 2**-17 in [-4, 4)."""
    last = tokens[-1] + 1
    before = tokens[-2] + 1 if len(tokens) > 1 else 0
    key = mix(mix(mix(seed + last) ^ before) ^ encoder)
    t = np.arange(VOCAB, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
    scores = ((mix(t) >> np.uint64(44)).astype(np.int64) - (1 << 19)) / (1 << 17)
    if NOISE:
        return scores + NOISE * np.sin(scores * 1e4 + sum(tokens) + len(tokens))
    return scores.astype(np.float32)


def encoder_hash(tokens):
    h = 0
    for t in tokens:
        h = mix(h ^ (t + 1))
    return h & 0xFFFFFF  # float32 holds it


class HashConfig(PretrainedConfig):
    model_type = "hash"


class HashEncoder(torch.nn.Module):
    main_input_name = "input_ids"

    def forward(self, input_ids=None, **_):
        state = [[float(encoder_hash(row))] * len(row) for row in input_ids.tolist()]
        return BaseModelOutput(last_hidden_state=torch.tensor(state)[..., None])


class HashModel(PreTrainedModel, GenerationMixin):
    config_class = HashConfig
    main_input_name = "input_ids"

    def __init__(self, config):
        super().__init__(config)
        self.nothing = torch.nn.Parameter(torch.zeros(1))
        self.encoder = HashEncoder()
        self.seed = 0

    def get_encoder(self):
        return self.encoder

    def forward(self, input_ids=None, decoder_input_ids=None, encoder_outputs=None, **_):
        if encoder_outputs is None:
            rows, states = input_ids, [0] * len(input_ids)
            kind = CausalLMOutput
        else:
            rows, states = decoder_input_ids, encoder_outputs.last_hidden_state[:, 0, 0].tolist()
            kind = Seq2SeqLMOutput
        scores = np.stack([logits(self.seed, int(e), r) for r, e in zip(rows.tolist(), states)])
        return kind(logits=torch.from_numpy(scores)[:, None, :].float())  # double where the latter is


def model(encoder_decoder):
    m = HashModel(HashConfig(vocab_size=VOCAB, is_encoder_decoder=encoder_decoder))
    m.generation_config = GenerationConfig(use_cache=False)
    return m.eval()


class EncoderRepetitionPenalty(lp.EncoderRepetitionPenaltyLogitsProcessor):
    """The release's own reads and writes the first row alone when there are beams: here all rows."""

    def __call__(self, input_ids, scores):
        own, self.encoder_input_ids = self.encoder_input_ids, self.encoder_input_ids.expand(len(scores), -1)
        processed = super().__call__(input_ids, scores)
        self.encoder_input_ids = own
        return processed


utils.EncoderRepetitionPenaltyLogitsProcessor = EncoderRepetitionPenalty

MODELS = {False: model(False), True: model(True)}

MODES = {
    "greedy": {},
    "beam 2": {"num_beams": 2},
    "beam 4": {"num_beams": 4, "num_return_sequences": 4},
    "beam 8": {"num_beams": 8, "num_return_sequences": 3},
    "diverse 4 in 2": {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.7, "num_return_sequences": 4},
    "diverse 8 in 4": {"num_beams": 8, "num_beam_groups": 4, "diversity_penalty": 1.5, "num_return_sequences": 8},
    "diverse 3 in 3": {"num_beams": 3, "num_beam_groups": 3, "diversity_penalty": 0.3, "num_return_sequences": 3},
}

BEAM_OPTIONS = [
    {"length_penalty": 2.0},
    {"length_penalty": 0.0},
    {"length_penalty": -1.0},
    {"early_stopping": True},
    {"early_stopping": True, "length_penalty": 1.7},
    {"early_stopping": "never"},
    {"early_stopping": "never", "length_penalty": 0.6},
    {"early_stopping": "never", "length_penalty": -0.5},
    {"num_return_sequences": 1},
]
OPTIONS = [
    {},
    {"max_length": 12},
    {"max_new_tokens": 1},
    {"min_length": 14},
    {"min_new_tokens": 9},
    {"min_new_tokens": 5, "min_length": 18},
    {"no_repeat_ngram_size": 1, "max_new_tokens": 12},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3},
    {"no_repeat_ngram_size": 6},
    {"encoder_no_repeat_ngram_size": 1},
    {"encoder_no_repeat_ngram_size": 2},
    {"encoder_no_repeat_ngram_size": 3},
    {"repetition_penalty": 1.4},
    {"repetition_penalty": 0.7},
    {"encoder_repetition_penalty": 1.6},
    {"encoder_repetition_penalty": 0.6},
    {"bad_words_ids": [[5], [7], [11], [EOS]]},
    {"bad_words_ids": [[3, 4], [9, 9], [10, 20, 30]] + [[i, (i * 5 + 1) % VOCAB] for i in range(VOCAB)]},
    {"sequence_bias": [[[6], 1.5], [[8], -2.0], [[6, 9], 3.0], [[12, 9], -30.0]]},
    {"forced_bos_token_id": 17},
    {"forced_eos_token_id": EOS},
    {"forced_eos_token_id": EOS, "forced_bos_token_id": 3},
    {"suppress_tokens": [4, 5, 6, 7, 13, 22, 40, 41, 42]},
    {"begin_suppress_tokens": list(range(10, 40))},
    {"begin_suppress_tokens": [EOS, 8, 9, 30, 31], "forced_bos_token_id": 8},
    {"renormalize_logits": True, "bad_words_ids": [[i] for i in range(3, 20)]},
    {"renormalize_logits": True, "suppress_tokens": list(range(20, 44)), "repetition_penalty": 1.2},
    {"eos_token_id": [EOS, 33, 34]},
    {"eos_token_id": [33], "pad_token_id": 33},
    {"eos_token_id": None},
    {"pad_token_id": EOS},
    {"output_scores": True},
]


def prompt(r, encoder_decoder):
    """Tokens with repetitions, so that n-grams come up; never one for the decoder of the other kind."""
    few = r.sample(range(3, VOCAB), r.choice([2, 4, 40]))
    return [r.choice(few) for _ in range(r.choice([1, 2, 5, 9, 24] if not encoder_decoder else [3, 9, 30]))]


def run(case):
    m = MODELS[case["encoder_decoder"]]
    m.seed = case["seed"]
    options = {"eos_token_id": EOS, "pad_token_id": PAD, "bos_token_id": BOS, **case["options"]}
    if "sequence_bias" in options:
        options["sequence_bias"] = {tuple(t): b for t, b in options["sequence_bias"]}
    if case["encoder_decoder"]:
        options["decoder_start_token_id"] = BOS
        ids, start = case["encoder"], 1
        if len(case["prompt"]) > 1:
            options["decoder_input_ids"] = torch.tensor([case["prompt"]])
            start = len(case["prompt"])
    else:
        ids, start = case["prompt"], len(case["prompt"])
    greedy = options.get("num_beams", 1) == 1
    with torch.no_grad():
        out = m.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            return_dict_in_generate=True,
            **{**options, "output_scores": True},
        )
    ends = options["eos_token_id"]
    ends = [] if ends is None else ends if isinstance(ends, list) else [ends]
    sequences = []
    for row in out.sequences.tolist():
        row = row[start:]
        stop = next((i for i, t in enumerate(row) if t in ends), len(row) - 1)
        sequences.append(row[: stop + 1])
    if greedy:
        scores = [0.0]
        if options.get("output_scores") or options.get("do_sample"):
            steps = m.compute_transition_scores(out.sequences, out.scores, normalize_logits=True)
            scores = [steps[0].sum().item()]
    else:
        scores = out.sequences_scores.tolist()
        # What has -1e9 (divided by a length's power) or -inf in its score is a beam that does not exist.
        real = [i for i, s in enumerate(scores) if s > -1e5]
        scores, sequences = [scores[i] for i in real], [sequences[i] for i in real]
    case["sequences"], case["scores"] = sequences, [round(s, 5) for s in scores]
    return case


@contextlib.contextmanager
def double():
    """Lets generate compute in float64: it takes its scores to torch.float32, and sums them in torch.float. Scores get
    a millionth of noise, so that sums which are equal in any precision, such as those of the same steps in another
    order, come apart."""
    global NOISE
    NOISE = 1e-6
    method, torch.Tensor.float = torch.Tensor.float, torch.Tensor.double
    single, torch.float, torch.float32 = torch.float32, torch.double, torch.double
    torch.set_default_dtype(torch.double)
    try:
        yield
    finally:
        torch.Tensor.float, torch.float, torch.float32 = method, single, single
        torch.set_default_dtype(single)
        NOISE = 0


def tied(case):
    """Whether the release itself could answer otherwise: two different answers score the same, or nearly so and float64
    differs."""
    answers = sorted(zip(case["scores"], case["sequences"]))
    gap = min((b[0] - a[0] for a, b in zip(answers, answers[1:]) if a[1] != b[1]), default=1)
    if gap < 2e-5 or gap > 1e-3:
        return gap < 2e-5
    with double():
        return run(dict(case))["sequences"] != case["sequences"]


def settled():
    """The cases; one that is a tie is run again with another seed, and counted."""
    found, replaced = [], 0
    for case in cases():
        run(case)
        for _ in range(8):  # forced tokens can make ties whatever the seed
            if not tied(case):
                break
            case["seed"] += 1
            replaced += 1
            run(case)
        found.append(case)
    print("replaced because of ties:", replaced)
    return found


def cases():
    r = random.Random(20261121)

    def case(name, mode, option, encoder_decoder):
        options = {"max_new_tokens": 20, **mode, **option}
        if "max_length" in option:
            del options["max_new_tokens"]
        c = {"name": name, "encoder_decoder": encoder_decoder, "seed": r.randrange(1 << 32), "options": options}
        if encoder_decoder:
            c["encoder"] = prompt(r, True)
            c["prompt"] = [BOS] + (r.sample(range(3, VOCAB), 3) if r.random() < 0.2 else [])
        else:
            c["prompt"] = prompt(r, False)
            if "max_length" in option:
                c["prompt"] = c["prompt"][:9]
        return c

    for name, mode in MODES.items():
        options = OPTIONS + (BEAM_OPTIONS if name != "greedy" else [])
        for encoder_decoder in (False, True):
            for option in options:
                for _ in range(2):
                    yield case(f"{name}, {json.dumps(option)}", mode, option, encoder_decoder)
            for _ in range(40):
                chosen = {}
                for option in r.sample(options, r.choice([2, 3, 4, 6])):
                    chosen.update(option)
                yield case(f"{name}, combined", mode, chosen, encoder_decoder)
    # Sequences that end often, so that it shows when the search stops.
    many = {"eos_token_id": list(range(2, 14)), "max_new_tokens": 30}
    for name in ("beam 2", "beam 4", "diverse 4 in 2"):
        for stopping in (False, True, "never"):
            for penalty in (1.0, 2.0):
                option = {"early_stopping": stopping, "length_penalty": penalty}
                for i in range(8):
                    yield case(f"{name}, ends, {json.dumps(option)}", MODES[name], {**many, **option}, i % 2 == 1)


class Draws:
    """Stands in for torch.multinomial: inverse transform over the running sum, with numbers that are hashes of the
    step and of the draw, so that the other side can draw the same."""

    def __init__(self, seed):
        self.seed, self.step = seed, 0

    def __call__(self, probs, num_samples):
        assert len(probs) == 1
        weights = probs[0].double().numpy().copy()
        taken = []
        for k in range(num_samples):
            u = (mix(self.seed + self.step * 64 + k) >> 40) / (1 << 24)
            i = int(np.searchsorted(np.cumsum(weights), u * weights.sum(), side="right"))
            if i >= len(weights) or weights[i] == 0:
                raise ValueError("nothing is left to draw")
            taken.append(i)
            weights[i] = 0 if num_samples > 1 else weights[i]
        self.step += 1
        return torch.tensor([taken])


def sampling():
    """Sampling and beam sampling, with Draws in the place of chance."""
    r = random.Random(20261122)
    modes = [{}, {}, {"num_beams": 2}, {"num_beams": 4, "num_return_sequences": 4}]
    options = [
        {"temperature": 0.6}, {"temperature": 1.8}, {"top_k": 0}, {"top_k": 12}, {"top_k": 20, "top_p": 0.95},
        {"top_p": 0.9}, {"min_p": 0.02}, {"typical_p": 0.9}, {"no_repeat_ngram_size": 2}, {"repetition_penalty": 1.3},
        {"min_new_tokens": 8}, {"suppress_tokens": [3, 4, 5, 9]}, {"eos_token_id": [EOS, 33, 34]}, {"renormalize_logits": True},
        {"bad_words_ids": [[i] for i in range(10, 24)]}, {"length_penalty": 0.5}, {"forced_eos_token_id": EOS}, {"eos_token_id": None},
    ]
    own, found, dropped = torch.multinomial, [], 0
    for i in range(280):
        mode = modes[i % len(modes)]
        chosen = {}
        for option in r.sample(options, r.choice([1, 1, 2, 4])):
            chosen.update(option)
        if "num_beams" not in mode:
            chosen.pop("length_penalty", None)
        case = {"name": "sampling", "encoder_decoder": False, "seed": r.randrange(1 << 32), "prompt": prompt(r, False),
                "options": {"do_sample": True, "max_new_tokens": 20, **mode, **chosen}}
        torch.multinomial = Draws(case["seed"])
        try:
            found.append(run(case))
        except ValueError:
            dropped += 1  # fewer pairs than draws: an error of torch's, fewer candidates here
        torch.multinomial = own
    print("dropped:", dropped)
    return found


def warpers():
    """Probabilities after single warpers and all of them, in the order of generate."""
    r = np.random.default_rng(7)
    found = []
    for i in range(160):
        scores = (r.integers(-(1 << 19), 1 << 19, VOCAB) / (1 << 17)).astype(np.float32)
        if i % 5 == 0:
            scores[r.integers(0, VOCAB, 30)] = -np.inf
        pick = lambda values: values[int(r.integers(len(values)))] if i % 8 == 7 else None
        o = {
            "temperature": pick([0.3, 0.7, 1.5, 3.0]),
            "top_k": pick([1, 3, 10, 40, 100]),
            "top_p": pick([0.05, 0.3, 0.9, 0.99]),
            "min_p": pick([0.01, 0.1, 0.5]),
            "typical_p": pick([0.1, 0.5, 0.95]),
        }
        one = list(o)[i % 8] if i % 8 < 5 else None
        if one:
            o[one] = {"temperature": 0.6, "top_k": 7, "top_p": 0.8, "min_p": 0.05, "typical_p": 0.6}[one]
        keep = int(r.integers(1, 4)) if i % 3 == 0 else 1
        x = torch.from_numpy(scores)[None]
        if o["temperature"]:
            x = lp.TemperatureLogitsWarper(o["temperature"])(None, x)
        if o["top_k"]:
            x = lp.TopKLogitsWarper(o["top_k"], min_tokens_to_keep=keep)(None, x)
        if o["top_p"]:
            x = lp.TopPLogitsWarper(o["top_p"], min_tokens_to_keep=keep)(None, x)
        if o["min_p"]:
            x = lp.MinPLogitsWarper(o["min_p"], min_tokens_to_keep=keep)(None, x)
        if o["typical_p"]:
            x = lp.TypicalLogitsWarper(o["typical_p"], min_tokens_to_keep=keep)(None, x)
        found.append(
            {
                "scores": [None if s == -np.inf else float(s) for s in scores],
                "options": {k: v for k, v in o.items() if v},
                "keep": keep,
                "probabilities": [round(p, 7) for p in torch.softmax(x, -1)[0].tolist()],
            }
        )
    return found


# Effective options of pairs of files: (config.json, generation_config.json or None).
CONFIGS = [
    ({"model_type": "gpt2"}, None),
    ({"model_type": "gpt2", "n_positions": 64}, {"bos_token_id": 50256, "eos_token_id": 50256, "_from_model_config": True}),
    ({"model_type": "gpt2", "max_length": 50, "do_sample": True, "task_specific_params": {"text-generation": {"max_length": 50}}}, None),
    ({"model_type": "gpt2", "num_beams": 3}, {"num_beams": 5}),
    ({"model_type": "gpt2", "num_beams": 3}, {"num_beams": 5, "_from_model_config": True}),
    ({"model_type": "gpt2", "num_beams": 1}, {"num_beams": 5, "_from_model_config": True}),
    ({"model_type": "gpt2"}, {"top_k": None, "temperature": 0.7, "do_sample": True, "max_length": 20, "transformers_version": transformers.__version__}),
    ({"model_type": "llama", "eos_token_id": [128001, 128009]}, {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "eos_token_id": [128001, 128008, 128009]}),
    ({"model_type": "llama", "max_position_embeddings": 4096}, None),
    ({"model_type": "bart", "early_stopping": True, "length_penalty": 2.0, "max_length": 142, "min_length": 56, "no_repeat_ngram_size": 3, "num_beams": 4, "forced_bos_token_id": 0}, None),
    ({"model_type": "bart", "early_stopping": True, "length_penalty": 2.0, "max_length": 142, "min_length": 56, "no_repeat_ngram_size": 3, "num_beams": 4, "forced_bos_token_id": 0},
     {"_from_model_config": True, "bos_token_id": 0, "decoder_start_token_id": 2, "early_stopping": True, "eos_token_id": 2, "forced_bos_token_id": 0, "forced_eos_token_id": 2, "length_penalty": 2.0, "max_length": 142, "min_length": 56, "no_repeat_ngram_size": 3, "num_beams": 4, "pad_token_id": 1}),
    ({"model_type": "bart", "forced_eos_token_id": None}, None),
    ({"model_type": "bart", "forced_eos_token_id": 2}, {"_from_model_config": True, "eos_token_id": 2, "num_beams": 2}),
    ({"model_type": "marian", "num_beams": 6, "bad_words_ids": [[58100]], "max_length": 512}, {"bad_words_ids": [[58100]], "bos_token_id": 0, "decoder_start_token_id": 58100, "eos_token_id": 0, "forced_eos_token_id": 0, "max_length": 512, "num_beams": 4, "pad_token_id": 58100, "renormalize_logits": True}),
    ({"model_type": "marian", "num_beams": 6, "bad_words_ids": [[58100]]}, None),
    ({"model_type": "t5", "decoder_start_token_id": 0, "n_positions": 512}, {"_from_model_config": True, "decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}),
    ({"model_type": "t5"}, None),
    ({"model_type": "whisper", "suppress_tokens": [1, 2, 7], "max_length": 448}, {"begin_suppress_tokens": [220, 50257], "bos_token_id": 50257, "decoder_start_token_id": 50258, "eos_token_id": 50257, "forced_decoder_ids": [[1, 50259], [2, 50359], [3, 50363]], "max_length": 448, "pad_token_id": 50257, "suppress_tokens": [1, 2, 7], "return_timestamps": False, "no_timestamps_token_id": 50363}),
    ({"model_type": "whisper", "begin_suppress_tokens": [220, 50256]}, {"_from_model_config": True, "num_beams": 2}),
    ({"model_type": "whisper"}, None),
    ({"model_type": "mbart", "decoder_start_token_id": 250020, "num_beams": 5, "forced_bos_token_id": 250004}, None),
    ({"model_type": "gpt2", "repetition_penalty": None}, {"_from_model_config": True, "repetition_penalty": 1.3}),
]
NAMES = """num_beams num_beam_groups diversity_penalty length_penalty early_stopping num_return_sequences max_new_tokens
min_length min_new_tokens no_repeat_ngram_size encoder_no_repeat_ngram_size repetition_penalty encoder_repetition_penalty
bad_words_ids forced_bos_token_id forced_eos_token_id forced_decoder_ids suppress_tokens begin_suppress_tokens
renormalize_logits do_sample temperature top_k top_p min_p typical_p output_scores bos_token_id eos_token_id pad_token_id
decoder_start_token_id""".split()


def configs():
    """What generate would use, and the length limit after a prompt of 7 tokens."""
    found = []
    for conf, gen in CONFIGS:
        m = MODELS[False]
        own, m.config = m.config, AutoConfig.for_model(**conf)
        with tempfile.TemporaryDirectory() as folder:
            if gen is None:
                m.generation_config = GenerationConfig.from_model_config(m.config)
            else:
                (pathlib.Path(folder) / "generation_config.json").write_text(json.dumps(gen))
                m.generation_config = GenerationConfig.from_pretrained(folder)
        g, _ = m._prepare_generation_config(None)
        effective = {n: getattr(g, n, None) for n in NAMES}
        g = m._prepare_generated_length(g, True, True, "input_ids", 7, torch.zeros(1, 7))
        found.append({"config": conf, "generation": gen, "options": effective, "limit": g.max_length,
                      "encoder_decoder": m.config.is_encoder_decoder})
        m.config = own
    return found


def write(name, data):
    text = json.dumps(data, separators=(",", ":"))
    with open(HERE / name, "wb") as f, gzip.GzipFile("", "wb", 9, f, mtime=0) as g:
        g.write(text.encode())
    print(name, len(data), "entries", (HERE / name).stat().st_size, "bytes")


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["warpers", "configs", "sampling", "generate"]
    if "warpers" in wanted:
        write("warpers.json.gz", warpers())
    if "configs" in wanted:
        write("configs.json.gz", configs())
    if "sampling" in wanted:
        MODELS.update({False: model(False), True: model(True)})
        write("sampling.json.gz", sampling())
    if "generate" in wanted:
        MODELS.update({False: model(False), True: model(True)})
        write("generate.json.gz", settled())
