package comparison

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/measure/statistics"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

const tiny = "../../../models/tiny-gpt2/model.onnx"

// built are the plugins of this repository, as `make plugins` built them.
var built = sync.OnceValues(func() (*loaded.Set, error) {
	folder, err := filepath.Abs("../../../build/plugins")
	if err != nil {
		return nil, err
	}
	return loaded.Load([]string{folder}, true)
})

func plugins(t *testing.T) *loaded.Set {
	t.Helper()
	set := must.Value(built())(t)
	return set
}

// TestRun: a model against itself.
func TestRun(t *testing.T) {
	path := adder(t)
	var steps []string
	r, err := Run(context.Background(), library(t), noPlugins, path, Options{A: "none", B: "none", Warmup: 1, Rounds: 4,
		Inputs: inputs.Options{Seed: 3, Dims: map[string]int64{"rows": 2, "width": 5}},
		Step:   func(what string) { steps = append(steps, what) }})
	must.Succeed(t, err)
	if !r.Parity.OK || len(r.Parity.Outputs) != 1 || r.Parity.Outputs[0].Name != "y" ||
		r.Parity.Outputs[0].MaxAbsolute != 0 {
		t.Errorf("parity %+v", r.Parity)
	}
	if len(r.A.TimesMS) != 8 || len(r.B.TimesMS) != 8 || r.Rounds != 4 || r.Warmup != 1 || r.Seed != 3 {
		t.Errorf("%d and %d times of %d rounds, seed %d", len(r.A.TimesMS), len(r.B.TimesMS), r.Rounds, r.Seed)
	}
	if r.Speedup.Median != r.A.MedianMS/r.B.MedianMS || r.A.MedianMS != statistics.Median(r.A.TimesMS) {
		t.Errorf("%+v of %g and %g", r.Speedup, r.A.MedianMS, r.B.MedianMS)
	}
	e := r.Environment
	if e.MemoryBandwidthGB <= 0.1 || e.MemoryBandwidthGB > 1e5 || e.CPU == "" || e.Cores < 1 ||
		e.ONNXRuntime != library(t).Version() || e.Date == "" {
		t.Errorf("environment %+v", e)
	}
	must.Equal(t, steps, []string{"making inputs", "loading a: none", "loading b: none", "comparing answers", "timing",
		"measuring the machine"})
	text := must.Value(json.Marshal(r))(t)
	var keys struct {
		Version int `json:"schema_version"`
		Speedup struct {
			Median float64
			CI95   []float64
		}
		Parity struct {
			OK      bool
			Outputs []struct{ Name string }
		}
		A struct {
			TimesMS []float64 `json:"times_ms"`
		}
		Environment struct {
			Read float64 `json:"memory_bandwidth_gb_s"`
		}
	}
	must.Succeed(t, json.Unmarshal(text, &keys))
	if keys.Version != 2 || keys.Speedup.Median != r.Speedup.Median || len(keys.Speedup.CI95) != 2 || !keys.Parity.OK ||
		len(keys.Parity.Outputs) != 1 || !slices.Equal(keys.A.TimesMS, r.A.TimesMS) ||
		keys.Environment.Read != e.MemoryBandwidthGB {
		t.Errorf("JSON %s", text)
	}
}

// TestAnswersOfTwoModels: answers that differ are found and measured.
func TestAnswersOfTwoModels(t *testing.T) {
	r := must.Value(Answers(context.Background(), library(t), noPlugins, adder(t),
		Options{A: "none", B: "none", ModelB: tripler(t),
			Inputs: inputs.Options{Dims: map[string]int64{"rows": 3, "width": 4}}}))(t)
	if out := r.Parity.Outputs[0]; r.Parity.OK || out.OK || out.Disagree != 12 || out.MaxRelative < 0.4999 ||
		out.MaxRelative > 0.5001 {
		t.Errorf("3x against 2x gives %+v", out)
	}
}

