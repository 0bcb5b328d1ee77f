package models_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

func TestSmallFoldersAreWholeAndTheSameEveryTime(t *testing.T) {
	folders := models.SmallFolders()
	if len(folders) < 15 {
		t.Fatalf("found %d small folders, need at least 15", len(folders))
	}
	for _, f := range append(folders, models.SmallQuantised()...) {
		t.Run(f.Name, func(t *testing.T) {
			first, second := t.TempDir(), t.TempDir()
			for _, dir := range []string{first, second} {
				must.Succeed(t, models.Small(f.Name, dir))
			}
			want := []string{"config.json", "generation_config.json"}
			if strings.Contains(f.Name, "-genai") {
				want = append(want, "genai_config.json")
			}
			if strings.Contains(f.Name, "-exporter") {
				want = append(want, "export.json")
			}
			for _, file := range f.Files {
				want = append(want, file+".onnx")
			}
			slices.Sort(want)
			if got := names(t, first); !slices.Equal(got, want) {
				t.Fatalf("the folder holds %v, want %v", got, want)
			}
			for _, file := range want {
				a, b := content(t, first, file), content(t, second, file)
				if !bytes.Equal(a, b) {
					t.Errorf("%s differs between two makings", file)
				}
				if strings.HasSuffix(file, ".onnx") {
					soundModel(t, a)
				}
			}
		})
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries := must.Value(os.ReadDir(dir))(t)
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func content(t *testing.T, dir, name string) []byte {
	t.Helper()
	b := must.Value(os.ReadFile(filepath.Join(dir, name)))(t)
	return b
}

// soundModel parses a model and expects every tensor to have its data.
func soundModel(t *testing.T, b []byte) {
	t.Helper()
	var m onnx.Model
	must.Succeed(t, proto.Unmarshal(b, &m))
	weights := 0
	visit(m.GetGraph(), func(x *onnx.Tensor) {
		if isSeeded(x) {
			t.Errorf("tensor %s is not filled", x.GetName())
		}
		weights += len(x.GetRawData())
	})
	if weights < 50_000 {
		t.Errorf("the model holds %d bytes of weights, want all of them", weights)
	}
}

func TestSmallNamesWhatThereIs(t *testing.T) {
	err := models.Small("gpt3", t.TempDir())
	must.Fail(t, err, `no small model "gpt3": there are arcee, bart, bart-exporter`)
}

// The numbers are those of export/seeded.py.
func TestNormalIsPythons(t *testing.T) {
	want := []float32{0x1.840f82p-2, 0x1.322908p+0, 0x1.0e8b84p+0, 0x1.3d25e2p+1, 0x1.18447ap-1, 0x1.298534p-1}
	must.Equal(t, models.Normal(1, "features/7", len(want)), want)
}
