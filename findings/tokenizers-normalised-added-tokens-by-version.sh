#!/usr/bin/env bash
# tokenizers 0.22.2 and 0.23.3: an added token with normalized=True, under a normaliser that changes it (Lowercase). Both
# versions find the same ids in a text. The older one decodes an id to the token as it was added, "Berlin"; the newer one
# to its normalised form, "berlin", and id_to_token says so too. So the same folder gives other decoded text with
# another version, though its ids are equal.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >decode.py <<'PY'
import tokenizers
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "in": 1, "is": 2}, unk_token="<unk>"))
tokenizer.normalizer = normalizers.Lowercase()
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.add_tokens([AddedToken("Berlin", normalized=True)])
ids = tokenizer.encode("in Berlin is").ids
print(tokenizers.__version__, ids, tokenizer.decode(ids), tokenizer.id_to_token(3))
PY
for package in tokenizers==0.22.2 tokenizers==0.23.3; do
  python3 -m venv "env-$package"
  "env-$package/bin/pip" install -q --disable-pip-version-check "$package"
  "env-$package/bin/python" decode.py
done | tee found
cat >expected <<'TEXT'
0.22.2 [1, 3, 2] in Berlin is Berlin
0.23.3 [1, 3, 2] in berlin is berlin
TEXT
diff expected found
