#!/usr/bin/env bash
# Brings the trained models of trained.txt into the user's cache, as Hugging Face folders with optimum's export beside, checks
# them, and prints where they are. What is there already is not made again.
#   trained.sh PYTHON     of an environment with requirements-trained.txt
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=$("$here/../../tests/zoo/fetch.sh" "$here/trained.txt")
for name in smollm2-135m whisper-tiny.en texts speech; do
  if [ "$name" = speech ] && ! command -v espeak-ng >/dev/null; then
    echo "speech: espeak-ng is not there, so no speech is made; apt-get install espeak-ng, then run this again" >&2
    continue
  fi
  [ -d "$cache/$name" ] || "$1" "$here/trained_export.py" "$name" "$cache"
  "$1" "$here/trained_check.py" "$name" "$cache"
  echo "$cache/$name"
done
