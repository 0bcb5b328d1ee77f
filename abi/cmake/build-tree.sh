#!/usr/bin/env bash
# Configures and builds a CMake tree, with a line of progress every few seconds on stderr.
# The compiler's own output is FOLDER/log; its end is shown where something fails.
#
#   build-tree.sh FOLDER JOBS [CMAKE-OPTION]... [-- BUILD-OPTION]...
set -uo pipefail
folder=$1 jobs=$2
shift 2
options=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1"); shift; done
[ $# -eq 0 ] || shift
name=$(basename "$folder") log="$folder/log"
mkdir -p "$folder"

fail() {
  tail -50 "$log" >&2
  exit 1
}

made=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$folder/CMakeCache.txt" 2>/dev/null)
if [ -n "$made" ] && ! [ "$made" -ef . ]; then
  echo "$folder: found a build of $made, needed one of $PWD: the tree was moved or copied; run: make clean" >&2
  exit 1
fi
cmake -S . -B "$folder" "${options[@]}" >"$log" 2>&1 || fail
cmake --build "$folder" -j"$jobs" "$@" >>"$log" 2>&1 &
build=$!
trap 'kill "$build" 2>/dev/null' INT TERM
shown=
while kill -0 "$build" 2>/dev/null; do
  sleep 1
  percent=$(grep -ao '^\[ *[0-9]*%\] Building.*' "$log" | tail -1 | sed 's/^\[ *\([0-9]*\)%.*/\1/')
  if [ -n "$percent" ] && [ $((SECONDS % 5)) -eq 0 ] && [ "$percent" != "$shown" ]; then
    shown=$percent
    echo "compiling build/$name: $percent % after $SECONDS s" >&2
  fi
done
wait "$build" || fail
