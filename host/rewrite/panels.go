package rewrite

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/abi"
	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/model/onnx"
)

// Panels gives the linear layers of a graph their weights in panels, and lets them do what stands around them: those of one
// x are one, and each begins and ends as FuseLinear says. A weight that something else reads stays as it lies.
func Panels(g *graph.Graph, shapes *graph.Shapes, m *model.Model) error {
	if err := DropReshapes(g, shapes); err != nil {
		return err
	}
	held := map[*graph.Node]model.Matrix{}
	beside := map[*graph.Value][]*graph.Node{} // by x
	var order []*graph.Value
	for _, n := range g.Nodes {
		matrix, ok := weightOf(n)
		if !ok {
			continue
		}
		held[n] = matrix
		if x := n.Input(0); beside[x] == nil {
			order = append(order, x)
		}
		beside[n.Input(0)] = append(beside[n.Input(0)], n)
	}
	p := &panels{g: g, shapes: shapes, model: m, held: held}
	for _, x := range order {
		for _, group := range p.groups(beside[x]) {
			if err := p.layOut(group); err != nil {
				return err
			}
		}
	}
	g.Prune()
	if err := g.Sort(); err != nil {
		return err
	}
	return FuseLinear(g, shapes)
}

// weightOf is the weight of a linear layer that only linear layers read.
func weightOf(n *graph.Node) (model.Matrix, bool) {
	if !n.Is(linear) || n.Int("columns", 0) != 0 {
		return model.Matrix{}, false
	}
	v := n.Input(weightOperand)
	if v == nil || v.Tensor == nil || v.IsOutput || len(v.Tensor.Dims) != 2 || slices.Contains(v.Tensor.Dims, 0) ||
		onnx.Tensor_DataType(v.Tensor.GetDataType()) != onnx.Tensor_FLOAT {
		return model.Matrix{}, false
	}
	if slices.ContainsFunc(v.Uses, func(u graph.Use) bool {
		return !u.Node.Is(linear) || u.Index != weightOperand || u.Node.Graph != n.Graph
	}) {
		return model.Matrix{}, false
	}
	return model.Matrix{Tensor: v.Tensor, Transposed: n.Int("transposed", 0) == 1}, true
}

// maxParts is how many matrices one linear layer may hold side by side.
const maxParts = 3

// panels lays out the weights of a graph.
type panels struct {
	g      *graph.Graph
	shapes *graph.Shapes
	model  *model.Model
	held   map[*graph.Node]model.Matrix
}

// groups puts linear layers of one x together that can be one: as many columns, in whole panels, and a bias for each of them
// or none.
func (p *panels) groups(list []*graph.Node) (groups [][]*graph.Node) {
	open := map[int64]int{} // by columns
	for _, n := range list {
		_, columns := p.held[n].Size()
		bias := n.Input(biasOperand)
		joins := columns%abi.PanelColumns == 0 && (bias == nil || bias.Tensor != nil && slices.Equal(bias.Tensor.Dims, []int64{columns}) && onnx.Tensor_DataType(bias.Tensor.GetDataType()) == onnx.Tensor_FLOAT)
		if i, ok := open[columns]; ok && joins && len(groups[i]) < maxParts {
			groups[i] = append(groups[i], n)
			continue
		}
		if joins {
			open[columns] = len(groups)
		}
		groups = append(groups, []*graph.Node{n})
	}
	return groups
}

// layOut gives linear layers of one x their weights in panels, as one node.
func (p *panels) layOut(group []*graph.Node) error {
	first := group[0]
	var matrices []model.Matrix
	total := int64(0)
	for _, n := range group {
		_, columns := p.held[n].Size()
		matrices, total = append(matrices, p.held[n]), total+columns
	}
	t, err := p.model.Panels(p.g.FreshName("graft_panels"), matrices...)
	if err != nil {
		return err
	}
	first.SetInput(weightOperand, p.g.AddInitializer(t))
	first.Proto.Attribute = slices.DeleteFunc(first.Proto.Attribute, func(a *onnx.Attribute) bool { return a.GetName() == "transposed" })
	columns, err := attribute("columns", total)
	if err != nil {
		return err
	}
	first.Proto.Attribute = append(first.Proto.Attribute, columns)
	if len(group) == 1 {
		return nil
	}
	return p.join(group, total)
}

// join makes one node of several whose weights are one by now.
func (p *panels) join(group []*graph.Node, columns int64) error {
	bias, err := p.biases(group, columns)
	if err != nil {
		return err
	}
	r := &rewriter{main: p.g, order: order{main: p.g}, shapes: p.shapes}
	in := []*graph.Value{group[0].Input(0), group[0].Input(weightOperand)}
	if bias != nil {
		in = append(in, bias)
	}
	var names []string
	for range group {
		names = append(names, p.g.FreshName("graft_part"))
	}
	n, err := r.node(p.g, group[0].Proto.GetDomain(), group[0].Proto.GetOpType(), in, names, "columns", columns, "parts", int64(len(group)))
	if err != nil {
		return err
	}
	for i, old := range group {
		y := old.Out[0]
		p.shapes.Know(n.Out[i], p.shapes.Of(y))
		r.declare(n.Out[i], y, true)
		p.g.Replace(y, n.Out[i])
		p.g.Remove(old)
	}
	return nil
}

// biases are those of several linear layers side by side, with zeros where one has none; nil where none has one.
func (p *panels) biases(group []*graph.Node, columns int64) (*graph.Value, error) {
	if !slices.ContainsFunc(group, func(n *graph.Node) bool { return n.Input(biasOperand) != nil }) {
		return nil, nil
	}
	t := &onnx.Tensor{Name: proto.String(p.g.FreshName("graft_biases")), Dims: []int64{columns}, DataType: proto.Int32(int32(onnx.Tensor_FLOAT))}
	for _, n := range group {
		_, columns := p.held[n].Size()
		if n.Input(biasOperand) == nil {
			t.RawData = append(t.RawData, make([]byte, 4*columns)...)
			continue
		}
		b, err := p.g.Data(n.Input(biasOperand).Tensor)
		if err != nil {
			return nil, err
		}
		t.RawData = append(t.RawData, b...)
	}
	return p.g.AddInitializer(t), nil
}
