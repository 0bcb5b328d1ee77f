package patch

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Misshapen are the choices whose operators give results of other shapes than what they stand for in the rewritten
// graph, with the reasons. ONNX Runtime only warns of such a result where it is an output of the model. Kernels are
// made and asked for shapes, and not run. Of lengths that only the run shows, two sets are tried.
func (a *Analysis) Misshapen() plan.LeftOut {
	if a.options.Kernel == nil {
		return nil
	}
	by := map[string][]*plan.Choice{} // choices by the operators that they place
	for i := range a.Plan.Choices {
		if c := &a.Plan.Choices[i]; c.Operator != nil {
			for _, op := range c.Operator.Emits() {
				by[op] = append(by[op], c)
			}
		}
	}
	if len(by) == 0 {
		return nil
	}
	wrong := plan.LeftOut{}
	seen := map[string]bool{} // layers are alike
	a.Graph.Walk(func(n *graph.Node) {
		choices := by[n.Proto.GetOpType()]
		if n.Proto.GetDomain() != manifest.Domain || len(choices) == 0 || wrong[choices[0].Key()] != "" {
			return
		}
		signature := shapeSignature(n, a.Shapes)
		if seen[signature] {
			return
		}
		seen[signature] = true
		kernel, err := a.options.Kernel(choices[0].Plugin, n.Proto)
		if err != nil {
			return // of a kernel that cannot be made, no session is
		}
		defer kernel.Destroy()
		if why := misshapen(kernel, n, a.Shapes); why != "" {
			for _, c := range choices {
				wrong[c.Key()] = why
			}
		}
	})
	return wrong
}

// shapeSignature is what a node's shapes depend on: two nodes with one signature have results of the same shapes.
func shapeSignature(n *graph.Node, shapes *graph.Shapes) string {
	var b strings.Builder
	b.WriteString(n.Proto.GetOpType())
	for _, a := range n.Proto.GetAttribute() {
		content, _ := proto.MarshalOptions{Deterministic: true}.Marshal(a)
		fmt.Fprintf(&b, " %q", content)
	}
	for _, v := range slices.Concat(n.In, n.Out) {
		f := graph.Fact{Rank: -2} // of what is absent
		if v != nil {
			f = shapes.Of(v)
		}
		fmt.Fprintf(&b, ";%d %d", f.DType, f.Rank)
		for _, d := range f.Dims {
			fmt.Fprintf(&b, " %q", d.String())
		}
	}
	return b.String()
}

// misshapen says which result of a node has another shape than what it stands for has, "" where none shows it. A
// length that is that of an axis of the inputs may be right: the graph may not show that two lengths are one.
func misshapen(k plan.Kernel, n *graph.Node, shapes *graph.Shapes) (why string) {
	var symbols []string
	for _, v := range slices.Concat(n.In, n.Out) {
		if v != nil {
			for _, d := range shapes.Of(v).Dims {
				symbols = append(symbols, d.Symbols()...)
			}
		}
	}
	slices.Sort(symbols)
	symbols = slices.Compact(symbols)
	for _, step := range []int64{2, 0} { // all lengths differ; all are equal
		at := map[string]int64{}
		for i, s := range symbols {
			at[s] = 4 + step*int64(i)
		}
		if why = shaped(k, n, shapes, at); why == "" {
			return ""
		}
	}
	return why
}

// shaped is misshapen for one set of lengths.
func shaped(k plan.Kernel, n *graph.Node, shapes *graph.Shapes, at map[string]int64) string {
	in := make([]*tensor.Tensor, len(n.In))
	known := map[int64]bool{}
	for i, v := range n.In {
		if v == nil {
			continue
		}
		f := shapes.Of(v)
		t := &tensor.Tensor{DType: tensor.DType(model.TypeName(f.DType)), Shape: []int64{}}
		if f.Rank < 0 || t.DType.Size() == 0 {
			return ""
		}
		for _, d := range f.Dims {
			length, ok := d.Eval(at)
			if !ok || length < 0 {
				return ""
			}
			t.Shape, known[length] = append(t.Shape, length), true
		}
		in[i] = t
	}
	wanted := make([]bool, len(n.Out))
	for i, v := range n.Out {
		wanted[i] = v != nil
	}
	out, err := k.Infer(in, wanted)
	if err != nil {
		return "" // these lengths may not fit together
	}
	for i, v := range n.Out {
		if v == nil {
			continue
		}
		f, given := shapes.Of(v), out[i].Shape
		if f.Rank >= 0 && f.Rank != len(given) {
			return fmt.Sprintf("%s gives a result of rank %d where the model has one of rank %d", n.Proto.GetOpType(),
				len(given), f.Rank)
		}
		for axis, d := range f.Dims {
			if length, ok := d.Eval(at); ok && length != given[axis] && given[axis] >= 0 && !known[given[axis]] {
				return fmt.Sprintf("%s gives a result of length %d along axis %d where the model has one of length %d",
					n.Proto.GetOpType(), given[axis], axis, length)
			}
		}
	}
	return ""
}
