#!/usr/bin/env bash
# transformers 4.55.4 and 5.24.0, AutoTokenizer over one folder whose class is LlamaTokenizerFast. The older one makes
# its post-processor of add_bos_token and add_eos_token in tokenizer_config.json, whatever tokenizer.json holds; the newer one takes
# the post-processor of tokenizer.json and does not look at either. So embedders that read the last token (e5-mistral and
# its kind say add_eos_token alone) read another token in transformers 5, and add_bos_token=false is no way to leave <s> out.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >encode.py <<'PY'
import json
import os
import warnings

warnings.filterwarnings("ignore")
os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"
import transformers

transformers.logging.set_verbosity_error()
words = ["<unk>", "<s>", "</s>", "▁", "t", "h", "e", "c", "a", "▁t", "he", "▁the", "▁c", "▁ca", "▁cat"]
added = [{"id": i, "content": w, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
         for i, w in enumerate(words[:3])]
begin, first = {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
with open("tokenizer.json", "w") as f:
    json.dump({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "pre_tokenizer": None, "decoder": None,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "post_processor": {
            "type": "TemplateProcessing", "single": [begin, first],
            "pair": [begin, first, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": True, "byte_fallback": False, "vocab": {w: i for i, w in enumerate(words)},
            "merges": ["▁ t", "h e", "▁t he", "▁ c", "▁c a", "▁ca t"]},
    }, f)
for begins, ends in ((True, True), (True, False), (False, True)):
    with open("tokenizer_config.json", "w") as f:
        json.dump({"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": begins, "add_eos_token": ends, "legacy": False,
                   "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}, f)
    tokenizer = transformers.AutoTokenizer.from_pretrained(".")
    print(transformers.__version__, begins, ends, tokenizer.convert_ids_to_tokens(tokenizer("the cat").input_ids))
PY
for package in transformers==4.55.4 transformers==5.24.0; do
  python3 -m venv "env-$package"
  "env-$package/bin/pip" install -q --disable-pip-version-check "$package" 2>/dev/null
  "env-$package/bin/python" encode.py 2>/dev/null
done | tee found
cat >expected <<'TEXT'
4.55.4 True True ['<s>', '▁the', '▁cat', '</s>']
4.55.4 True False ['<s>', '▁the', '▁cat']
4.55.4 False True ['▁the', '▁cat', '</s>']
5.24.0 True True ['<s>', '▁the', '▁cat']
5.24.0 True False ['<s>', '▁the', '▁cat']
5.24.0 False True ['<s>', '▁the', '▁cat']
TEXT
diff expected found
