package session_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/orttest"
	"github.com/opgraft/graft/host/ort/operator"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

func TestSessionDescribes(t *testing.T) {
	s := orttest.Session(t, orttest.Marshal(t, orttest.Identity(ort.Int64, "batch", 3, nil)), session.Options{})
	if in := s.Inputs(); len(in) != 1 || in[0].String() != "x: int64[batch, 3]" {
		t.Errorf("inputs %v", in)
	}
	s = orttest.Session(t, orttest.Marshal(t, sequence()), session.Options{})
	if out := s.Outputs(); len(out) != 1 || out[0].Kind != ort.KindSequence || out[0].String() != "y: sequence" {
		t.Errorf("outputs %v", out)
	}
}

// TestNamesInMessages: ONNX Runtime's own messages hold names of the model, and reach no terminal as they are.
func TestNamesInMessages(t *testing.T) {
	const mark = "GRAFT_TEST_MESSAGES"
	if os.Getenv(mark) != "" {
		m := orttest.Unary("Relu")
		m.Graph.Initializer = append(m.Graph.Initializer, &onnx.Tensor{Name: proto.String("\x1b[2J\ngraft: forged"),
			DataType: proto.Int32(int32(ort.Int64)), Int64Data: []int64{1}})
		orttest.Session(t, orttest.Marshal(t, m), session.Options{})
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestNamesInMessages$")
	cmd.Env = append(os.Environ(), mark+"=1")
	out := string(must.Value(cmd.CombinedOutput())(t))
	if !strings.Contains(out, `[W:onnxruntime:`) || !strings.Contains(out, `\x1b[2J\ngraft: forged`) ||
		strings.Contains(out, "\x1b") {
		t.Errorf("the program writes %q", out)
	}
}

func TestRunErrors(t *testing.T) {
	s := orttest.Session(t, orttest.Marshal(t, orttest.Unary("Relu")), session.Options{})
	x := must.Value(ort.NewTensor(library, []int64{1}, []float32{1}))(t)
	ctx := context.Background()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	closed := must.Value(ort.NewTensor(library, []int64{1}, []float32{1}))(t)
	closed.Close()
	wrong := must.Value(ort.NewTensor(library, []int64{1}, []int64{1}))(t)
	for _, c := range []struct {
		name    string
		ctx     context.Context
		inputs  map[string]*ort.Value
		outputs []string
		want    string
	}{
		{"unknown input", ctx, map[string]*ort.Value{"q": x}, nil,
			`no input or output "q", needed one of inputs [x: float32[n]]`},
		{"unknown output", ctx, map[string]*ort.Value{"x": x}, []string{"z"}, `no input or output "z"`},
		{"missing input", ctx, map[string]*ort.Value{}, nil, "onnxruntime: Run: "},
		{"wrong type", ctx, map[string]*ort.Value{"x": wrong}, nil, "Unexpected input data type"},
		{"closed input", ctx, map[string]*ort.Value{"x": closed}, nil, `input "x": onnxruntime: used after Close`},
		{"ended context", ended, map[string]*ort.Value{"x": x}, nil, "context canceled"},
	} {
		must.Fail(t, must.Error(s.Run(c.ctx, c.inputs, c.outputs...)), c.want)
	}
	s.Close()
	s.Close()
	must.Fail(t, must.Error(s.Run(ctx, map[string]*ort.Value{"x": x})), ort.ErrClosed)
	must.Fail(t, must.Error(s.NewBinding()), ort.ErrClosed)
}

// endless is a model that loops 2^62 times.
func endless() *onnx.Model {
	body := &onnx.Graph{Name: proto.String("body"),
		Node: []*onnx.Node{orttest.Node("Identity", []string{"go"}, []string{"go_on"}),
			orttest.Node("Identity", []string{"v"}, []string{"w"})},
		Input: []*onnx.ValueInfo{orttest.Value("i", orttest.TensorType(ort.Int64)),
			orttest.Value("go", orttest.TensorType(ort.Bool)),
			orttest.Value("v", orttest.TensorType(ort.Float32, "n"))},
		Output: []*onnx.ValueInfo{orttest.Value("go_on", orttest.TensorType(ort.Bool)),
			orttest.Value("w", orttest.TensorType(ort.Float32, "n"))}}
	m := orttest.Identity(ort.Float32, "n")
	m.Graph.Node = []*onnx.Node{orttest.Node("Loop", []string{"trips", "", "x"}, []string{"y"},
		&onnx.Attribute{Name: proto.String("body"), Type: onnx.Attribute_GRAPH.Enum(), G: body})}
	m.Graph.Initializer = []*onnx.Tensor{{Name: proto.String("trips"), DataType: proto.Int32(int32(ort.Int64)),
		Int64Data: []int64{1 << 62}}}
	return m
}

// TestRunEndsWithContext: a run that would take forever ends when its context does.
func TestRunEndsWithContext(t *testing.T) {
	s := orttest.Session(t, orttest.Marshal(t, endless()), session.Options{})
	x := must.Value(ort.NewTensor(library, []int64{1}, []float32{1}))(t)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	must.Fail(t, must.Error(s.Run(ctx, map[string]*ort.Value{"x": x})), context.DeadlineExceeded)
	var refusal *ort.Error
	b := must.Value(s.NewBinding())(t)
	defer b.Close()
	ctx, cancel2 := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel2()
	must.Succeed(t, errors.Join(b.Input("x", x), b.OutputTo("y", cpu(t))))
	if err := b.Run(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &refusal) {
		t.Errorf("binding: got %v, want the context's error and ONNX Runtime's", err)
	}
}

// TestConcurrentRuns shares a session between goroutines.
func TestConcurrentRuns(t *testing.T) {
	s := orttest.Session(t, orttest.Marshal(t, orttest.Unary("Neg")), session.Options{IntraOpThreads: 1})
	var workers sync.WaitGroup
	for g := range 4 {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for i := range 50 {
				orttest.Expect(t, "y", orttest.Run(t, s, float32(g), float32(i)), float32(-g), float32(-i))
			}
		}()
	}
	workers.Wait()
}

