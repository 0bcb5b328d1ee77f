package manifest

import (
	"testing"

	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/internal/must"
)

func TestVariantFor(t *testing.T) {
	m := &Manifest{Name: "toy", path: "/p/plugin.yaml", Variants: []Variant{
		{Device: "cpu", OS: "linux", Arch: "amd64", File: "a.so"}, {Device: "cuda", OS: "linux", Arch: "arm64", File: "b.so"},
	}}
	must.Equal(t, must.Value(m.VariantFor("cuda", Platform{"linux", "arm64"}))(t).File, "b.so")
	_, err := m.VariantFor("cpu", Platform{"darwin", "arm64"})
	want := "/p/plugin.yaml: found variants cpu on linux/amd64, cuda on linux/arm64 of toy, needed cpu on " +
		"darwin/arm64; install a release of the plugin for this platform"
	must.FailExactly(t, err, want, refusal.ErrIncompatible)
}
