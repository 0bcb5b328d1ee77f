package rewrite

import (
	"fmt"

	"github.com/opgraft/graft/host/onnx/graph"
)

// SettleReshapes gives every Reshape whose target is known a target that costs
// nothing: a constant where all lengths but one are numbers or those of the
// input's axis at the same place (0), else lengths read off the model's inputs,
// once for all that need the same. Exporters compute such targets with a dozen
// nodes a layer, which at one token a step cost as much as small matmuls; they
// go with their last reader.
func (e *Editor) SettleReshapes() {
	constants := map[string]*graph.Value{}
	var reshapes []*graph.Node
	e.main.Walk(func(n *graph.Node) {
		if n.Is("Reshape") && n.Int("allowzero", 0) == 0 && n.Input(1) != nil && n.Input(1).Tensor == nil {
			reshapes = append(reshapes, n)
		}
	})
	var uses []graph.Use
	var targets []*graph.Value
	instead := func(n *graph.Node, v *graph.Value) {
		uses, targets = append(uses, graph.Use{Node: n, Index: 1}), append(targets, v)
	}
	for _, n := range reshapes {
		e.main.Spend(1)
		elems := e.shapes.Of(n.Input(1)).Elems
		if target, ok := settled(elems, e.shapes.Of(n.Input(0)).Dims); ok {
			key := fmt.Sprintf("%p %v", n.Graph, target)
			if constants[key] == nil {
				constants[key] = n.Graph.AddInitializer(graph.Int64Tensor("", []int64{int64(len(target))}, target...))
			}
			instead(n, constants[key])
			continue
		}
		if v, err := e.list(n.Graph, elems); err == nil && len(elems) > 0 {
			instead(n, v)
		}
	}
	e.main.SetInputs(uses, targets)
}

// settled is a Reshape's target as constants, given the lengths it comes to and
// those of the input. ONNX Runtime refuses a length left open (-1) beside one
// that is zero, as a past's may be: one that the model did not leave open is
// left so beside numbers only.
func settled(to, from []graph.Dim) (target []int64, ok bool) {
	open, opened, copied := false, false, false
	for i, d := range to {
		n, constant := d.Const()
		switch {
		case constant && n > 0:
			target = append(target, n)
		case constant && n != -1 || !d.Known():
			return nil, false // a 0 would mean the input's own length
		case !constant && i < len(from) && d.Equal(from[i]):
			target, copied = append(target, 0), true
		case !open:
			target, open, opened = append(target, -1), true, !constant
		default:
			return nil, false
		}
	}
	return target, len(to) > 0 && !(opened && copied)
}
