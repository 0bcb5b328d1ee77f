#!/usr/bin/env bash
# transformers 5.24.0 has no T5 with a head of its own in its configuration. tie_word_embeddings=False, as T5 1.1 and Flan-T5 have it,
# becomes scale_decoder_outputs=False, and tie_word_embeddings is true, in the config.json that it writes as well. transformers 4.57.6 knows
# the older key alone: after one pass through version 5 it reads a tied T5, and writes no tie_word_embeddings at all.
# An mT5 loses the key with no other in its place.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >pass.py <<'PY'
import json
import sys

import transformers

source, target = sys.argv[1:]
for kind in ("t5", "mt5"):
    if source == "new":
        config = transformers.AutoConfig.for_model(kind, tie_word_embeddings=False)
    else:
        config = transformers.AutoConfig.from_pretrained(f"{source}-{kind}")
    config.save_pretrained(f"{target}-{kind}")
    with open(f"{target}-{kind}/config.json") as f:
        written = json.load(f)
    print(transformers.__version__, kind, "in memory", config.tie_word_embeddings, "written",
          {k: written[k] for k in ("tie_word_embeddings", "scale_decoder_outputs") if k in written})
PY
for package in transformers==4.57.6 transformers==5.24.0; do
  python3 -m venv "env-$package"
  "env-$package/bin/pip" install -q --disable-pip-version-check "$package" 2>/dev/null
done
{
  env-transformers==4.57.6/bin/python pass.py new first
  env-transformers==5.24.0/bin/python pass.py first second
  env-transformers==4.57.6/bin/python pass.py second third
} 2>/dev/null | tee found
cat >expected <<'TEXT'
4.57.6 t5 in memory False written {'tie_word_embeddings': False}
4.57.6 mt5 in memory False written {'tie_word_embeddings': False}
5.24.0 t5 in memory True written {'tie_word_embeddings': True, 'scale_decoder_outputs': False}
5.24.0 mt5 in memory True written {'tie_word_embeddings': True}
4.57.6 t5 in memory True written {'scale_decoder_outputs': False}
4.57.6 mt5 in memory True written {'tie_word_embeddings': True}
TEXT
diff expected found
