package runs

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/measure/profile"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

func TestMain(m *testing.M) {
	tasks := comparison.Tasks()
	maps.Copy(tasks, Tasks())
	worker.Main(tasks)
	os.Exit(m.Run())
}

const plugins = "../../../../build/plugins"

// profiled profiles a model of a file.
func profiled(t *testing.T, path string, o Options) (*Result, *patch.Analysis, error) {
	t.Helper()
	t.Setenv("GRAFT_PLUGIN_UNVERIFIED", "1")
	folder := must.Value(filepath.Abs(plugins))(t)
	set := must.Value(loaded.Load([]string{folder}, true))(t)
	m := must.Value(model.Open(path))(t)
	t.Cleanup(func() { m.Close() })
	a, err := patch.Analyse(t.Context(), m, set.Manifests(), set.Plan(plan.Options{Force: o.Force, Padding: o.Padding}))
	must.Succeed(t, err)
	o.Warmup, o.Rounds, o.Inputs.Seed, o.Threads = 1, 2, 1, 1
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	r, err := Apart(t.Context(), Job{Model: path, Options: o, Folders: []string{folder}}, a, plan.ThisMachine())
	if left, _ := filepath.Glob(filepath.Join(temp, "*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	return r, a, err
}

// sums checks that parts make up a run: nodes and what is unexplained are the run, kinds and operators are the nodes.
func sums(t *testing.T, r *Result) {
	t.Helper()
	nodes, kinds, operators, share := 0.0, 0.0, 0.0, r.UnexplainedShare
	for _, n := range r.Nodes {
		nodes, share = nodes+n.MS, share+n.Share
	}
	for _, k := range r.Kinds {
		kinds += k.MS
	}
	for _, o := range r.Operators {
		operators += o.MS
	}
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > 1e-6*max(1, want) {
			t.Errorf("%s: %.9f, want %.9f", what, got, want)
		}
	}
	near("nodes and what is unexplained", nodes+r.UnexplainedMS, r.Run.TypicalMS)
	near("kinds", kinds, nodes)
	near("operators", operators, nodes)
	if r.Run.TypicalMS > 0 {
		near("shares", share, 1)
	}
	if len(r.Run.TimesMS) != 2*r.Rounds || len(r.Profiled.TimesMS) != 2*r.Rounds {
		t.Errorf("%d and %d times of %d rounds", len(r.Run.TimesMS), len(r.Profiled.TimesMS), r.Rounds)
	}
}

// fixture writes a graph of an exporter with weights.
func fixture(t *testing.T, exporter, name string) string {
	t.Helper()
	f := must.Value(models.Lookup(exporter, name))(t)
	path := filepath.Join(t.TempDir(), "model.onnx")
	must.Succeed(t, f.Write(path, 1))
	return path
}

// TestAttribution: whatever the runtime fuses, and whatever graft places, every block of attention has its time,
// every node that ran is found in the graph that ran, and those that make what the model has stand for nodes of it.
func TestAttribution(t *testing.T) {
	for _, c := range []struct {
		exporter, name string
		o              Options
		long           bool
	}{
		{exporter: "optimum", name: "bert", long: true},
		{exporter: "optimum", name: "bert", o: Options{Patched: true, Force: true, Padding: plan.KeepPadding}, long: true},
		{exporter: "optimum", name: "bert", o: Options{Patched: true, Force: true, Padding: plan.IgnorePadding}},
		{exporter: "optimum", name: "gpt2-merged", o: Options{Inputs: inputs.Options{NoCache: true}}, long: true},
		{exporter: "optimum", name: "gpt2-merged"},
		{exporter: "ortopt", name: "bert"},
		{exporter: "ortopt", name: "bert", o: Options{Patched: true, Force: true}, long: true},
		{exporter: "optimum", name: "gpt2", o: Options{Patched: true, Force: true}, long: true},
		{exporter: "dynamo23", name: "llama", long: true},
		{exporter: "dynamo18", name: "vit", long: true},
		{exporter: "optimum", name: "t5-decoder-with-past", long: true},
		{exporter: "optimum", name: "whisper-encoder", long: true},
	} {
		t.Run(fmt.Sprintf("%s %s %+v", c.exporter, c.name, c.o.Patched), func(t *testing.T) {
			if c.long && testing.Short() {
				t.Skip("long")
			}
			r, a, err := profiled(t, fixture(t, c.exporter, c.name), c.o)
			must.Succeed(t, err)
			sums(t, r)
			must.Equal(t, (r.Replaced > 0), c.o.Patched, r.Replaced)
			covers := map[string]string{}
			for _, n := range r.Ran {
				if n.At == nil {
					t.Errorf("%s (%s) is not in the graph that ran", n.Name, n.Operator)
				}
				for _, m := range n.Covers {
					must.Equal(t, covers[m.Path()], "", m.Path(), n.Name)
					covers[m.Path()] = n.Name
				}
			}
			attention, taken := 0, 0
			for _, b := range a.Report.Blocks {
				if strings.Contains(b.Node, "else_branch") || strings.Contains(b.Node, "then_branch") {
					continue
				}
				attention++
			}
			for _, b := range r.Blocks {
				if b.Kind != "attention" {
					continue
				}
				taken++
				if !(b.Operations > 0) || !(b.Bytes > 0) {
					t.Errorf("%s: %g operations, %g bytes", b.Node, b.Operations, b.Bytes)
				}
			}
			if taken == 0 || attention > 0 && taken != attention {
				t.Errorf("%d of %d blocks of attention have a time", taken, attention)
			}
			linear := slices.ContainsFunc(r.Kinds,
				func(p profile.Part) bool { return p.Name == "linear layers" && p.Operations > 0 })
			if !linear {
				t.Errorf("no linear layers among %+v", r.Kinds)
			}
		})
	}
}

// TestFusedNodes: a GELU that the runtime made of an addition and five nodes stands for them.
func TestFusedNodes(t *testing.T) {
	r, _, err := profiled(t, fixture(t, "optimum", "bert"), Options{})
	must.Succeed(t, err)
	found := 0
	for _, n := range r.Nodes {
		if strings.HasSuffix(n.Operator, "Gelu") {
			if found++; len(n.Covers) < 5 || n.Block == "" {
				t.Errorf("%s stands for %q of %q", n.Name, n.Covers, n.Block)
			}
		}
	}
	if found == 0 {
		t.Errorf("no activation among %+v", r.Operators)
	}
}

// value is an input or output of floats over rows and width.
func value(name string) *onnx.ValueInfo {
	shape := &onnx.Shape{}
	for _, d := range []string{"rows", "width"} {
		shape.Dim = append(shape.Dim, &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimParam{DimParam: d}})
	}
	return &onnx.ValueInfo{Name: proto.String(name), Type: &onnx.Type{Value: &onnx.Type_TensorType_{
		TensorType: &onnx.Type_TensorType{ElemType: proto.Int32(int32(onnx.Tensor_FLOAT)), Shape: shape}}}}
}

