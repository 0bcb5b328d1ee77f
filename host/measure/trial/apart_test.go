package trial

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/internal/must"
)

// TestApart: a child process says of each block whether a session with its operator answers as the model.
func TestApart(t *testing.T) {
	t.Setenv(plugin.UnverifiedVariable, "1")
	path := filepath.Join(t.TempDir(), "model.onnx")
	must.Succeed(t, os.WriteFile(path, modelOf(t, "Tanh", "Neg"), 0o644))
	j := Job{Model: path, Plan: map[string]string{"Mul_y": "FusedGelu", "Erf_b": "FusedGelu",
		"Tanh_ztanh": "FusedGeluForTanh"}, Folders: []string{folder(t)}}
	v := must.Value(Apart(t.Context(), j))(t)
	if len(v.Verified) != 1 || len(v.Left) != 1 || !strings.Contains(v.Left["Tanh_ztanh"], "output ztanh: off by up to ") {
		t.Errorf("%+v", v)
	}
	delete(j.Plan, "Tanh_ztanh")
	if v, err := Apart(t.Context(), j); err != nil || len(v.Verified) != 1 || len(v.Left) != 0 {
		t.Errorf("%+v, %v", v, err)
	}
	j.Plan = nil
	if v, err := Apart(t.Context(), j); err != nil || len(v.Verified) != 0 {
		t.Errorf("nothing placed: %+v, %v", v, err)
	}

	must.Succeed(t, os.WriteFile(path, slices.Concat(modelOf(t), []byte("\x08")), 0o644))
	j.Plan = map[string]string{"Tanh_ztanh": "FusedGeluForTanh"}
	if _, err := Apart(t.Context(), j); !errors.Is(err, worker.ErrTask) ||
		!strings.HasPrefix(err.Error(), path+": its answers could not be verified: ") {
		t.Errorf("a model that cannot be read: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	must.Fail(t, must.Error(Apart(over, j)), context.Canceled)
}
