package hostile

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	onnxruntime "github.com/yalue/onnxruntime_go"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/internal/must"
)

// isolating enables a copy of the trap, isolated, whose crashes are counted from 0.
func isolating(t *testing.T, i graft.Isolation) *report {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "trap")
	must.Succeed(t, os.CopyFS(folder, os.DirFS(made.trap)))
	i.Plugins = []string{"trap"}
	return enable(t, graft.Options{Common: graft.Common{Folders: []string{folder}}, Isolation: i})
}

// feeding runs a session with 1, -2, 3, -4.
func feeding(t *testing.T, s *onnxruntime.DynamicAdvancedSession) ([]float32, error) {
	t.Helper()
	x := must.Value(onnxruntime.NewTensor(onnxruntime.NewShape(4), []float32{1, -2, 3, -4}))(t)
	defer x.Destroy()
	out := []onnxruntime.Value{nil}
	if err := s.Run([]onnxruntime.Value{x}, out); err != nil {
		return nil, err
	}
	defer out[0].Destroy()
	return append([]float32{}, out[0].(*onnxruntime.Tensor[float32]).GetData()...), nil
}

// near reports that answers are f of what is fed.
func near(y []float32, f func(float64) float64) bool {
	for i, x := range []float64{1, -2, 3, -4} {
		if len(y) != 4 || math.Abs(float64(y[i])-f(x)) > 1e-5 {
			return false
		}
	}
	return true
}

// TestIsolated: operators of an isolated plugin that crash, end their process or never return end no program. Each
// run has the model's answer, and when the plugin is given up sessions run unpatched.
func TestIsolated(t *testing.T) {
	for _, c := range []struct {
		op  string
		f   func(float64) float64
		how string
	}{{"Sin", math.Sin, "SIGSEGV"}, {"Tan", math.Tan, "exit code 0"}, {"Cos", math.Cos, "no answer within 2s"}} {
		path := write(t, filepath.Join(t.TempDir(), "model.onnx"), encode(t, simple(c.op)))
		log := isolating(t, graft.Isolation{Crashes: 2, CallDeadline: 2 * time.Second})
		reverted := graft.Reverted()
		s := must.Value(session(path))(t)
		for end := time.Now().Add(2 * time.Minute); graft.Reverted() == reverted; {
			if y, err := feeding(t, s); err != nil || !near(y, c.f) {
				t.Fatalf("%s: %v, %v", c.op, y, err)
			}
			if time.Now().After(end) {
				t.Fatalf("%s: after two minutes it is not given up: %+v", c.op, graft.IsolatedPlugins())
			}
		}
		if y, err := feeding(t, s); err != nil || !near(y, c.f) {
			t.Errorf("%s: %v, %v", c.op, y, err)
		}
		s.Destroy()
		warned := 0
		for _, l := range log.take(t) {
			if l.Level == "WARN" && strings.Contains(l.Reason, c.how) {
				warned++
			}
		}
		if warned != 3 { // the first crash, the last, the session
			t.Errorf("%s: %d warnings with %q, want 3", c.op, warned, c.how)
		}
		// A session that is made now does without it.
		if y, err := run(t, path); err != nil || !near(y, c.f) {
			t.Errorf("%s: a new session: %v, %v", c.op, y, err)
		}
		disable(t)
	}
}

// TestIsolatedErrors: errors that an isolated plugin's code returns are as those of any plugin.
func TestIsolatedErrors(t *testing.T) {
	for op, want := range map[string]string{"Relu": "the trap makes no kernels", "Neg": "the trap cannot run",
		"Floor": "ThrowNumber"} {
		path := write(t, filepath.Join(t.TempDir(), "model.onnx"), encode(t, simple(op)))
		f := map[string]func(float64) float64{"Relu": func(x float64) float64 { return max(x, 0) },
			"Neg": func(x float64) float64 { return -x }, "Floor": math.Floor}[op]
		log := isolating(t, graft.Isolation{})
		if y, err := run(t, path); err != nil || !near(y, f) {
			t.Errorf("%s: %v, %v", op, y, err)
		}
		warned := 0
		for _, l := range log.take(t) {
			if l.Level == "WARN" && strings.Contains(l.Reason, want) {
				warned++
			}
		}
		must.Equal(t, warned, 1, op, want)
		disable(t)
	}
}

// TestIsolatedForOneSession: a session asks for it, and others have the plugin's code here.
func TestIsolatedForOneSession(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "model.onnx"), encode(t, simple("Sin")))
	enable(t, graft.Options{})
	options := must.Value(onnxruntime.NewSessionOptions())(t)
	defer options.Destroy()
	must.Succeed(t, options.AddSessionConfigEntry(graft.ConfigIsolate, "trap"))
	s := must.Value(onnxruntime.NewDynamicAdvancedSession(path, []string{"x"}, []string{"y"}, options))(t)
	defer s.Destroy()
	if y, err := feeding(t, s); err != nil || !near(y, math.Sin) {
		t.Errorf("%v, %v", y, err)
	}
	var crashes int64
	for _, i := range graft.IsolatedPlugins() {
		crashes += i.Crashes
	}
	if crashes == 0 {
		t.Errorf("no worker crashed: %+v", graft.IsolatedPlugins())
	}
}

// TestIsolatedOptions: what isolation cannot mean is an error, in words.
func TestIsolatedOptions(t *testing.T) {
	crash := filepath.Join(t.TempDir(), "trap")
	must.Succeed(t, buildTrap(crash, "-DCRASH_IN_CONSTRUCTOR"))
	for _, c := range []struct {
		options graft.Options
		kind    error
		want    string
	}{
		{graft.Options{Isolation: graft.Isolation{Plugins: []string{"trap"}, Crashes: -1}}, graft.ErrOption,
			"Isolation.Crashes is -1, needed is a number from 1"},
		{graft.Options{Isolation: graft.Isolation{Plugins: []string{"trap"}, CallDeadline: -1}}, graft.ErrOption,
			"Isolation.CallDeadline is -1ns, needed is a time above 0"},
		{graft.Options{Isolation: graft.Isolation{Plugins: []string{"trip"}}}, graft.ErrNoPlugin,
			`no plugin "trip" is loaded; did you mean trap? graft plugin list shows all`},
		{graft.Options{Common: graft.Common{Folders: []string{crash}}, Isolation: graft.Isolation{Plugins: []string{"trap"}}},
			graft.ErrBadPlugin,
			"libtrap.so: it was ended by SIGSEGV (segmentation fault)"},
	} {
		c.options.Folders = append(c.options.Folders, made.trap)
		c.options.AcceptUnverified = true
		err := graft.EnableWith(c.options)
		must.Fail(t, err, c.kind, c.want)
		disable(t)
	}
}
