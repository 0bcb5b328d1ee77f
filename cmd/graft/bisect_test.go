package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/measure/bisect"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/internal/sample"
)

// faulty is the folder above the plugin of host/measure/bisect/testdata, and the environment in which graft uses it.
func faulty(t *testing.T) {
	t.Helper()
	alone(t)
	t.Setenv("GRAFT_PLUGIN_PATH", plugintest.Kit(t, "faulty", "../../host/measure/bisect/testdata/faulty/faulty.cc"))
}

// chain writes a model of y = op(... op(x W0) W1 ...) over float32 (rows, 8), node i of an operator being op and i.
func chain(t *testing.T, ops ...string) string {
	t.Helper()
	value := func(name string) *onnx.ValueInfo {
		return &onnx.ValueInfo{Name: proto.String(name),
			Type: &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: &onnx.Type_TensorType{
				ElemType: proto.Int32(int32(onnx.Tensor_FLOAT)), Shape: &onnx.Shape{Dim: []*onnx.Shape_Dim{
					{Value: &onnx.Shape_Dim_DimParam{DimParam: "rows"}}, {Value: &onnx.Shape_Dim_DimValue{DimValue: 8}}}}}}}}
	}
	node := func(op, name, out string, in ...string) *onnx.Node {
		return &onnx.Node{OpType: proto.String(op), Name: proto.String(name), Input: in, Output: []string{out}}
	}
	g := &onnx.Graph{Name: proto.String("chain"), Input: []*onnx.ValueInfo{value("x")},
		Output: []*onnx.ValueInfo{value("y")}}
	last := "x"
	for i, op := range ops {
		w := &onnx.Tensor{Name: proto.String(fmt.Sprint("w", i)), DataType: proto.Int32(int32(onnx.Tensor_FLOAT)),
			Dims: []int64{8, 8}}
		for k := range 64 {
			w.FloatData = append(w.FloatData, float32(math.Sin(float64(64*i+k+1))*0.5))
		}
		out := fmt.Sprint("v", i)
		if i == len(ops)-1 {
			out = "y"
		}
		g.Initializer = append(g.Initializer, w)
		g.Node = append(g.Node, node("MatMul", fmt.Sprint("MatMul", i), fmt.Sprint("m", i), last, w.GetName()),
			node(op, fmt.Sprint(op, i), out, fmt.Sprint("m", i)))
		last = out
	}
	data := must.Value(proto.Marshal(
		&onnx.Model{IrVersion: proto.Int64(8), Graph: g,
			OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(17)}}}))(t)
	path := filepath.Join(t.TempDir(), "chain.onnx")
	write(t, path, string(data))
	return path
}

// graft is the exit code of a command and what it prints.
func graft(args ...string) (code int, stdout, stderr string) {
	var out, talk bytes.Buffer
	code = run(args, &out, &talk)
	return code, out.String(), talk.String()
}

