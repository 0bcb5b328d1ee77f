//go:build cuda

package cuda

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/internal/sample"
)

// Where make puts libraries and reports, from here.
const (
	root       = "../.."
	cpuPlugins = root + "/build/plugins"
	tree       = root + "/build/cuda"
	plugins    = tree + "/plugins"
	reports    = tree + "/report"
)

var cudaPlugin = regexp.MustCompile(`(?m)^\s*graft_add_cuda_plugin\(`)

// built lists the plugins of this repository that have a CUDA variant, by the names of their folders under
// build/cuda/plugins, each with that variant's library; where a sample runs, those that make cuda-test builds for it.
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
		if number, all := sample.Number(); !all && m.Name != "fused-gelu" &&
			(m.Name == "slim-attention") != (number/2%2 == 0) {
			continue
		}
		library := filepath.Join(plugins, m.Name, variant.File)
		if _, err := os.Stat(library); err != nil {
			t.Fatalf("%v; run: make cuda-test", err)
		}
		libraries[m.Name] = library
	}
	if len(libraries) == 0 {
		t.Fatal("found no plugin with a CUDA variant")
	}
	return libraries
}

// capabilities are the compute capabilities that the libraries were compiled for.
func capabilities(t *testing.T) []string {
	t.Helper()
	cache, err := os.ReadFile(tree + "/CMakeCache.txt")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^GRAFT_CUDA_ARCHITECTURES:STRING=([0-9;]+)$`).FindSubmatch(cache)
	if found == nil {
		t.Fatalf("%s/CMakeCache.txt: found no GRAFT_CUDA_ARCHITECTURES, needed 80, 90 or both; run: make cuda-test", tree)
	}
	return strings.Split(string(found[1]), ";")
}
