package generations

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// What a folder lacks is said with its path, whichever side opens it.
func TestMissingExternalData(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	f := must.Value(models.Lookup("optimum", "gpt2"))(t)
	folder := t.TempDir()
	path := filepath.Join(folder, "model.onnx")
	must.Succeed(t, f.WriteExternal(path, 1))
	config := must.Value(f.ConfigJSON())(t)
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "config.json"), config, 0o644))
	must.Succeed(t, os.Remove(path+".data"))
	for _, name := range []string{"none", "auto"} {
		_, err := Compare(t.Context(), l, set, folder,
			Options{A: name, B: name, Search: []byte(`{"max_new_tokens": 4}`), Batch: 1, PromptLength: 3})
		want := name + ": " + path + `: cannot find the external data file "model.onnx.data"`
		if !errors.Is(err, model.ErrExternalData) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
