package generations

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/internal/must"
)

// A side may be another folder of the same model.
func TestFolderOf(t *testing.T) {
	for _, c := range []struct{ name, base, folder string }{
		{"auto", "auto", ""},
		{"folder=a/b", "auto", "a/b"},
		{"none+folder=a+b", "none", "a+b"},
		{"keys+weights=int8+folder=/a", "keys+weights=int8", "/a"},
		{"weights=int8", "weights=int8", ""},
	} {
		if base, folder := folderOf(c.name); base != c.base || folder != c.folder {
			t.Errorf("%s is %q of %q, want %q of %q", c.name, base, folder, c.base, c.folder)
		}
	}
	other := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(other, "config.json"), []byte(`{"model_type": "gpt2", "vocab_size": 9}`),
		0o644))
	must.Succeed(t, takes(other, &modeldir.Config{ModelType: "gpt2", Vocab: 9}))
	for _, c := range []modeldir.Config{{ModelType: "gpt2", Vocab: 10}, {ModelType: "bart", Vocab: 9}} {
		if err := takes(other, &c); err == nil ||
			!strings.Contains(err.Error(), `a model of type "gpt2" with 9 tokens, needed type`) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := takes(filepath.Join(other, "nowhere"), &modeldir.Config{}); err == nil {
		t.Error("a folder that is not there is taken")
	}
}
