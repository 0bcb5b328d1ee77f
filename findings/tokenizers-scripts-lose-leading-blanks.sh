#!/usr/bin/env bash
# tokenizers 0.23.3: the pre-tokenizer UnicodeScripts loses what stands before the first character of a script: blanks, and characters that are
# in no script of its tables, which end with Unicode 9 or so. In the middle and at the end they stay with the part before them. A text of blanks
# alone has no part at all, so that it has no token.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install -q --disable-pip-version-check tokenizers==0.23.3
cat >scripts.py <<'PY'
from tokenizers import pre_tokenizers

split = pre_tokenizers.UnicodeScripts().pre_tokenize_str
for text in ("a b", "  a  b  ", "   ", "\U00010d00a", "a\U00010d00 b"):  # U+10D00 is a letter of Hanifi Rohingya, of Unicode 11
    print(ascii(text), [(ascii(part), place) for part, place in split(text)])
PY
env/bin/python scripts.py | tee found
cat >expected <<'TEXT'
'a b' [("'a b'", (0, 3))]
'  a  b  ' [("'a  b  '", (2, 8))]
'   ' []
'\U00010d00a' [("'a'", (1, 2))]
'a\U00010d00 b' [("'a\\U00010d00 b'", (0, 4))]
TEXT
diff expected found
