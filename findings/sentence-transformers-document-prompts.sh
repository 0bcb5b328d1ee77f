#!/bin/sh
# sentence-transformers' encode_document says that it takes the first prompt there is of document, passage and corpus. A
# prompt document is always there, empty where a folder has none, so that a folder's passage is never taken.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" install -q --disable-pip-version-check sentence-transformers==6.2.0 transformers==5.24.0 torch==2.9.1 numpy==2.4.6
cd "$work"
"$work/env/bin/python" - 2>/dev/null <<'PY'
import numpy as np
import sentence_transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

words = {"[UNK]": 0, "passage": 1, "cat": 2}
t = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
t.pre_tokenizer = pre_tokenizers.Whitespace()
first = StaticEmbedding(t, embedding_weights=np.eye(3, dtype=np.float32))
SentenceTransformer(modules=[first], prompts={"query": "", "passage": "passage "}, device="cpu").save("folder")
m = SentenceTransformer("folder", device="cpu")
print("sentence-transformers", sentence_transformers.__version__, "prompts", m.prompts)
document, named = m.encode_document("cat").tolist(), m.encode("cat", prompt_name="passage").tolist()
print("encode_document       ", document)
print("prompt_name='passage' ", named)
assert document == [0, 0, 1] and named == [0, 0.5, 0.5]
PY
