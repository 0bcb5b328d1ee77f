package trial

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/sessions"
	"github.com/opgraft/graft/internal/must"
)

// wrong claims that GELU is what Tanh computes.
const wrong = `operators:
  - name: FusedGeluForTanh
    replaces: {pattern: {inputs: [x], outputs: [y], nodes: [{op: Tanh, in: [x], out: [y]}]}}
    with: {nodes: [{op: FusedGelu, domain: graft, in: [x], out: [y]}]}
    cost: {bandwidth: 0.9, flops: 0.5, overhead_us: 1}
`

func TestMain(m *testing.M) {
	worker.Main(Tasks())
	os.Exit(m.Run())
}

// load loads fused-gelu with the claim.
func load(t *testing.T) *loaded.Set {
	t.Helper()
	set, err := loaded.Load([]string{folder(t)}, true)
	if err != nil {
		t.Fatal(err, set)
	}
	return set
}

// folder has fused-gelu with the claim, and is the only one.
func folder(t *testing.T) string {
	t.Helper()
	from := filepath.Join(os.Getenv(discovery.PathVariable), "fused-gelu")
	folder := t.TempDir()
	for _, name := range []string{manifest.FileName, "libfused_gelu.so"} {
		b := must.Value(os.ReadFile(filepath.Join(from, name)))(t)
		if name == manifest.FileName {
			b = bytes.Replace(b, []byte("operators:\n"), []byte(wrong), 1)
		}
		must.Succeed(t, os.WriteFile(filepath.Join(folder, name), b, 0o644))
	}
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	t.Setenv(discovery.PathVariable, "")
	return folder
}

// modelOf is y = gelu(x), and z = op(x) for each of the operators.
func modelOf(t *testing.T, ops ...string) []byte {
	t.Helper()
	shape := &onnx.Shape{}
	for _, d := range []string{"batch_size", "sequence_length"} {
		shape.Dim = append(shape.Dim, &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimParam{DimParam: d}})
	}
	value := func(name string) *onnx.ValueInfo {
		return &onnx.ValueInfo{Name: proto.String(name),
			Type: &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: &onnx.Type_TensorType{
				ElemType: proto.Int32(int32(onnx.Tensor_FLOAT)), Shape: shape}}}}
	}
	node := func(op, out string, in ...string) *onnx.Node {
		return &onnx.Node{OpType: proto.String(op), Name: proto.String(op + "_" + out), Input: in, Output: []string{out}}
	}
	constant := func(name string, x float32) *onnx.Tensor {
		return &onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(onnx.Tensor_FLOAT)),
			FloatData: []float32{x}}
	}
	g := &onnx.Graph{Name: proto.String("test"), Input: []*onnx.ValueInfo{value("x")},
		Output: []*onnx.ValueInfo{value("y")},
		Node: []*onnx.Node{node("Div", "a", "x", "sqrt2"), node("Erf", "b", "a"), node("Add", "c", "b", "one"),
			node("Mul", "d", "x", "c"), node("Mul", "y", "d", "half")},
		Initializer: []*onnx.Tensor{constant("sqrt2", 1.4142135624), constant("one", 1), constant("half", 0.5)}}
	for _, op := range ops {
		out := "z" + strings.ToLower(op)
		g.Node, g.Output = append(g.Node, node(op, out, "x")), append(g.Output, value(out))
	}
	b := must.Value(proto.Marshal(&onnx.Model{IrVersion: proto.Int64(10), Graph: g,
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(18)}}}))(t)
	return b
}

// TestWrongOperatorsAreLeftOut: what answers otherwise than the model is taken out with the reason, the rest stays, and
// the program gets right answers.
func TestWrongOperatorsAreLeftOut(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := load(t)
	for _, c := range []struct {
		name     string
		all      bool
		config   map[string]string
		ops      []string
		replaced int
		right    bool
		warnings int
	}{
		{"not asked for", false, nil, []string{"Tanh"}, 2, false, 0},
		{"for all sessions", true, nil, []string{"Tanh"}, 1, true, 1},
		{"for this session", false, map[string]string{Config: "1"}, []string{"Tanh", "Neg"}, 1, true, 1},
		{"not for this session", true, map[string]string{Config: "0"}, []string{"Tanh"}, 2, false, 0},
		{"nothing wrong", true, nil, nil, 1, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			s := &sessions.Patcher{Plugins: set.Plugins, Options: plan.Options{Force: true},
				Logger: slog.New(slog.NewTextHandler(&log, nil))}
			p := &Patcher{Sessions: s, All: c.all}
			content := modelOf(t, c.ops...)
			x, err := session.FromBytes(l, content, session.Options{Config: c.config, Patcher: p.Patch})
			must.Succeed(t, err)
			defer x.Close()
			plain := must.Value(session.FromBytes(l, content, session.Options{Unpatched: true}))(t)
			defer plain.Close()
			if !strings.Contains(log.String(), fmt.Sprintf("replaced=%d ", c.replaced)) {
				t.Errorf("not %d replaced: %s", c.replaced, log.String())
			}
			in := must.Value(ort.NewTensor(l, []int64{1, 3}, []float32{-1, 0.5, 2}))(t)
			defer in.Close()
			right := true
			var answers [2][]*ort.Value
			for i, s := range []*session.Session{x, plain} {
				if answers[i], err = s.Run(context.Background(), map[string]*ort.Value{"x": in}); err != nil {
					t.Fatal(err)
				}
				defer closeAll(answers[i])
			}
			for i := range answers[0] {
				a, _ := ort.Data[float32](answers[0][i])
				b, _ := ort.Data[float32](answers[1][i])
				right = right && slices.EqualFunc(a, b, func(a, b float32) bool { return a-b < 1e-5 && b-a < 1e-5 })
			}
			must.Equal(t, right, c.right)
			if strings.Count(log.String(), "level=WARN") != c.warnings ||
				c.warnings > 0 && !strings.Contains(log.String(), "blocks=Tanh_ztanh") {
				t.Errorf("logged %s", log.String())
			}
		})
	}
}

// TestRandomNumbers: of a model that draws numbers, others in each session, nothing can be verified, and a session
// that was to be is the model's own.
func TestRandomNumbers(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	s := &sessions.Patcher{Plugins: load(t).Plugins, Options: plan.Options{Force: true}}
	x, err := session.FromBytes(l, modelOf(t, "RandomUniformLike"),
		session.Options{Patcher: (&Patcher{Sessions: s, All: true}).Patch})
	if err == nil {
		x.Close()
	}
	must.Fail(t, err, "RandomUniformLike_zrandomuniformlike draws random numbers without a seed")
}
