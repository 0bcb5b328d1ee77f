#!/usr/bin/env bash
# Plugins and the host for arm64, run under QEMU on another processor: the conformance cases of every operator, words of a trained model
# generated with them, and packages that hold what depends on the processor. Speed says nothing here.
#
#   tests/arm64/run.sh PLUGINS WORK          # as root: programs for arm64 are registered with the kernel
#
# PLUGINS is the folder of plugins for arm64, WORK one for what is built. bin/graft and build/plugins are this machine's.
# SAMPLE, a number, chooses a third of the cases, beside the first of each operator; all where it is empty.
set -euo pipefail
plugins=$(realpath "$1") work=$2
mkdir -p "$work"
work=$(realpath "$work")
fail() {
  echo "tests/arm64: $*" >&2
  exit 1
}
if [ "$(uname -m)" != aarch64 ]; then
  command -v qemu-aarch64 >/dev/null || fail "found no qemu-aarch64, needed Debian's qemu-user, libc6-arm64-cross and libstdc++6-arm64-cross"
  [ -e /proc/sys/fs/binfmt_misc/register ] || mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc || fail "cannot mount binfmt_misc, which root can"
  if ! grep -qs interpreter /proc/sys/fs/binfmt_misc/*aarch64*; then
    magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
    mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
    echo ":graft-aarch64:M::$magic:$mask:$(command -v qemu-aarch64):" >/proc/sys/fs/binfmt_misc/register
  fi
  # Where Debian's QEMU looks for the other system's libraries; children with an environment of their own find them too.
  mkdir -p /etc/qemu-binfmt
  [ -e /etc/qemu-binfmt/aarch64 ] || ln -s /usr/aarch64-linux-gnu /etc/qemu-binfmt/aarch64
  # ONNX Runtime reads which cores there are, and ends the process where it reads of another processor's.
  if [ -z "${GRAFT_ARM64_CPUINFO:-}" ]; then
    for core in $(seq 0 $(($(nproc) - 1))); do
      printf 'processor\t: %s\nFeatures\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm asimddp\n' "$core"
      printf 'CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n\n'
    done >"$work/cpuinfo"
    export GRAFT_ARM64_CPUINFO="$work/cpuinfo"
    exec unshare --mount sh -c 'mount --bind "$GRAFT_ARM64_CPUINFO" /proc/cpuinfo && exec "$0" "$@"' "$0" "$plugins" "$work"
  fi
fi

export CGO_ENABLED=0 GOARCH=arm64
go build -o "$work/graft" ./cmd/graft
export XDG_DATA_HOME="$work/data"
rm -rf "$work/plugins"
cp -r "$plugins" "$work/plugins"
if [ -n "${SAMPLE:-}" ]; then
  for manifest in "$work"/plugins/*/plugin.yaml; do
    awk -v sample="$SAMPLE" '
      /^[^ #]/ { show(); cases = /^cases:/ }
      !cases { print; next }
      /^cases:/ { print; next }
      /^  - name:/ { show() }
      /^    operator:/ { first = !seen[$2]++ }
      { text = text $0 "\n" }
      END { show() }
      function show() {
        if (text != "" && (first || (number + sample) % 3 == 0)) printf "%s", text
        if (text != "") number++
        text = ""; first = 0
      }' "$plugins/$(basename "$(dirname "$manifest")")/plugin.yaml" >"$manifest"
  done
fi
env -u GRAFT_PLUGIN_PATH -u GRAFT_PLUGIN_UNVERIFIED "$work/graft" plugin verify "$work"/plugins/*/ >"$work/verified" 2>"$work/talk" || fail "$(tail -20 "$work/talk")"
grep passed "$work/verified"
[ "$(grep -c passed "$work/verified")" = "$(ls -d "$plugins"/*/ | wc -l)" ] || fail "a plugin ran no case"

"$work/graft" doctor --fetch --quiet
printf 'kernel\ngraft\nencoder\n' >"$work/words"
words() { GRAFT_PLUGIN_PATH=$2 GRAFT_PLUGIN_UNVERIFIED=1 "$1" generate models/g2p --quiet --num-beams 4 --input "$work/words"; }
needed=$(words bin/graft build/plugins)
found=$(words "$work/graft" "$plugins")
[ -n "$needed" ] && [ "$found" = "$needed" ] || fail "generated '$found', needed '$needed'"
go test -short ./host/base/abi ./host/base/half ./host/base/memory/... ./host/base/storage ./host/plugin/sealed ./host/plugin/embedded
go test -short -run 'TestTextIsReadBack|TestHolds|TestSweep' ./host/session/languages
