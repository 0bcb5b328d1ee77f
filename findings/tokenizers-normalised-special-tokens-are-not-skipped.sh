#!/usr/bin/env bash
# tokenizers 0.23.3: decode(ids, skip_special_tokens=True) retains a special token that was added with normalized=True where the
# normaliser changes it. The text of such a token is its normalised form, "[sep]", and the set of special tokens has only the form
# in which it was added, "[SEP]". Where the normaliser leaves the token as it is, or with normalized=False, it is left out as meant.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install -q --disable-pip-version-check tokenizers==0.23.3
cat >skip.py <<'PY'
import tokenizers
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

print(tokenizers.__version__)
for special in ("[SEP]", "[sep]"):
    for normalized in (True, False):
        tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "in": 1, "is": 2}, unk_token="<unk>"))
        tokenizer.normalizer = normalizers.Lowercase()
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer.add_special_tokens([AddedToken(special, normalized=normalized)])
        ids = tokenizer.encode(f"in {special} is").ids
        print(special, normalized, ids, repr(tokenizer.decode(ids, skip_special_tokens=True)))
PY
env/bin/python skip.py | tee found
cat >expected <<'TEXT'
0.23.3
[SEP] True [1, 3, 2] 'in [sep] is'
[SEP] False [1, 3, 2] 'in is'
[sep] True [1, 3, 2] 'in is'
[sep] False [1, 3, 2] 'in is'
TEXT
diff expected found