func op(name, kind string, in []string, out ...string) *onnx.Node {
	return &onnx.Node{Name: proto.String(name), OpType: proto.String(kind), Input: in, Output: out}
}

// write makes a model file: y of x.
func write(t *testing.T, constants []*onnx.Tensor, nodes ...*onnx.Node) string {
	t.Helper()
	m := &onnx.Model{IrVersion: proto.Int64(8),
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(17)}},
		Graph: &onnx.Graph{Name: proto.String("g"), Input: []*onnx.ValueInfo{value("x")},
			Output: []*onnx.ValueInfo{value("y")}, Node: nodes, Initializer: constants}}
	data := must.Value(proto.Marshal(m))(t)
	path := filepath.Join(t.TempDir(), "model.onnx")
	must.Succeed(t, os.WriteFile(path, data, 0o600))
	return path
}

// TestWithoutMatmuls: no operations, no blocks, no part of a peak; nodes without names are told apart.
func TestWithoutMatmuls(t *testing.T) {
	r, _, err := profiled(t, write(t, nil, op("", "Exp", []string{"x"}, "a"), op("", "Exp", []string{"a"}, "b"),
		op("last", "Add", []string{"a", "b"}, "y")),
		Options{Inputs: inputs.Options{Dims: map[string]int64{"rows": 64, "width": 64}}})
	must.Succeed(t, err)
	sums(t, r)
	if len(r.Nodes) != 3 || len(r.Blocks) != 0 || len(r.Kinds) != 1 || r.Kinds[0].Operations != 0 ||
		r.Kinds[0].OfPeak != nil {
		t.Errorf("%+v", r.Report)
	}
	must.Equal(t, r.Kinds[0].Bytes, 7*64*64*4)
}

// TestEmptyModel: a model whose output is made by nothing but the runtime's copy of it.
func TestEmptyModel(t *testing.T) {
	r, _, err := profiled(t, write(t, nil, op("same", "Identity", []string{"x"}, "y")),
		Options{Inputs: inputs.Options{Dims: map[string]int64{"rows": 0, "width": 4}}})
	must.Succeed(t, err)
	sums(t, r)
	if len(r.Nodes) > 1 || len(r.Blocks) != 0 {
		t.Errorf("%+v", r.Report)
	}
}

