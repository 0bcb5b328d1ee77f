#!/usr/bin/env bash
# The model builder of onnxruntime-genai 0.18.0 writes other models than it reads, and says nothing:
# - of an OLMo, layer normalisations become SimplifiedLayerNormalization, which takes no mean off;
# - of a Mistral, sliding_window is left out (local_window_size is -1), so that tokens beyond the window are still read.
# Logits of 24 tokens are compared with those of transformers, in float32, with the same random weights; those of a Llama are equal.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
env/bin/pip install -q --disable-pip-version-check torch==2.9.1 transformers==5.5.0 tokenizers==0.22.2 onnx==1.23.2 onnx-ir==1.1.0 \
  onnxruntime==1.31.1 onnxruntime-genai==0.18.0 numpy==2.4.6 2>/dev/null
cat >build.py <<'PY'
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import torch
import transformers
from tokenizers import Tokenizer, models

VOCABULARY, LENGTH, WINDOW, HEADS = 80, 24, 8, dict(num_attention_heads=4, num_key_value_heads=2)
torch.manual_seed(0)
for kind, own in (("llama", {}), ("olmo", {}), ("mistral", {"sliding_window": WINDOW})):
    config = transformers.AutoConfig.for_model(kind, vocab_size=VOCABULARY, hidden_size=128, intermediate_size=96, num_hidden_layers=2,
                                               bos_token_id=0, eos_token_id=1, pad_token_id=2, **HEADS, **own)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, 0.05, 0.2)
    model.save_pretrained(kind)
    words = Tokenizer(models.WordLevel({f"<{i}>": i for i in range(VOCABULARY)}, unk_token="<2>"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<0>", eos_token="<1>").save_pretrained(kind)
    subprocess.run([sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", kind, "-o", kind + "-onnx", "-p", "fp32", "-e", "cpu",
                    "-c", "cache"], check=True, capture_output=True)
    nodes = onnx.load(kind + "-onnx/model.onnx", load_external_data=False).graph.node
    norms = {n.op_type for n in nodes if n.op_type.endswith("LayerNormalization")}
    windows = {a.i for n in nodes for a in n.attribute if a.name == "local_window_size"}

    tokens = np.random.default_rng(1).integers(3, VOCABULARY, (1, LENGTH))
    session = onnxruntime.InferenceSession(kind + "-onnx/model.onnx")
    feeds = {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
    feeds |= {i.name: np.zeros((1, 2, 0, 32), np.float32) for i in session.get_inputs() if i.name not in feeds}
    found = session.run(["logits"], feeds)[0]
    with torch.no_grad():
        wanted = model(torch.from_numpy(tokens)).logits.numpy()
    far = np.abs(found - wanted).max(-1)[0] > 1e-3 * np.abs(wanted).max()
    print(kind, *sorted(norms), *windows, "equal" if not far.any() else "differs" if far[:WINDOW].any() else "equal within the window, and not beyond")
PY
env/bin/python build.py 2>/dev/null | tee found
cat >expected <<'TEXT'
llama SimplifiedLayerNormalization SkipSimplifiedLayerNormalization -1 equal
olmo SimplifiedLayerNormalization SkipSimplifiedLayerNormalization -1 differs
mistral SimplifiedLayerNormalization SkipSimplifiedLayerNormalization -1 equal within the window, and not beyond
TEXT
diff expected found
