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
	"github.com/opgraft/graft/models"
)

// What a folder lacks is said with its path, whichever side opens it.
func TestMissingExternalData(t *testing.T) {
	l, err := ort.FindAndOpen("")
	if err != nil {
		t.Fatal(err)
	}
	set, err := loaded.Load(nil, true)
	if err != nil {
		t.Fatal(err)
	}
	f, err := models.Lookup("optimum", "gpt2")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	path := filepath.Join(folder, "model.onnx")
	if err := f.WriteExternal(path, 1); err != nil {
		t.Fatal(err)
	}
	config, err := f.ConfigJSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "config.json"), config, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path + ".data"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"none", "auto"} {
		_, err := Compare(t.Context(), l, set, folder,
			Options{A: name, B: name, Search: []byte(`{"max_new_tokens": 4}`), Batch: 1, PromptLength: 3})
		want := name + ": " + path + `: cannot find the external data file "model.onnx.data"`
		if !errors.Is(err, model.ErrExternalData) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
