//go:build cuda

package cuda

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/opgraft/graft/host/plugin/manifest"
)

// Where make cuda puts libraries and reports, from here.
const (
	root    = "../.."
	plugins = root + "/build/plugins"
	reports = root + "/build/cuda/report"
)

var cudaPlugin = regexp.MustCompile(`(?m)^\s*graft_add_cuda_plugin\(`)

// built lists the plugins of this repository that have a CUDA variant, by the names of their folders under
// build/plugins, each with that variant's library.
func built(t *testing.T) map[string]string {
	t.Helper()
	lists, err := filepath.Glob(root + "/plugins/*/CMakeLists.txt")
	if err != nil {
		t.Fatal(err)
	}
	libraries := map[string]string{}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		if !cudaPlugin.Match(text) {
			continue
		}
		m, err := manifest.Read(filepath.Dir(list))
		if err != nil {
			t.Fatal(err)
		}
		variant, err := m.VariantFor("cuda", manifest.Platform{OS: "linux", Arch: "amd64"})
		if err != nil {
			t.Fatal(err)
		}
		library := filepath.Join(plugins, m.Name, variant.File)
		if _, err := os.Stat(library); err != nil {
			t.Fatalf("%v; run: make cuda", err)
		}
		libraries[m.Name] = library
	}
	if len(libraries) == 0 {
		t.Fatal("found no plugin with a CUDA variant")
	}
	return libraries
}
