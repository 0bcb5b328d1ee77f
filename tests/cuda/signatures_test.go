//go:build cuda

package cuda

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plugin/manifest"
)

// A session's providers decide which variant runs a node, so both have one signature.
func TestSignatures(t *testing.T) {
	program := compile(t, "signatures.c", "signatures", "-ldl")
	for name, library := range built(t) {
		m, err := manifest.Read(filepath.Dir(library))
		if err != nil {
			t.Fatal(err)
		}
		cpu, err := m.VariantFor("cpu", manifest.ThisPlatform)
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(program, library, filepath.Join(cpuPlugins, m.Name, cpu.File)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			t.Errorf("%s: its CUDA variant against its CPU one: %s", name, strings.TrimSpace(line))
		}
	}
}

// The comparison itself: other plugins' operators are not fused-gelu's.
func TestSignaturesDiffer(t *testing.T) {
	program := compile(t, "signatures.c", "signatures", "-ldl")
	library := built(t)["fused-gelu"]
	out, err := exec.Command(program, library,
		filepath.Join(cpuPlugins, "flash-decode", "libflash_decode.so")).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "FusedGelu: the other has no such operator" {
		t.Errorf("found %v, %s", err, out)
	}
}
