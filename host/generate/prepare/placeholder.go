package prepare

import (
	"fmt"
	"math"
	"slices"

	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// takePlaceholder takes out of a decoder the placeholder that it puts after the tokens that it is fed: in its place
// the next token is predicted, and no later token sees it. Such a decoder pads its tokens by one at the end, hands
// out keys and values without the last position, and computes the logits of the last one. What is left reads tokens
// and placeholders alike, and the engine feeds both. It gives the placeholder's id, or nil for a decoder without one.
func takePlaceholder(file *model.Model, p *onnx.Model) (*int64, error) {
	t := &placeholder{graph: p.GetGraph(), file: file}
	pad, id := t.find()
	if pad == nil {
		return nil, nil
	}
	tokens := pad.Input[0]
	for _, n := range t.graph.Node {
		if n != pad && slices.Contains(n.Input, tokens) {
			return nil, fmt.Errorf("%s reads %s beside %s, which puts a placeholder after them", n.GetName(), tokens,
				pad.GetName())
		}
	}
	from := t.madeOf(tokens)
	t.drop(pad, tokens)
	for _, o := range t.graph.Output {
		if dims := o.GetType().GetTensorType().GetShape().GetDim(); len(dims) != 4 || !from[o.GetName()] {
			continue // no keys and values of tokens
		}
		n := t.maker(o.GetName())
		if n == nil || !t.slices(n, 2, 0, -1) {
			return nil, fmt.Errorf("output %s holds keys or values of the placeholder that is put after the tokens, needed "+
				"are those of tokens alone", o.GetName())
		}
		t.graph.Node = slices.DeleteFunc(t.graph.Node, func(other *onnx.Node) bool { return other == n })
		rename(t.graph, map[string]string{n.Input[0]: o.GetName()})
	}
	for _, n := range slices.Clone(t.graph.Node) {
		if t.slices(n, 1, -1, math.MaxInt32) {
			t.drop(n, n.Input[0])
		}
	}
	t.graph.ValueInfo = nil // lengths are others now
	for _, in := range t.graph.Input {
		if dims := in.GetType().GetTensorType().GetShape().GetDim(); in.GetName() == tokens && len(dims) == 2 &&
			dims[1].GetDimParam() == "" {
			dims[1].Value = &onnx.Shape_Dim_DimParam{DimParam: "sequence_length"}
		}
	}
	return &id, nil
}

// placeholder is a decoder whose placeholder is looked for.
type placeholder struct {
	graph *onnx.Graph
	file  *model.Model
}

// find is the node that pads the tokens by one at the end, with what, or nil.
func (t *placeholder) find() (pad *onnx.Node, id int64) {
	for _, n := range t.graph.Node {
		if n.GetOpType() != "Pad" || len(n.Input) < 2 || len(n.Input) > 3 || !t.integers(n.Input[0]) {
			continue
		}
		if slices.ContainsFunc(n.Attribute,
			func(a *onnx.Attribute) bool { return a.GetName() == "mode" && string(a.GetS()) != "constant" }) {
			continue
		}
		if !slices.Equal(t.numbers(n.Input[1]), []int64{0, 0, 0, 1}) {
			continue
		}
		if len(n.Input) == 3 && n.Input[2] != "" {
			value := t.numbers(n.Input[2])
			if len(value) != 1 {
				continue
			}
			id = value[0]
		}
		return n, id
	}
	return nil, 0
}

// integers reports an input of integers (batch, positions).
func (t *placeholder) integers(name string) bool {
	return slices.ContainsFunc(t.graph.Input, func(in *onnx.ValueInfo) bool {
		kind := in.GetType().GetTensorType()
		return in.GetName() == name && kind.GetElemType() == int32(onnx.Tensor_INT64) && len(kind.GetShape().GetDim()) == 2
	})
}

// madeOf are the values that are made of one, in nodes that stand in order, itself among them.
func (t *placeholder) madeOf(name string) map[string]bool {
	made := map[string]bool{name: true}
	for _, n := range t.graph.Node {
		if n.GetOpType() != "Shape" && slices.ContainsFunc(n.Input, func(in string) bool { return made[in] }) {
			for _, out := range n.Output {
				made[out] = true
			}
		}
	}
	return made
}

// slices reports a node that cuts an axis of its input from start to end, which math.MaxInt32 and more are.
func (t *placeholder) slices(n *onnx.Node, axis, start, end int64) bool {
	if n.GetOpType() != "Slice" || len(n.Input) < 4 {
		return false
	}
	from, to, axes := t.numbers(n.Input[1]), t.numbers(n.Input[2]), t.numbers(n.Input[3])
	if len(from) != 1 || len(to) != 1 || len(axes) != 1 ||
		len(n.Input) > 4 && !slices.Equal(t.numbers(n.Input[4]), []int64{1}) {
		return false
	}
	return axes[0] == axis && from[0] == start && min(to[0], math.MaxInt32) == end
}

// numbers are the integers of a constant of few elements; nil for anything else.
func (t *placeholder) numbers(name string) []int64 {
	var x *onnx.Tensor
	for _, i := range t.graph.Initializer {
		if i.GetName() == name {
			x = i
		}
	}
	if n := t.maker(name); n != nil && n.GetOpType() == "Constant" && len(n.Attribute) == 1 {
		x = n.Attribute[0].GetT()
	}
	if x == nil {
		return nil
	}
	list, err := t.file.Int64s(x, 16)
	if err != nil {
		return nil // no integers, or many
	}
	return list
}

func (t *placeholder) maker(name string) *onnx.Node {
	for _, n := range t.graph.Node {
		if slices.Contains(n.Output, name) {
			return n
		}
	}
	return nil
}

// drop takes a node out. What read its output reads another value.
func (t *placeholder) drop(n *onnx.Node, instead string) {
	t.graph.Node = slices.DeleteFunc(t.graph.Node, func(other *onnx.Node) bool { return other == n })
	out := n.Output[0]
	for _, other := range t.graph.Node {
		replaceInput(other, out, instead)
	}
}

// replaceInput lets a node, and the graphs inside it, read another value.
func replaceInput(n *onnx.Node, from, to string) {
	for i, name := range n.Input {
		if name == from {
			n.Input[i] = to
		}
	}
	for _, a := range n.Attribute {
		for _, inner := range a.GetG().GetNode() {
			replaceInput(inner, from, to)
		}
	}
}
