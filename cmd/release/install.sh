#!/bin/sh
# Installs graft @VERSION@ below a prefix, from a folder or an address that has the release's files. What is installed has the hash that
# SHA256SUMS says; with GRAFT_SUMS set to the hash of that file, which the release's notes have, nobody in between can change it.
#
#   sh install.sh FOLDER-OR-ADDRESS [PREFIX]      # the prefix is $HOME/.local where none is given
set -eu

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

[ $# -ge 1 ] || fail "no place, needed the folder or the https address of the release's files"
place=${1%/} prefix=${2:-${HOME:?HOME is not set: give a prefix}/.local}
[ "$(uname -s)" = Linux ] || fail "found $(uname -s), needed Linux"
case $(uname -m) in
  x86_64) machine=amd64 ;;
  aarch64) machine=arm64 ;;
  *) fail "found the processor $(uname -m), needed x86_64 or aarch64" ;;
esac
name=graft-@VERSION@-linux-$machine
command -v sha256sum >/dev/null || fail "found no sha256sum, needed it to check what was fetched"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
get() {
  case $place in
    https://*)
      if command -v curl >/dev/null; then
        curl --proto '=https' --tlsv1.2 -fsSL -o "$work/$1" "$place/$1" || fail "$place/$1: cannot be fetched"
      elif command -v wget >/dev/null; then
        wget --https-only -q -O "$work/$1" "$place/$1" || fail "$place/$1: cannot be fetched"
      else
        fail "found neither curl nor wget"
      fi ;;
    *://*) fail "$place: needed an https address" ;;
    *) cp "$place/$1" "$work/$1" || fail "$place/$1: cannot be read" ;;
  esac
}
get SHA256SUMS
if [ -n "${GRAFT_SUMS:-}" ]; then
  found=$(sha256sum "$work/SHA256SUMS" | cut -d ' ' -f 1)
  [ "$found" = "$GRAFT_SUMS" ] || fail "SHA256SUMS: found sha256 $found, needed $GRAFT_SUMS as GRAFT_SUMS says"
fi
get "$name.tar.gz"
(cd "$work" && grep "  $name.tar.gz\$" SHA256SUMS >sum && sha256sum -c --status sum) || fail "$name.tar.gz: found another sha256 than SHA256SUMS says; nothing was installed"
tar -C "$work" -xzf "$work/$name.tar.gz"

# The binary goes last: it stands for the whole.
mkdir -p "$prefix/bin" "$prefix/lib/graft" "$prefix/share"
cp -R "$work/$name/share/." "$prefix/share/"
if [ -d "$work/$name/lib/graft" ]; then
  for file in "$work/$name"/lib/graft/*; do
    cp "$file" "$prefix/lib/graft/.new" && mv -f "$prefix/lib/graft/.new" "$prefix/lib/graft/$(basename "$file")"
  done
fi
cp "$work/$name/bin/graft" "$prefix/bin/.graft.new"
chmod 755 "$prefix/bin/.graft.new"
mv -f "$prefix/bin/.graft.new" "$prefix/bin/graft"
echo "installed $prefix/bin/graft, version @VERSION@" >&2
case :$PATH: in
  *:"$prefix/bin":*) ;;
  *) echo "$prefix/bin is not on the PATH: add it" >&2 ;;
esac
