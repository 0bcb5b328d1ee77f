package prepare

import (
	"strings"

	"github.com/opgraft/graft/host/onnx/graph"
)

// maxSteps is how many nodes lie between the last linear layer and logits at most: a cast, a cap, a change of shape.
const maxSteps = 16

// afterLogits change elements one by one, or their places.
var afterLogits = []string{"Add", "Cast", "Clip", "Div", "Gather", "Identity", "Max", "Min", "Mul", "Neg", "Reshape",
	"Slice", "Squeeze", "Sub", "Tanh",
	"Transpose", "Unsqueeze", "Where"}

// LastLinear are the linear layers that make an output, with what changes its elements one by one after them: one, or
// one of each branch of a merged decoder; none where a branch has none.
func LastLinear(g *graph.Graph, output string, linear func(*graph.Node) bool) []*graph.Node {
	if output == "" {
		return nil
	}
	return lastLinear(g.Lookup(output), linear)
}

func lastLinear(v *graph.Value, linear func(*graph.Node) bool) []*graph.Node {
	for range maxSteps {
		if v == nil || v.Producer == nil {
			return nil
		}
		n := v.Producer
		switch {
		case linear(n):
			return []*graph.Node{n}
		case n.Is("If"):
			return inBranches(n, v, linear)
		case !n.Is(afterLogits...):
			return nil
		}
		v = nil
		for i, in := range n.In {
			if in == nil || in.Tensor != nil || i > 0 && strings.HasSuffix(n.Op(), "shape") {
				continue // a constant, or the shape that a Reshape gives
			}
			if v != nil {
				return nil
			}
			v = in
		}
	}
	return nil
}

// inBranches are those of a value that the branches of an If make.
func inBranches(n *graph.Node, v *graph.Value, linear func(*graph.Node) bool) (list []*graph.Node) {
	for i, out := range n.Out {
		if out != v {
			continue
		}
		for _, branch := range n.Subgraphs {
			if i >= len(branch.Outputs) {
				return nil
			}
			found := lastLinear(branch.Outputs[i], linear)
			if found == nil {
				return nil
			}
			list = append(list, found...)
		}
	}
	return list
}
