#!/usr/bin/env bash
# tokenizers 0.23.3: whether the place of a token (offsets) has the blank before the word in it depends on the pre-tokenizer. With Metaspace
# (XLM-RoBERTa, T5, Llama) it has: in "a cat" the second token is 1 to 5. ByteLevel alone has it too, and its post-processor, or RoBERTa's,
# takes it off (trim_offsets): 2 to 5. Who marks entities in the text by these numbers gets " cat" from one tokenizer, and "cat" from another.
# A letter that is several bytes, and as many tokens, has the same place in each of them.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install -q --disable-pip-version-check tokenizers==0.23.3
cat >places.py <<'PY'
from tokenizers import Tokenizer, models, pre_tokenizers, processors

letters = sorted(pre_tokenizers.ByteLevel.alphabet())
merges = [("\u0120", "c"), ("\u0120c", "a"), ("\u0120ca", "t")]
words = letters + ["".join(m) for m in merges]
meta = ["a", "\u2581a", "\u2581cat", "<unk>"]
for name, model, pre, post in (
        ("Metaspace", models.Unigram([(w, -1.0) for w in meta], 3), pre_tokenizers.Metaspace(), None),
        ("ByteLevel", models.BPE({w: i for i, w in enumerate(words)}, merges), pre_tokenizers.ByteLevel(add_prefix_space=False), None),
        ("trimmed", models.BPE({w: i for i, w in enumerate(words)}, merges), pre_tokenizers.ByteLevel(add_prefix_space=False),
         processors.ByteLevel(trim_offsets=True))):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre
    if post:
        tokenizer.post_processor = post
    print(name, tokenizer.encode("a cat").offsets, tokenizer.encode("é").offsets)
PY
env/bin/python places.py | tee found
cat >expected <<'TEXT'
Metaspace [(0, 1), (1, 5)] [(0, 1)]
ByteLevel [(0, 1), (1, 5)] [(0, 1), (0, 1)]
trimmed [(0, 1), (2, 5)] [(0, 1), (0, 1)]
TEXT
diff expected found