// TestSubgraphs: nodes of a loop's body have their own time and as many calls as the loop has rounds; a loop in a
// branch likewise.
func TestSubgraphs(t *testing.T) {
	number := func(name string, kind onnx.Tensor_DataType, data []byte, dims ...int64) *onnx.Tensor {
		return &onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(kind)), Dims: dims, RawData: data}
	}
	scalar := func(name string, kind onnx.Tensor_DataType) *onnx.ValueInfo {
		return &onnx.ValueInfo{Name: proto.String(name), Type: &onnx.Type{Value: &onnx.Type_TensorType_{
			TensorType: &onnx.Type_TensorType{ElemType: proto.Int32(int32(kind)), Shape: &onnx.Shape{}}}}}
	}
	subgraph := func(n *onnx.Node, name string, g *onnx.Graph) {
		n.Attribute = append(n.Attribute, &onnx.Attribute{Name: proto.String(name), Type: onnx.Attribute_GRAPH.Enum(), G: g})
	}
	body := &onnx.Graph{Name: proto.String("body"),
		Input:  []*onnx.ValueInfo{scalar("i", onnx.Tensor_INT64), scalar("go", onnx.Tensor_BOOL), value("v")},
		Output: []*onnx.ValueInfo{scalar("on", onnx.Tensor_BOOL), value("w")},
		Node:   []*onnx.Node{op("on", "Identity", []string{"go"}, "on"), op("step", "Exp", []string{"v"}, "w")}}
	loop := op("loop", "Loop", []string{"n", "", "x"}, "l")
	subgraph(loop, "body", body)
	branch := op("branch", "If", []string{"yes"}, "z")
	subgraph(branch, "then_branch",
		&onnx.Graph{Name: proto.String("then"), Output: []*onnx.ValueInfo{value("t")},
			Node: []*onnx.Node{op("taken", "Abs", []string{"l"}, "t")}})
	subgraph(branch, "else_branch",
		&onnx.Graph{Name: proto.String("else"), Output: []*onnx.ValueInfo{value("e")},
			Node: []*onnx.Node{op("taken", "Neg", []string{"l"}, "e")}})
	// What decides must not be a constant, which the runtime would fold.
	path := write(t, []*onnx.Tensor{number("n", onnx.Tensor_INT64, []byte{5, 0, 0, 0, 0, 0, 0, 0}),
		number("large", onnx.Tensor_FLOAT, []byte{0, 0, 0x80, 0x7f})},
		loop, op("sum", "ReduceMax", []string{"x"}, "s"), op("flat", "Squeeze", []string{"s"}, "q"),
		op("less", "Less", []string{"q", "large"}, "yes"),
		branch, op("end", "Exp", []string{"z"}, "y"))
	r, _, err := profiled(t, path, Options{Inputs: inputs.Options{Dims: map[string]int64{"rows": 32, "width": 32}}})
	must.Succeed(t, err)
	sums(t, r)
	got := map[string]string{}
	for _, n := range r.Nodes {
		got[n.Name] = fmt.Sprintf("%s in %q, %g calls", n.Operator, n.Inside, n.Calls)
	}
	for name, want := range map[string]string{"step": `Exp in "loop", 5 calls`, "taken": `Abs in "branch", 1 calls`,
		"loop": `Loop in "", 1 calls`, "end": `Exp in "", 1 calls`} {
		must.Equal(t, got[name], want, name)
	}
	for _, n := range r.Ran {
		if n.At == nil || len(n.Covers) == 0 {
			t.Errorf("%s (%s) is at %v and stands for %v", n.Name, n.Operator, n.At, n.Covers)
		}
	}
}

// TestErrors: a name that the runtime writes as no JSON, a model that cannot run, a plugin's name that is wrong.
func TestErrors(t *testing.T) {
	dims := inputs.Options{Dims: map[string]int64{"rows": 2, "width": 2}}
	for _, c := range []struct {
		name, want string
		path       string
		o          Options
	}{
		{"a name with a quotation mark", "rename those with a quotation mark or a backslash",
			write(t, nil, op(`a"b`, "Exp", []string{"x"}, "y")), Options{Inputs: dims}},
		{"no such length", `no length is called "depth"`, write(t, nil, op("a", "Exp", []string{"x"}, "y")),
			Options{Inputs: inputs.Options{Dims: map[string]int64{"depth": 2}}}},
		{"a run that fails", "model.onnx",
			write(t, []*onnx.Tensor{{Name: proto.String("s"), DataType: proto.Int32(int32(onnx.Tensor_INT64)), Dims: []int64{1},
				RawData: []byte{7, 0, 0, 0, 0, 0, 0, 0}}},
				op("r", "Reshape", []string{"x", "s"}, "y")), Options{Inputs: dims}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := profiled(t, c.path, c.o)
			if err == nil || !strings.Contains(err.Error(), c.want) && c.want != "model.onnx" {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if errors.Is(err, worker.ErrEnded) {
				t.Errorf("the child ended: %v", err)
			}
		})
	}
}
