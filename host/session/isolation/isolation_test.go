package isolation

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/hook"
	"github.com/opgraft/graft/host/ort/operator"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/internal/must"
)

func TestMain(m *testing.M) {
	plugintest.Main(m, func() { worker.Main(Tasks()) }) // this executable is its own worker
}

// What the fixture does in a run whose first number asks for it.
const (
	crash   = 1001
	aborts  = 1002
	exits   = 1003
	hangs   = 1004
	endless = 1006
)

// toy is the fixture, isolated. Each test has a folder of its own, and so its own counts.
func toy(t testing.TB, o Options) *Isolated {
	t.Helper()
	library := plugintest.Build(t, "-DASKED")
	folder := plugintest.Write(t, filepath.Join(t.TempDir(), "toy"), plugintest.Manifest, library)
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	p := must.Value(Open(folder, plugin.OpenOptions{AcceptUnverified: true}, o))(t)
	return For(p)
}

// scaled is y = x + 2x, of which an isolated operator does the doubling where a domain is given.
func scaled(t testing.TB, domain string) []byte {
	node := func(op, domain string, in []string, out string) *onnx.Node {
		return &onnx.Node{OpType: proto.String(op), Domain: proto.String(domain), Input: in, Output: []string{out}}
	}
	double := node("Add", "", []string{"x", "x"}, "d")
	m := &onnx.Model{IrVersion: proto.Int64(8),
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(17)}}}
	if domain != "" {
		double = node("Scale", domain, []string{"x"}, "d")
		m.OpsetImport = append(m.OpsetImport, &onnx.OperatorSet{Domain: proto.String(domain), Version: proto.Int64(1)})
	}
	value := func(name string) *onnx.ValueInfo {
		return &onnx.ValueInfo{Name: proto.String(name), Type: graph.TensorType(onnx.Tensor_FLOAT, "n")}
	}
	m.Graph = &onnx.Graph{Name: proto.String("scaled"),
		Node:  []*onnx.Node{double, node("Add", "", []string{"x", "d"}, "y")},
		Input: []*onnx.ValueInfo{value("x")}, Output: []*onnx.ValueInfo{value("y")}}
	b := must.Value(proto.Marshal(m))(t)
	return b
}

// newSession is one whose doubling x does, with a way back to the model unless it is strict.
func newSession(t testing.TB, x *Isolated, strict bool) *session.Session {
	t.Helper()
	l := must.Value(ort.FindAndOpen(""))(t)
	operators := must.Value(x.Operators(l))(t)
	plain := scaled(t, "")
	h := hook.Hook{Strict: strict, Logger: x.options.Logger, Patcher: func(r session.Request) (*session.Patch, error) {
		p := &session.Patch{Model: scaled(t, manifest.Domain),
			Domains: []operator.Domain{{Name: manifest.Domain, Operators: operators}}, Apart: x}
		if r.WayBack {
			p.Plain = &session.Plain{Model: func() ([]byte, func() error, error) {
				return plain, func() error { return nil },
					nil
			}}
		}
		return p, nil
	}}
	must.Succeed(t, hook.Install(l, h))
	s := must.Value(session.FromBytes(l, plain, session.Options{IntraOpThreads: 1}))(t)
	must.Succeed(t, hook.Uninstall(l))
	t.Cleanup(s.Close)
	return s
}

// run is a run.
func run(t testing.TB, s *session.Session, x ...float32) ([]float32, error) {
	t.Helper()
	l := must.Value(ort.FindAndOpen(""))(t)
	in := must.Value(ort.NewTensor(l, []int64{int64(len(x))}, x))(t)
	defer in.Close()
	out, err := s.Run(context.Background(), map[string]*ort.Value{"x": in})
	if err != nil {
		return nil, err
	}
	defer out[0].Close()
	y, err := ort.Data[float32](out[0])
	return slices.Clone(y), err
}

// right runs and compares.
func right(t testing.TB, s *session.Session, x ...float32) {
	t.Helper()
	want := make([]float32, len(x))
	for i, v := range x {
		want[i] = 3 * v
	}
	must.Equal(t, must.Value(run(t, s, x...))(t, x), want, x)
}

// stat is what was counted of x.
func stat(x *Isolated) Stat {
	for _, s := range Stats() {
		if s.Plugin == x.name && s.Calls == x.calls.Load() && s.Crashes == x.crashes.Load() {
			return s
		}
	}
	return Stat{}
}

