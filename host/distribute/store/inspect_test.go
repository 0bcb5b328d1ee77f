package store

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/internal/must"
)

func TestInspect(t *testing.T) {
	folder := source(t)
	in, err := Inspect(context.Background(), folder)
	must.Succeed(t, err)
	if in.Manifest == nil || in.Manifest.Name != "toy" || len(in.Libraries) != 1 || in.Libraries[0].Library.Note == nil ||
		in.Libraries[0].Problem != "" {
		t.Errorf("folder: %+v", in)
	}
	library := filepath.Join(folder, "libtoy.so")
	if in, err = Inspect(context.Background(), library); err != nil || in.Manifest != nil || len(in.Libraries) != 1 ||
		in.Libraries[0].Library.Path != library {
		t.Errorf("library: %+v, %v", in, err)
	}
	archive := filepath.Join(t.TempDir(), "toy.tar.gz")
	plugintest.WriteTarGz(t, archive, plugintest.Entries(t, folder, "toy/"))
	if in, err = Inspect(context.Background(), archive); err != nil || in.Manifest == nil || len(in.Libraries) != 1 ||
		in.Libraries[0].Library.Path != archive+"/toy/libtoy.so" {
		t.Errorf("archive: %+v, %v", in, err)
	}
	mark := filepath.Join(t.TempDir(), "ran")
	strange := plugintest.Build(t, "-DNO_ENTRY", `-DMARK_IN_CONSTRUCTOR="`+mark+`"`)
	if in, err = Inspect(context.Background(), strange); err != nil ||
		!strings.Contains(in.Libraries[0].Problem, "found no symbol graft_plugin_v1") {
		t.Errorf("no plugin: %+v, %v", in, err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("inspection ran the library")
	}
	must.Fail(t, must.Error(Inspect(context.Background(), filepath.Join(folder, "none"))), refusal.ErrNotFound)
	if data, err := json.Marshal(in); err != nil || !strings.Contains(string(data), `"abi":"1.0"`) {
		t.Errorf("JSON %s, %v", data, err)
	}
}
