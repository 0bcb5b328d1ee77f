#!/usr/bin/env bash
# tokenizers 0.23.3: where the decoder is ByteLevel (GPT-2, Llama 3, Qwen, ModernBERT), an added token of letters between
# U+00A1 and U+00FF does not come back. The decoder takes the letters of every token for the bytes that they stand for in
# the byte-level alphabet, and ï is one of those: "naïve" decodes to "na", U+FFFD, "ve". An added token of Chinese letters, none
# of which is in the alphabet, comes back as it is. It makes no difference whether the token is special or normalised.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install -q --disable-pip-version-check tokenizers==0.23.3
cat >decode.py <<'PY'
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

for options in ({}, {"normalized": True}, {"special": True}):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    add = tokenizer.add_special_tokens if "special" in options else tokenizer.add_tokens
    for word in ("naïve", "日本"):
        before = tokenizer.decode(tokenizer.encode(word).ids)
        add([AddedToken(word, **options)])
        after = tokenizer.encode(word)
        print(options, ascii(before), len(after.ids), ascii(tokenizer.decode(after.ids, skip_special_tokens=False)))
PY
env/bin/python decode.py | tee found
cat >expected <<'TEXT'
{} 'na\xefve' 1 'na\ufffdve'
{} '\u65e5\u672c' 1 '\u65e5\u672c'
{'normalized': True} 'na\xefve' 1 'na\ufffdve'
{'normalized': True} '\u65e5\u672c' 1 '\u65e5\u672c'
{'special': True} 'na\xefve' 1 'na\ufffdve'
{'special': True} '\u65e5\u672c' 1 '\u65e5\u672c'
TEXT
diff expected found
