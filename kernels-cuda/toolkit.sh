#!/usr/bin/env bash
# Prints the path of an nvcc of CUDA 13: the one on the PATH, or else one brought from PyPI into the user's cache
# (${XDG_CACHE_HOME:-~/.cache}/graft/cuda-13.0), about 100 MB to fetch and 280 MB unpacked, versions and hashes as
# toolkit.txt beside this script says. GRAFT_NVCC names one to take instead.
#
# usage: nvcc=$(kernels-cuda/toolkit.sh)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# The release of a compiler, like 13.0; empty where it does not run.
release() { "$1" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p'; }

fail() { echo "graft: $*" >&2; exit 1; }

if [ -n "${GRAFT_NVCC:-}" ]; then
  found=$(release "$GRAFT_NVCC")
  case "$found" in
    13.*) echo "$GRAFT_NVCC"; exit ;;
    *) fail "GRAFT_NVCC=$GRAFT_NVCC: found release '${found:-none}', need 13.x; name an nvcc of CUDA 13, or unset GRAFT_NVCC" ;;
  esac
fi

if nvcc=$(command -v nvcc); then
  found=$(release "$nvcc")
  case "$found" in
    13.*) echo "$nvcc"; exit ;;
    *) echo "graft: $nvcc: found release '${found:-none}', need 13.x; taking the one of the cache" >&2 ;;
  esac
fi

cache=${XDG_CACHE_HOME:-$HOME/.cache}/graft
# The list is part of the name: another list makes another folder, and never half of each.
toolkit=$cache/cuda-13.0-$(sha256sum "$here/toolkit.txt" | cut -c1-8)
nvcc=$toolkit/bin/nvcc
if [ -x "$nvcc" ]; then echo "$nvcc"; exit; fi

machine=$(uname -sm)
[ "$machine" = "Linux x86_64" ] ||
  fail "found $machine, PyPI's nvcc here is for Linux x86_64; put an nvcc of CUDA 13 on the PATH"

echo "graft: bringing nvcc 13.0 from PyPI into $toolkit" >&2
mkdir -p "$cache"
new=$(mktemp -d "$cache/.cuda-13.0.XXXXXX")
trap 'rm -rf "$new"' EXIT
# An environment of its own brings pip where the system's Python has none.
python3 -m venv "$new/venv"
"$new/venv/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: \
  --require-hashes --target "$new/packages" -r "$here/toolkit.txt" >&2
[ "$(release "$new/packages/nvidia/cu13/bin/nvcc")" = 13.0 ] ||
  fail "$new/packages/nvidia/cu13/bin/nvcc: does not run; free some disk space and try again"
# In one step, so that a cache is there whole or not at all. Losing the race to another build is as good.
mv -T "$new/packages/nvidia/cu13" "$toolkit" 2>/dev/null || [ -x "$nvcc" ] ||
  fail "$toolkit: cannot be made; remove what is there and try again"
echo "$nvcc"
