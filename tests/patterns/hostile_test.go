package patterns

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/internal/must"
)

// sums is a pattern of sums of sums, of which every one may have its inputs in either order, over a Relu: in a graph
// of sums without one, all orders of all sums are tried before it is known that there is none.
func sums(depth int) string {
	var b strings.Builder
	b.WriteString("pattern:\n  inputs: [x]\n  outputs: [v0]\n  nodes:\n")
	for i := range depth {
		fmt.Fprintf(&b, "    - {op: Add, in: [v%d, w%d], out: [v%d]}\n    - {op: Neg, in: [v%d], out: [w%d]}\n", i+1, i+1, i,
			i+1, i+1)
	}
	fmt.Fprintf(&b, "    - {op: Relu, in: [x], out: [v%d]}\n", depth)
	return b.String()
}

// one is the operator of a pattern.
func one(t *testing.T, pattern string) *manifest.Manifest {
	t.Helper()
	m := must.Value(manifest.Parse("hostile", []byte(before+indented(pattern, "      "))))(t)
	return m
}

// nodes makes a graph of float[4] values, of nodes given as operator and the numbers of those that they read; 0 is
// the input.
func nodes(t *testing.T, count int, node func(i int) (op string, in []int)) (*graph.Graph, *graph.Shapes) {
	t.Helper()
	name := func(i int) string { return fmt.Sprintf("v%d", i) }
	declared := func(i int) *onnx.ValueInfo {
		return &onnx.ValueInfo{Name: proto.String(name(i)),
			Type: &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: &onnx.Type_TensorType{
				ElemType: proto.Int32(int32(onnx.Tensor_FLOAT)),
				Shape:    &onnx.Shape{Dim: []*onnx.Shape_Dim{{Value: &onnx.Shape_Dim_DimValue{DimValue: 4}}}}}}}}
	}
	p := &onnx.Model{IrVersion: proto.Int64(8),
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(18)}},
		Graph: &onnx.Graph{Name: proto.String("hostile"), Input: []*onnx.ValueInfo{declared(0)},
			Output: []*onnx.ValueInfo{declared(count)}}}
	for i := range count {
		op, in := node(i + 1)
		n := &onnx.Node{OpType: proto.String(op), Output: []string{name(i + 1)}}
		for _, from := range in {
			n.Input = append(n.Input, name(max(from, 0)))
		}
		p.Graph.Node = append(p.Graph.Node, n)
	}
	data := must.Value(proto.Marshal(p))(t)
	m := must.Value(model.Parse(data, ""))(t)
	t.Cleanup(func() { m.Close() })
	g := must.Value(graph.New(m.Proto(), m))(t)
	return g, graph.Infer(g)
}

// TestHostileGraphs: a search takes a number of steps for each node that does not grow with the graph, finds nothing
// in graphs that are made to be searched long, and stays within what an analysis may take.
func TestHostileGraphs(t *testing.T) {
	count := 200_000
	if testing.Short() {
		count = 5_000
	}
	repeated := "pattern:\n  inputs: [x, t]\n  outputs: [y]\n  nodes:\n    - repeat: {max: 64, from: x, to: s, each: " +
		"[t], nodes: [{op: Add, in: [x, t], out: [s]}]}\n    - {op: Relu, in: [s], out: [y]}\n"
	choices := "pattern:\n  inputs: [x]\n  outputs: [y]\n  nodes:\n"
	for i := range 7 {
		choices += fmt.Sprintf("    - any_of: [[{op: Add, in: [a%d, a%d], out: [a%d]}], [{op: Add, in: [a%d, x], out: "+
			"[a%d]}]]\n", i+1, i+1, i, i+1, i)
	}
	choices = strings.Replace(choices+"    - {op: Relu, in: [x], out: [a7]}\n", "outputs: [y]", "outputs: [a0]", 1)
	for _, c := range []struct {
		name, pattern string
		node          func(i int) (string, []int)
		replaced      bool
	}{
		{"sums of sums, of which two are the same", sums(20), func(i int) (string, []int) {
			if i%2 == 0 {
				return "Neg", []int{i - 1}
			}
			return "Add", []int{i - 1, i - 2}
		}, false},
		{"diamonds", sums(20), func(i int) (string, []int) { return "Add", []int{i - 1, i - 1} }, false},
		{"a ladder of sums", repeated, func(i int) (string, []int) { return "Add", []int{i - 1, i - 2} }, false},
		{"a chain as long as the graph", repeated, func(i int) (string, []int) {
			if i%70 == 0 {
				return "Relu", []int{i - 1}
			}
			return "Add", []int{i - 1, 0}
		}, true},
		{"one value that all read", "pattern:\n  inputs: [x]\n  outputs: [y, z]\n  nodes: [{op: Neg, in: [x], out: [n]}, " +
			"{op: Abs, in: [x], out: [a]}, {op: Relu, in: [n], out: [y]}, {op: Exp, in: [a], out: [z]}]\n",
			func(i int) (string, []int) { return []string{"Neg", "Abs", "Sign"}[i%3], []int{0} }, false},
		{"many forms", choices, func(i int) (string, []int) { return "Add", []int{i - 1, i - 1} }, false},
		{"copies of copies", sums(3), func(i int) (string, []int) {
			if i%100 == 0 {
				return "Add", []int{i - 1, i - 2}
			}
			return "Identity", []int{i - 1}
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, shapes := nodes(t, count, c.node)
			m := one(t, c.pattern)
			var p *plan.Plan
			begun, parts := g.Steps()
			must.Succeed(t, g.Bounded(t.Context(), func() error {
				p = plan.Make(g, shapes, &blocks.Report{}, []*manifest.Manifest{m}, plan.Options{Force: true})
				return nil
			}))
			taken, _ := g.Steps()
			t.Logf("%d steps for each node, input and output", (taken-begun)/parts)
			must.Equal(t, p.Replaced() > 0, c.replaced, p.Replaced())
		})
	}
}