// TestBisect: the culprit is found whatever it does, with the first tensor that leaves the tolerance, and the command
// that is printed shows it. A sample is a third of the cases.
func TestBisect(t *testing.T) {
	faulty(t)
	relu := func(n int) []string { return slices.Repeat([]string{"Relu"}, n) }
	for i, c := range []struct {
		name   string
		ops    []string
		args   []string
		how    string
		want   [][]string // nodes of each culprit
		first  string
		nodes  int  // of the extract
		code   int  // of its command
		probes int  // at most
		apart  bool // the culprits do otherwise
	}{
		{name: "right operators", ops: relu(6), how: bisect.Equal, probes: 2},
		{name: "wrong for some shapes, which are not these", ops: []string{"Relu", "Abs"}, args: []string{"--dim", "rows=4"},
			how: bisect.Equal, probes: 2},
		{name: "wrong for these shapes", ops: append(relu(5), "Abs", "Relu", "Relu"), args: []string{"--dim", "rows=5"},
			how: bisect.Differs, want: [][]string{{"Abs5"}}, first: "v5", nodes: 1, code: exitDiffers, probes: 12},
		{name: "two by themselves", ops: []string{"Abs", "Relu", "Relu", "Abs"}, args: []string{"--dim", "rows=5"},
			how: bisect.Differs, want: [][]string{{"Abs0"}, {"Abs3"}}, first: "v0", nodes: 1, code: exitDiffers, probes: 12},
		{name: "two that do otherwise", ops: []string{"Relu", "Abs", "Tanh"}, args: []string{"--dim", "rows=5"},
			how: bisect.Fails, want: [][]string{{"Abs1"}, {"Tanh2"}}, probes: 10, apart: true},
		{name: "two together", ops: []string{"Relu", "Neg", "Relu", "Neg"}, how: bisect.Differs,
			want: [][]string{{"Neg1", "Neg3"}}, first: "v1", nodes: 5, code: exitDiffers, probes: 20},
		{name: "a crash", ops: append(relu(3), "Cos"), how: bisect.Ends, want: [][]string{{"Cos3"}}, nodes: 1,
			code: exitError, probes: 10},
		{name: "an error", ops: append([]string{"Tanh"}, relu(3)...), how: bisect.Fails, want: [][]string{{"Tanh0"}},
			nodes: 1, code: exitError, probes: 10},
		{name: "a slow operator", ops: append(relu(2), "Sin"), args: []string{"--slower", "--rounds", "5", "--warmup", "1"},
			how: bisect.Slower, want: [][]string{{"Sin2"}}, nodes: 1, code: exitOK, probes: 10},
		{name: "an operator that hangs", ops: []string{"Exp", "Relu"}, args: []string{"--deadline", "3s"}, how: bisect.Hangs,
			want: [][]string{{"Exp0"}}, nodes: 1, code: exitError, probes: 8},
	} {
		if !sample.Has(i, 3) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			path, folder := chain(t, c.ops...), filepath.Join(t.TempDir(), "culprit")
			code, stdout, stderr := graft(
				append([]string{"bisect", path, "--b", "faulty", "--force", "--extract", folder, "-o", "json"}, c.args...)...)
			var r bisect.Result
			if err := json.Unmarshal([]byte(stdout), &r); err != nil {
				t.Fatalf("exit code %d, %s\n%s", code, stdout, stderr)
			}
			want := exitOK
			if len(c.want) > 0 {
				want = exitDiffers
			}
			if code != want || r.Whole.How != c.how || r.Blocks != len(c.ops) || len(r.Culprits) != len(c.want) ||
				r.Probes > c.probes {
				t.Fatalf("exit code %d, %+v\n%s", code, r, stderr)
			}
			for i, culprit := range r.Culprits {
				var nodes []string
				for _, b := range culprit.Blocks {
					nodes = append(nodes, b.Node)
					if b.Plugin != "faulty" || b.Operator == "" || b.Kind != "pattern" {
						t.Errorf("%+v", b)
					}
				}
				if !slices.Equal(nodes, c.want[i]) || culprit.Outcome.How != c.how && !c.apart {
					t.Errorf("culprit %d is %+v", i, culprit)
				}
				if c.apart { // each has its own extract
					if e := culprit.Extract; e == nil || e.Model != filepath.Join(folder, fmt.Sprint(i+1), "model.onnx") || !e.Shown {
						t.Errorf("culprit %d is %+v", i, culprit)
					}
					continue
				}
				if i == 0 && (culprit.First == nil && c.first != "" ||
					culprit.First != nil && (culprit.First.Name != c.first || culprit.First.Node != nodes[0] ||
						!(culprit.First.MaxAbsolute > 0.2))) {
					t.Errorf("the first tensor is %+v, want %s", culprit.First, c.first)
				}
				if i > 0 { // all do the same
					if culprit.Like != 1 || culprit.Extract != nil {
						t.Errorf("culprit %d is %+v", i, culprit)
					}
					continue
				}
				shown(t, culprit.Extract, folder, c.nodes, c.code)
			}
			if entries, err := os.ReadDir(filepath.Dir(folder)); err != nil || len(entries) > 1 ||
				len(entries) == 1 && entries[0].Name() != "culprit" {
				t.Errorf("beside the extract lie %v, %v", entries, err)
			}
		})
	}
}

// shown checks an extract: it is a part of the model, and its command shows the culprit.
func shown(t *testing.T, e *bisect.Extract, folder string, nodes, want int) {
	t.Helper()
	if e == nil || !e.Shown || e.Whole || e.Nodes != nodes || e.Model != filepath.Join(folder, "model.onnx") ||
		e.Inputs != filepath.Join(folder, "inputs.npz") {
		t.Fatalf("the extract is %+v", e)
	}
	m := must.Value(model.Open(e.Model))(t)
	defer m.Close()
	if g := m.Proto().GetGraph(); len(g.GetNode()) != nodes || len(g.GetInitializer()) >= nodes || len(g.GetInput()) != 1 {
		t.Errorf("the extract has %d nodes, %d weights, %d inputs", len(g.GetNode()), len(g.GetInitializer()),
			len(g.GetInput()))
	}
	must.Equal(t, e.Command, "graft "+strings.Join(e.Arguments, " "))
	code, stdout, stderr := graft(append(e.Arguments, "-o", "json")...)
	must.Equal(t, code, want, e.Command, stdout, stderr)
	var r comparison.Result
	if want == exitOK {
		if err := json.Unmarshal([]byte(stdout), &r); err != nil || !r.Speedup.Significant || r.Speedup.Median > 0.5 {
			t.Errorf("%s: %+v, %v", e.Command, r.Speedup, err)
		}
	}
}