// TestOptions sets every option and checks those whose effect shows.
func TestOptions(t *testing.T) {
	dir := t.TempDir()
	o := session.Options{
		IntraOpThreads: 2, InterOpThreads: 2, Parallel: true, Optimization: session.OptimizeBasic,
		Config:          map[string]string{"session.intra_op.allow_spinning": "0"},
		FreeDimensions:  map[string]int64{"n": 2},
		OptimizedModel:  filepath.Join(dir, "optimized.onnx"),
		Profile:         filepath.Join(dir, "profile"),
		LogSeverity:     session.LogError,
		NoMemoryPattern: true, NoArena: true,
	}
	s := orttest.Session(t, orttest.Marshal(t, orttest.Unary("Neg")), o)
	must.Equal(t, s.Inputs()[0].String(), "x: float32[2]")
	orttest.Expect(t, "y", orttest.Run(t, s, 1, 2), -1, -2)
	must.Value(os.Stat(o.OptimizedModel))(t)
	s.Close()
	profiles, err := filepath.Glob(o.Profile + "*")
	if err != nil || len(profiles) != 1 {
		t.Fatalf("profiles %q, %v", profiles, err)
	}
	if b, err := os.ReadFile(profiles[0]); err != nil || !strings.Contains(string(b), "Neg") {
		t.Errorf("the profile has no Neg: %v", err)
	}
	for name, o := range map[string]session.Options{
		"no such file": {Libraries: []string{filepath.Join(dir, "none.so")}},
		"NoSuchEP":     {Providers: []session.Provider{{Name: "NoSuchEP", Options: map[string]string{"a": "b"}}}},
		"zero byte":    {Config: map[string]string{"a": "\x00"}},
		"is null":      {Domains: []operator.Domain{{Name: "d", Operators: []uintptr{0}}}},
	} {
		if _, err := session.FromBytes(library, orttest.Marshal(t, orttest.Unary("Neg")), o); err == nil ||
			name != "no such file" && !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	must.Fail(t, must.Error(session.FromBytes(library, nil, session.Options{})), "the model is empty")
}