// ready waits for a worker.
func ready(t testing.TB, x *Isolated) {
	t.Helper()
	for range 3000 {
		if x.Ready() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("no worker is there after 30 s")
}

// TestCalls: a worker does the operator, for no element and for many.
func TestCalls(t *testing.T) {
	x := toy(t, Options{})
	s := newSession(t, x, true)
	right(t, s)
	right(t, s, 1, -2, 3)
	right(t, s, slices.Repeat([]float32{0.5, 4}, 1<<16)...)
	if got := stat(x); got.Calls != 3 || got.Crashes != 0 || got.Instead != 0 {
		t.Errorf("counted %+v", got)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil || strings.Contains(string(maps), "libtoy") {
		t.Errorf("the library is loaded here (%v)", err)
	}
}

// TestEnds: whatever ends a worker, the program gets the model's answer, and the next call is that of another worker.
func TestEnds(t *testing.T) {
	for name, asked := range map[string]float32{"a crash": crash, "an abort": aborts, "an exit": exits, "a kill": 1007,
		"a header of ones": 1005, "too large a shape": 1008, "a place beyond": 1009, "a negative shape": 1010,
		"another type": 1011,
		"a rank of 17": 1012, "no tensor": 1013, "a place in the header": 1016, "an answer of another call": 1015} {
		t.Run(name, func(t *testing.T) {
			x := toy(t, Options{})
			s := newSession(t, x, false)
			right(t, s, 1, 2)
			right(t, s, asked, 2)
			got := stat(x)
			if got.Crashes != 1 || got.Instead != 1 {
				t.Errorf("after it: %+v", got)
			}
			ready(t, x)
			right(t, s, 3, 4)
			if after := stat(x); after.Calls != got.Calls+1 || after.Crashes != 1 || after.Gone {
				t.Errorf("counted %+v", after)
			}
		})
	}
}

// TestHang: a call without an answer ends its worker.
func TestHang(t *testing.T) {
	x := toy(t, Options{Deadline: 2 * time.Second})
	s := newSession(t, x, false)
	right(t, s, hangs)
	if got := stat(x); got.Crashes != 1 || got.Hangs != 1 || got.Instead != 1 {
		t.Errorf("counted %+v", got)
	}
	ready(t, x)
	right(t, s, 5)
}

// TestStrict: without a way back the error is the run's, in words, and the next run is well.
func TestStrict(t *testing.T) {
	x := toy(t, Options{})
	s := newSession(t, x, true)
	_, err := run(t, s, crash)
	var e *ort.Error
	if !errors.As(err, &e) || e.Code != ort.CodeEngineError ||
		!strings.Contains(err.Error(), "was ended by SIGSEGV (segmentation fault)") {
		t.Errorf("got %v", err)
	}
	ready(t, x)
	right(t, s, 5)
}

// TestGivenUp: after as many crashes as are borne the session runs unpatched.
func TestGivenUp(t *testing.T) {
	x := toy(t, Options{Crashes: 2})
	s := newSession(t, x, false)
	before := hook.Reverted()
	for range 2 {
		ready(t, x)
		right(t, s, crash)
	}
	calls := stat(x).Calls
	right(t, s, 1)
	right(t, s, 2)
	if got := stat(x); !got.Gone || got.Calls != calls || got.Crashes != 2 || hook.Reverted() != before+1 {
		t.Errorf("counted %+v, %d reverted", got, hook.Reverted()-before)
	}
	must.Fail(t, x.Gone(), "ended its worker 2 times, and is not run again: ")
}

// TestInPlace: a run whose output has its place in the memory of an input could not be repeated, and is the model's.
func TestInPlace(t *testing.T) {
	x := toy(t, Options{})
	s := newSession(t, x, false)
	l := must.Value(ort.FindAndOpen(""))(t)
	for _, first := range []float32{2, crash} {
		v := must.Value(ort.NewTensor(l, []int64{2}, []float32{first, 3}))(t)
		defer v.Close()
		must.Succeed(t, s.RunInto(context.Background(), map[string]*ort.Value{"x": v}, []string{"y"}, []*ort.Value{v}))
		must.Equal(t, must.Value(ort.Data[float32](v))(t), []float32{3 * first, 9})
	}
	if got := stat(x); got.Instead != 2 || got.Calls != 0 || got.Crashes != 0 {
		t.Errorf("counted %+v", got)
	}
}

// TestLibraryThatIsReplaced: a worker that is started again loads the bytes with which the plugin was opened, or
// nothing.
func TestLibraryThatIsReplaced(t *testing.T) {
	x := toy(t, Options{})
	path := filepath.Join(x.folder, "libtoy.so")
	first := plugintest.ReadFile(t, path)
	again := func() error {
		t.Helper()
		x.mu.Lock()
		x.forget()
		x.notBefore = time.Time{}
		x.mu.Unlock()
		l, err := x.acquire()
		if err == nil {
			l.users.Done()
		}
		return err
	}
	plugintest.WriteFile(t, path, plugintest.ReadFile(t, plugintest.Build(t, "-DASKED", "-DCRASH_IN_CONSTRUCTOR")))
	must.Fail(t, again(), path+": found sha256 ", ", needed "+x.sha256+", with which it was opened before")
	plugintest.WriteFile(t, path, first)
	must.Succeed(t, again(), "the first one")
}

// TestHeld: a worker is held by what holds a plugin's first run.
func TestHeld(t *testing.T) {
	first := must.Value(worker.Start(t.Context(), worker.Options{Subject: "first run"}))(t)
	defer first.Close()
	l := must.Value(toy(t, Options{}).acquire())(t)
	defer l.users.Done()
	if got, want := l.child.Layers(), first.Layers(); !slices.Equal(got, want) {
		t.Errorf("%s; want %s", worker.Held(got), worker.Held(want))
	}
}
