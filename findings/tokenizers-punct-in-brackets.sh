#!/usr/bin/env bash
# tokenizers 0.23.3 (Oniguruma) and regex 2025.11.3: [[:punct:]] is not \p{Punct}. The class in brackets has the symbols too, "$+<=>^`|~" of
# ASCII and all others of \p{S} ("€", "×"); \p{Punct} is \p{P}, and has not. A split expression of a tokenizer.json in which one is written for
# the other cuts prices and formulas in another way, and so it does in engines whose [[:punct:]] is ASCII's or \p{P}.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install -q --disable-pip-version-check tokenizers==0.23.3 regex==2025.11.3
cat >punct.py <<'PY'
import regex
from tokenizers import Regex, pre_tokenizers

marks = "!#$%+,<=>^`|~€×§"
for expression in (r"[[:punct:]]", r"\p{Punct}", r"\p{P}", r"\p{S}"):
    split = pre_tokenizers.Split(Regex(expression), "removed")
    print(expression, "".join(c for c in marks if not split.pre_tokenize_str(c)), "".join(c for c in marks if regex.match(expression, c)))
PY
env/bin/python punct.py | tee found
cat >expected <<'TEXT'
[[:punct:]] !#$%+,<=>^`|~€×§ !#$%+,<=>^`|~€×§
\p{Punct} !#%,§ !#%,§
\p{P} !#%,§ !#%,§
\p{S} $+<=>^`|~€× $+<=>^`|~€×
TEXT
diff expected found
