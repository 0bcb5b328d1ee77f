package comparison

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/session/isolation"
	"github.com/opgraft/graft/internal/must"
)

func TestMain(m *testing.M) {
	tasks := Tasks()
	maps.Copy(tasks, isolation.Tasks())
	worker.Main(tasks)
	os.Exit(m.Run())
}

// TestApart: in a child process a comparison says what it says in this one.
func TestApart(t *testing.T) {
	o := Options{A: "none", B: "none", Warmup: 1, Rounds: 3, Unoptimized: true,
		Inputs: inputs.Options{Seed: 3, Dims: map[string]int64{"rows": 2, "width": 5}}}
	path := adder(t)
	here := must.Value(Run(t.Context(), library(t), noPlugins, path, o))(t)
	var told [][2]int64
	o.Progress = func(done, total int64) { told = append(told, [2]int64{done, total}) }
	folder := must.Value(filepath.Abs("../../../build/plugins"))(t)
	there := must.Value(Apart(t.Context(), Job{Model: path, Options: o, Folders: []string{folder}}))(t)
	if len(there.A.TimesMS) != 6 || len(there.B.TimesMS) != 6 || there.Rounds != 3 || there.Warmup != 1 ||
		there.Environment.ONNXRuntime != library(t).Version() {
		t.Errorf("%+v", there)
	}
	if !slices.EqualFunc(here.Parity.Outputs, there.Parity.Outputs, func(p, q OutputParity) bool {
		return p.Name == q.Name && p.OK == q.OK && *p.Cosine == *q.Cosine && *p.Unoptimized.Cosine == *q.Unoptimized.Cosine &&
			slices.Equal(p.Shape, q.Shape)
	}) || here.Workload.String() != there.Workload.String() || !there.Parity.OK {
		t.Errorf("%+v in the child, %+v here", there, here)
	}
	if len(told) == 0 || told[len(told)-1] != [2]int64{3, 3} {
		t.Errorf("progress %v", told)
	}
}

// TestApartErrors: errors come out of the child as they went into it.
func TestApartErrors(t *testing.T) {
	folder := must.Value(filepath.Abs("../../../build/plugins"))(t)
	broken := filepath.Join(t.TempDir(), "broken.onnx")
	must.Succeed(t, os.WriteFile(broken, []byte("\x08\x08\x3a\xff\xff"), 0o644))
	for _, c := range []struct {
		path, b string
		kind    error
	}{
		{path: adder(t), b: "auto", kind: ErrSame},
		{path: adder(t), b: "no-such-plugin"},
		{path: broken, b: "none"},
		{path: write(t, "y = NoSuchOperator(x)"), b: "none"},
	} {
		o := Options{A: "none", B: c.b, Rounds: 1, Warmup: 1}
		_, want := Run(t.Context(), library(t), plugins(t), c.path, o)
		_, got := Apart(t.Context(), Job{Model: c.path, Options: o, Folders: []string{folder}})
		if want == nil || got == nil || got.Error() != want.Error() || c.kind != nil && !errors.Is(got, c.kind) {
			t.Errorf("%s: %v in the child, %v here", c.b, got, want)
			continue
		}
		x, errX := diagnostic.JSON(want)
		y, errY := diagnostic.JSON(got)
		if string(x) != string(y) || errX != nil || errY != nil {
			t.Errorf("%s: %s in the child, %s here", c.b, y, x)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Apart(over, Job{Model: adder(t), Options: Options{A: "none", B: "none"}}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	must.Fail(t, must.Error(Apart(t.Context(),
		Job{Model: adder(t), Options: Options{A: "none", B: "none"}, Runtime: broken})), broken)
}

// TestIsolatedSide: a plugin with its kernels in a worker of the child's gives the answers that it gives in the child.
func TestIsolatedSide(t *testing.T) {
	folder := must.Value(filepath.Abs("../../../build/plugins"))(t)
	t.Setenv("GRAFT_PLUGIN_UNVERIFIED", "1")
	job := Job{Model: "../../../models/encoders/embedder/onnx/model.onnx", Folders: []string{folder},
		Options: Options{A: "fused-gelu", B: "isolated:fused-gelu", Force: true, Warmup: 1, Rounds: 1, Threads: 1},
		Memory:  true}
	r := must.Value(Apart(t.Context(), job))(t)
	if r.B.Name != "isolated:fused-gelu" || r.A.Replaced == 0 || r.B.Replaced != r.A.Replaced ||
		!slices.Equal(r.B.Plugins, []string{"fused-gelu"}) {
		t.Errorf("%+v and %+v", r.A, r.B)
	}
	for _, s := range []Side{r.A, r.B} {
		if s.Footprint == nil || s.Footprint.PeakRSSBytes == 0 {
			t.Errorf("the memory of %s is %+v", s.Name, s.Footprint)
		}
	}
	for _, o := range r.Parity.Outputs {
		must.Equal(t, o.MaxAbsolute, 0, o.Name)
	}
	job.Memory = false
	for side, want := range map[string]string{"isolated:none": `no plugin "none" is loaded`,
		"isolated:el-attention": "cannot isolate plugin el-attention: "} {
		job.Options.B = side
		must.Fail(t, must.Error(Apart(t.Context(), job)), want)
	}
}
