package driven

import (
	"bytes"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/operator"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/sessions"
	"github.com/opgraft/graft/internal/must"
)

func value(name string, element onnx.Tensor_DataType, shape ...int64) *onnx.ValueInfo {
	dims := []*onnx.Shape_Dim{}
	for _, n := range shape {
		dims = append(dims, &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimValue{DimValue: n}})
	}
	return &onnx.ValueInfo{Name: proto.String(name),
		Type: &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: &onnx.Type_TensorType{
			ElemType: proto.Int32(int32(element)), Shape: &onnx.Shape{Dim: dims}}}}}
}

func integers(pairs map[string]int64) (list []*onnx.Attribute) {
	for name, i := range pairs {
		list = append(list, &onnx.Attribute{Name: proto.String(name), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(i)})
	}
	return list
}

func imported(domain string, version int64) *onnx.OperatorSet {
	return &onnx.OperatorSet{Domain: proto.String(domain), Version: proto.Int64(version)}
}

// attending is a model whose attention flash-decode replaces.
func attending() *onnx.Model {
	in := value("x", onnx.Tensor_FLOAT, 1, 4, 16)
	return &onnx.Model{IrVersion: proto.Int64(10),
		OpsetImport: []*onnx.OperatorSet{imported("", 18), imported("com.microsoft", 1)},
		Graph: &onnx.Graph{Name: proto.String("g"), Input: []*onnx.ValueInfo{in},
			Output: []*onnx.ValueInfo{value("y", onnx.Tensor_FLOAT, 1, 4, 16)},
			Node: []*onnx.Node{{Name: proto.String("attention"), OpType: proto.String("MultiHeadAttention"),
				Domain: proto.String("com.microsoft"),
				Input:  []string{"x", "x", "x"}, Output: []string{"y"}, Attribute: integers(map[string]int64{"num_heads": 2})}}}}
}

// brought is a node of CachedAttention whose offset, added to what it takes of a block, wraps: it would write
// the first floats of its query before the pool.
func brought() *onnx.Node {
	return &onnx.Node{OpType: proto.String("CachedAttention"), Domain: proto.String("graft"),
		Input:     []string{"x", "x", "x", "pool", "lists", "list", "list", "list"},
		Output:    []string{"z"},
		Attribute: integers(map[string]int64{"num_heads": 1, "head_size": 16, "offset": math.MaxInt64 - 63})}
}

// bringing are models that bring something of graft's domain beside a block that is replaced.
func bringing() map[string]*onnx.Model {
	list := func(name string, shape ...int64) *onnx.Tensor {
		n := int64(1)
		for _, size := range shape {
			n *= size
		}
		return &onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(onnx.Tensor_INT32)), Dims: shape,
			RawData: make([]byte, 4*n)}
	}
	change := func(f func(*onnx.Model)) *onnx.Model {
		m := attending()
		m.Graph.Initializer = append(m.Graph.Initializer, list("lists", 1, 8), list("list", 4),
			&onnx.Tensor{Name: proto.String("pool"), DataType: proto.Int32(int32(onnx.Tensor_FLOAT)), Dims: []int64{1, 512},
				RawData: make([]byte, 4*512)})
		f(m)
		return m
	}
	within := func(n *onnx.Node, out string) *onnx.Node {
		branch := func(n *onnx.Node) *onnx.Graph {
			out := &onnx.ValueInfo{Name: proto.String(n.Output[0]), Type: &onnx.Type{Value: &onnx.Type_TensorType_{
				TensorType: &onnx.Type_TensorType{ElemType: proto.Int32(int32(onnx.Tensor_FLOAT))}}}}
			return &onnx.Graph{Name: proto.String("b"), Node: []*onnx.Node{n}, Output: []*onnx.ValueInfo{out}}
		}
		other := &onnx.Node{OpType: proto.String("Identity"), Input: []string{"x"}, Output: []string{"not " + out}}
		return &onnx.Node{OpType: proto.String("If"), Input: []string{"yes"}, Output: []string{out},
			Attribute: []*onnx.Attribute{
				{Name: proto.String("then_branch"), Type: onnx.Attribute_GRAPH.Enum(), G: branch(n)},
				{Name: proto.String("else_branch"), Type: onnx.Attribute_GRAPH.Enum(), G: branch(other)}}}
	}
	function := func(domain string, n *onnx.Node) *onnx.Function {
		return &onnx.Function{Domain: proto.String(domain), Name: proto.String("FlashDecode"), Input: []string{"x"},
			Output: []string{"z"},
			Node:   []*onnx.Node{n}, OpsetImport: []*onnx.OperatorSet{imported("", 18), imported("graft", 1)}}
	}
	imports := func(m *onnx.Model, more ...string) {
		for _, domain := range append(more, "graft") {
			m.OpsetImport = append(m.OpsetImport, imported(domain, 1))
		}
	}
	return map[string]*onnx.Model{
		"a node": change(func(m *onnx.Model) { imports(m); m.Graph.Node = append(m.Graph.Node, brought()) }),
		"a node in a branch": change(func(m *onnx.Model) {
			imports(m)
			m.Graph.Initializer = append(m.Graph.Initializer,
				&onnx.Tensor{Name: proto.String("yes"), DataType: proto.Int32(int32(onnx.Tensor_BOOL)), RawData: []byte{1}})
			m.Graph.Node = append(m.Graph.Node, within(within(brought(), "v"), "w"))
		}),
		"a node of an operator that models hold": change(func(m *onnx.Model) {
			imports(m)
			m.Graph.Node = append(m.Graph.Node,
				&onnx.Node{OpType: proto.String("FlashDecode"), Domain: proto.String("graft"), Input: []string{"x", "x", "x"},
					Output: []string{"z"}, Attribute: integers(map[string]int64{"num_heads": math.MaxInt64})})
		}),
		"a node in a function": change(func(m *onnx.Model) {
			imports(m, "mine")
			m.Functions = append(m.Functions, function("mine", brought()))
			m.Graph.Node = append(m.Graph.Node,
				&onnx.Node{OpType: proto.String("FlashDecode"), Domain: proto.String("mine"), Input: []string{"x"},
					Output: []string{"z"}})
		}),
		"a function": change(func(m *onnx.Model) {
			m.Functions = append(m.Functions,
				function("graft", &onnx.Node{OpType: proto.String("Exp"), Input: []string{"x"}, Output: []string{"z"}}))
		}),
		"an import": change(func(m *onnx.Model) { imports(m) }),
		"an import of a function": change(
			func(m *onnx.Model) { m.Functions = append(m.Functions, function("mine", attending().Graph.Node[0])) }),
	}
}

