#!/usr/bin/env bash
# tokenizers 0.23.3: enable_truncation(n) with an n below the number of special tokens that the post-processor adds cuts nothing, and says
# nothing: the room that is left is computed without a sign, and wraps around. [CLS] $A [SEP] needs 2: with 2 a text becomes [CLS] [SEP],
# with 1 it stays whole, 8 ids where 1 was asked for. A pair, which needs 3, is whole with 2 already.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install -q --disable-pip-version-check tokenizers==0.23.3
cat >short.py <<'PY'
from tokenizers import Tokenizer, models, pre_tokenizers, processors

tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "[CLS]": 2, "[SEP]": 3, "[UNK]": 4}, "[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
for length in (4, 3, 2, 1, 0):
    tokenizer.enable_truncation(length)
    print(length, len(tokenizer.encode("a b a b a b").ids), len(tokenizer.encode("a b a b a b", "a b").ids))
PY
env/bin/python short.py | tee found
cat >expected <<'TEXT'
4 4 4
3 3 3
2 2 11
1 8 11
0 8 11
TEXT
diff expected found