// TestSides: none, auto, a plugin, a plan file, and names that mean nothing.
func TestSides(t *testing.T) {
	set := plugins(t)
	m := must.Value(model.Open(tiny))(t)
	defer m.Close()
	a := must.Value(patch.Analyse(t.Context(), m, set.Manifests(),
		set.Plan(plan.Options{Force: true, Plugins: []string{"flash-decode"}})))(t)
	for i := range a.Plan.Choices {
		if i >= 2 {
			a.Plan.Choices[i].Operator = nil // a plan of the first two blocks
		}
	}
	folder := t.TempDir()
	two, other := filepath.Join(folder, "two.json"), filepath.Join(folder, "plan")
	for _, path := range []string{two, other} {
		must.Succeed(t, plan.WriteFile(path, a.Plan))
	}
	wrong := filepath.Join(folder, "wrong.json")
	must.Succeed(t, os.WriteFile(wrong, []byte(`{"schema_version": 2, "choices": []}`), 0o644))
	cases := []struct {
		b        string
		force    bool
		replaced int
		plugins  []string
		want     string // of the error
	}{
		{b: "none", plugins: []string{}},
		{b: "flash-decode", force: true, replaced: 5, plugins: []string{"flash-decode"}},
		{b: two, replaced: 2, plugins: []string{"flash-decode"}},
		{b: other, replaced: 2, plugins: []string{"flash-decode"}},
		{b: "flash", want: `no plugin "flash" is loaded, found`},
		{b: "", want: "a side has no name"},
		{b: filepath.Join(folder, "nowhere.json"), want: "cannot read the plan file"},
		{b: wrong, want: "has schema_version 2, need 1"},
	}
	for _, c := range cases {
		t.Run(filepath.Base(c.b), func(t *testing.T) {
			r, err := Answers(context.Background(), library(t), set, tiny,
				Options{A: "none", B: c.b, Force: c.force, Inputs: inputs.Options{Seed: 1, Dims: map[string]int64{"past": 9}}})
			if c.want != "" {
				must.Fail(t, err, c.want)
				return
			}
			must.Succeed(t, err)
			if r.B.Replaced != c.replaced || !slices.Equal(r.B.Plugins, c.plugins) || r.A.Replaced != 0 {
				t.Errorf("%d replaced by %v, want %d by %v", r.B.Replaced, r.B.Plugins, c.replaced, c.plugins)
			}
			if !r.Parity.OK {
				t.Errorf("answers differ: %+v", r.Parity)
			}
		})
	}
	r := must.Value(Answers(context.Background(), library(t), set, tiny,
		Options{A: "none", B: "auto", Force: true, Inputs: inputs.Options{Seed: 1}}))(t)
	if r.B.Replaced < 5 || !slices.Contains(r.B.Plugins, "flash-decode") || !r.Parity.OK {
		t.Errorf("auto: %d replaced by %v, parity %v", r.B.Replaced, r.B.Plugins, r.Parity.OK)
	}
}

// TestMissingExternalData: the model and the file that it lacks are named.
func TestMissingExternalData(t *testing.T) {
	f := must.Value(models.Lookup("optimum", "bert"))(t)
	path := filepath.Join(t.TempDir(), "model.onnx")
	must.Succeed(t, f.WriteExternal(path, 1))
	must.Succeed(t, os.Remove(path+".data"))
	want := path + `: cannot find the external data file "model.onnx.data"`
	if _, err := Run(context.Background(), library(t), noPlugins, path, Options{A: "none", B: "none"}); !errors.Is(err,
		model.ErrExternalData) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestRunErrors(t *testing.T) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	broken := filepath.Join(t.TempDir(), "broken.onnx")
	must.Succeed(t, os.WriteFile(broken, []byte("\x08\x08\x3a\xff\xff"), 0o644))
	if _, err := Run(over, library(t), noPlugins, adder(t), Options{A: "none", B: "none"}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("cancelled: error %v", err)
	}
	if _, err := Run(context.Background(), library(t), noPlugins, broken, Options{A: "none", B: "none"}); err == nil ||
		!strings.Contains(err.Error(), broken) {
		t.Errorf("broken model: error %v", err)
	}
	refused := write(t, "y = NoSuchOperator(x)")
	if _, err := Run(context.Background(), library(t), noPlugins, refused, Options{A: "none", B: "none"}); err == nil ||
		!strings.HasPrefix(err.Error(), "a (none): ") || !strings.Contains(err.Error(), "NoSuchOperator") {
		t.Errorf("model that ONNX Runtime refuses: error %v", err)
	}
}