func plugins(t *testing.T) *loaded.Set {
	t.Helper()
	set := must.Value(loaded.Load(nil, true))(t)
	return set
}

// session makes a session of a model through graft, with what was handed over for it and what was logged.
func newSession(t *testing.T, set *loaded.Set, m *onnx.Model) (p *session.Patch, log string, err error) {
	t.Helper()
	l := must.Value(ort.FindAndOpen(""))(t)
	data := must.Value(proto.Marshal(m))(t)
	var lines bytes.Buffer
	patcher := &sessions.Patcher{Plugins: set.Plugins, Options: plan.Options{Force: true},
		Logger: slog.New(slog.NewTextHandler(&lines, nil))}
	if set == nothing {
		patcher = nil
	}
	o := session.Options{Unpatched: patcher == nil}
	if patcher != nil {
		o.Patcher = func(r session.Request) (*session.Patch, error) {
			var err error
			p, err = patcher.Patch(r)
			return p, err
		}
	}
	s, err := session.FromBytes(l, data, o)
	if err == nil {
		s.Close()
	}
	return p, lines.String(), err
}

// opening is how an error begins; ONNX Runtime ends some with a list in no order.
func opening(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()[:min(len(err.Error()), 120)]
}

// nothing is graft left out.
var nothing = &loaded.Set{}

// TestModelsThatBringOperators: a model that brings anything of graft's domain is left as it is, with the
// reason, and ends as it does without graft.
func TestModelsThatBringOperators(t *testing.T) {
	set := plugins(t)
	if p, log, err := newSession(t, set, attending()); err != nil || p == nil {
		t.Fatalf("without anything: %v, %v; %s", p, err, log)
	}
	for name, m := range bringing() {
		t.Run(name, func(t *testing.T) {
			_, _, plain := newSession(t, nothing, m)
			p, log, err := newSession(t, set, m)
			if p != nil || opening(err) != opening(plain) {
				t.Errorf("patched %t, %v; without graft %v", p != nil, err, plain)
			}
			if !strings.Contains(log, "where only what graft places may stand") {
				t.Errorf("logged %s", log)
			}
		})
	}
}

// TestSessionsHoldWhatWasPlaced: what is registered for a session is what its plan placed, although the
// plugin's library has operators of the engine too.
func TestSessionsHoldWhatWasPlaced(t *testing.T) {
	p, _, err := newSession(t, plugins(t), attending())
	must.Succeed(t, err)
	var names []string
	for _, d := range p.Domains {
		for _, op := range d.Operators {
			if name := operator.Name(op); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	must.Equal(t, names, []string{"FlashDecode"})
}

// TestFoldersThatBringOperators: the engine, which registers its operators for graphs that it rewrote, refuses
// a model that has some already.
func TestFoldersThatBringOperators(t *testing.T) {
	const from = "../../models/tiny-gpt2"
	folder := t.TempDir()
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json"} {
		data := must.Value(os.ReadFile(filepath.Join(from, name)))(t)
		must.Succeed(t, os.WriteFile(filepath.Join(folder, name), data, 0o644))
	}
	data, err := os.ReadFile(filepath.Join(from, "model.onnx"))
	must.Succeed(t, err)
	m := &onnx.Model{}
	must.Succeed(t, proto.Unmarshal(data, m))
	open := func() error {
		if data, err = proto.Marshal(m); err == nil {
			err = os.WriteFile(filepath.Join(folder, "model.onnx"), data, 0o644)
		}
		must.Succeed(t, err)
		x, err := prepare.Open(t.Context(), folder)
		if err == nil {
			x.Close()
		}
		return err
	}
	must.Succeed(t, open())
	n := brought()
	n.Input = n.Input[:0]
	m.Graph.Node = append(m.Graph.Node, n)
	must.Fail(t, open(), `the model brings nodes of operator "CachedAttention" of the domain graft`)
}
