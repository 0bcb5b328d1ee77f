package model

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// TestLocations: all files that a model refers to are listed, those that are not there too, and none twice.
func TestLocations(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.onnx")
	nested := graphOf(externalTensor("c", "c.bin", 0, 4, 1))
	inner := modelOf(graphOf(rawTensor("x", onnx.Tensor_FLOAT, make([]byte, 4), 1), externalTensor("a", "a.bin", 0, 4, 1),
		externalTensor("b", "sub/b.bin", 0, 4, 1), externalTensor("a2", "a.bin", 4, 4, 1)))
	inner.Graph.Node = append(inner.Graph.Node, ifNode(nested))
	for _, one := range []struct {
		model *onnx.Model
		want  string // the files, or a part of the error
	}{
		{inner, "a.bin c.bin sub/b.bin"},
		{modelOf(graphOf(rawTensor("x", onnx.Tensor_FLOAT, make([]byte, 4), 1))), ""},
		{modelOf(graphOf(externalTensor("a", "../a.bin", 0, 4, 1))),
			"error: external data has a location that is not allowed"},
		{modelOf(graphOf(externalTensor("a", "/etc/passwd", 0, 4, 1))),
			"error: external data has a location that is not allowed"},
	} {
		must.Succeed(t, os.WriteFile(path, encode(t, one.model), 0o644))
		list, err := Locations(path)
		got := strings.Join(list, " ")
		if err != nil {
			got = "error: " + strings.TrimPrefix(err.Error(), path+": ")
		}
		if want, isError := strings.CutPrefix(one.want, "error: "); isError && (err == nil || !strings.Contains(got, want)) ||
			!isError && (got != one.want || !slices.IsSorted(list)) {
			t.Errorf("found %q, want %q", got, one.want)
		}
	}
	must.Succeed(t, os.WriteFile(path, []byte("<html>"), 0o644))
	must.Fail(t, must.Error(Locations(path)), path+": ")
	if _, err := Locations(path, Limits{ExternalFiles: 1}); err == nil {
		t.Error("no error")
	}
	must.Succeed(t, os.WriteFile(path, encode(t, inner), 0o644))
	must.Fail(t, must.Error(Locations(path, Limits{ExternalFiles: 2})), "has too many external data files")
}
