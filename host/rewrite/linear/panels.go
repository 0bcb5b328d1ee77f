package linear

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/rewrite"
)

// Panels gives the linear layers of a graph their weights in panels, and lets them do what stands around them: those
// of one x are one, and each begins and ends as FuseLinear says. A weight that something else reads stays as stored.
func Panels(g *graph.Graph, shapes *graph.Shapes, m *model.Model) error {
	if err := DropReshapes(g, shapes); err != nil {
		return err
	}
	held := map[*graph.Node]model.Matrix{}
	var list []*graph.Node
	for _, n := range g.Nodes {
		if matrix, ok := weightOf(n); ok {
			held[n], list = matrix, append(list, n)
		}
	}
	p := &panels{g: g, shapes: shapes, model: m, held: held, integers: map[*graph.Node]*model.Integers{}}
	for n, matrix := range held {
		if q := m.IntegersOf(matrix.Tensor); q != nil {
			p.integers[n] = q
		}
	}
	for _, group := range Groups(list, p.form) {
		if err := p.layOut(group); err != nil {
			return err
		}
	}
	g.Prune()
	if err := g.Sort(); err != nil {
		return err
	}
	return Fuse(g, shapes)
}

// weightOf is the weight of a linear layer that only linear layers read.
func weightOf(n *graph.Node) (model.Matrix, bool) {
	if !n.Provides(capability.LinearPanels) || n.Int("columns", 0) != 0 {
		return model.Matrix{}, false
	}
	v := n.Input(weightOperand)
	if v == nil || v.Tensor == nil || v.IsOutput || len(v.Tensor.Dims) != 2 || slices.Contains(v.Tensor.Dims, 0) ||
		onnx.Tensor_DataType(v.Tensor.GetDataType()) != onnx.Tensor_FLOAT {
		return model.Matrix{}, false
	}
	if slices.ContainsFunc(v.Uses, func(u graph.Use) bool {
		return !u.Node.Provides(capability.LinearPanels) || u.Index != weightOperand || u.Node.Graph != n.Graph
	}) {
		return model.Matrix{}, false
	}
	return model.Matrix{Tensor: v.Tensor, Transposed: n.Int("transposed", 0) == 1}, true
}

// panels lays out the weights of a graph.
type panels struct {
	g      *graph.Graph
	shapes *graph.Shapes
	model  *model.Model
	held   map[*graph.Node]model.Matrix
	// integers are those that weights stand for, where the model has them so.
	integers map[*graph.Node]*model.Integers
}

// form is equal for weights that can lie side by side.
func (p *panels) form(n *graph.Node) (columns int64, kind string) {
	_, columns = p.held[n].Size()
	if q := p.integers[n]; q != nil {
		sizes, _ := q.Panels()
		kind = fmt.Sprint(q.Bits, sizes.Groups, sizes.Zeros, q.RoundsRows())
	}
	return columns, kind
}

// layOut gives linear layers of one x their weights in panels, as one node.
func (p *panels) layOut(group []*graph.Node) error {
	first := group[0]
	if p.integers[first] != nil {
		return p.layIntegers(group)
	}
	var matrices []model.Matrix
	for _, n := range group {
		matrices = append(matrices, p.held[n])
	}
	t, err := p.model.Panels(p.g.FreshName("graft_panels"), matrices...)
	if err != nil {
		return err
	}
	first.SetInput(weightOperand, p.g.AddInitializer(t))
	return p.finish(group)
}

// layIntegers is layOut of weights that the model has as integers.
func (p *panels) layIntegers(group []*graph.Node) error {
	first := group[0]
	var list []*model.Integers
	for _, n := range group {
		list = append(list, p.integers[n])
	}
	weight, scales, zeros, err := p.model.IntegerTensors(p.g.FreshName("graft_panels"), list...)
	if err != nil {
		return err
	}
	first.SetInput(weightOperand, p.g.AddInitializer(weight))
	setOperand(first, scaleOperand, p.g.AddInitializer(scales))
	if zeros != nil {
		setOperand(first, zeroOperand, p.g.AddInitializer(zeros))
	}
	return p.finish(group, "activations", activations(list[0]))
}

// activations is how rows are multiplied with integers.
func activations(q *model.Integers) string {
	if q.RoundsRows() {
		return "int8"
	}
	return "float32"
}

// finish lets linear layers of one x, of which the first reads all weights in panels, be one node.
func (p *panels) finish(group []*graph.Node, attributes ...any) error {
	for _, n := range group {
		n.Proto.Attribute = slices.DeleteFunc(n.Proto.Attribute,
			func(a *onnx.Attribute) bool { return a.GetName() == "transposed" })
		columns, _ := p.form(n)
		list := append([]any{"columns", columns}, attributes...)
		for i := 0; i+1 < len(list); i += 2 {
			a, err := rewrite.Attribute(list[i].(string), list[i+1])
			if err != nil {
				return err
			}
			n.Proto.Attribute = append(n.Proto.Attribute, a)
		}
	}
	return Join(p.g, p.shapes, group)
}
