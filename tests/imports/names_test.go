package imports

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// pluginNames are names of graft's own plugins and of their operators. A stranger's plugin
// is run as they are, so the host must not know them.
var pluginNames = regexp.MustCompile(`flash-decode|el-attention|slim-attention|packed-linear|quantized-linear|` +
	`FlashDecode|CachedAttention|StoreCache|ELAttention|KeyAttention|InputAttention|StoreRows|PackedLinear|PackPanels|QuantizedLinear`)

// TestHostNamesNoPlugin: host/plugin/defaults alone names operators of graft's own plugins.
func TestHostNamesNoPlugin(t *testing.T) {
	must.Succeed(t, filepath.WalkDir(filepath.Join(root, "host"), func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") ||
			d.Name() == "defaults.go" && filepath.Base(filepath.Dir(file)) == "defaults" {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			if name := pluginNames.FindString(line); name != "" {
				t.Errorf("%s:%d names %s; host/plugin/defaults is the place for such names", file, i+1, name)
			}
		}
		return nil
	}))
}
