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
	p := &panels{g: g, shapes: shapes, model: m, held: held, integers: map[*graph.Node]*model.Integers{}}
	for n, matrix := range held {
		if q := m.IntegersOf(matrix.Tensor); q != nil {
			p.integers[n] = q
		}
	}
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
	// integers are those that weights stand for, where the model has them so.
	integers map[*graph.Node]*model.Integers
}

// groups puts linear layers of one x together that can be one: as many columns, in whole panels, integers of one form or none, and a bias for each of them
// or none.
func (p *panels) groups(list []*graph.Node) (groups [][]*graph.Node) {
	type form struct {
		columns, bits, groups int64
		zeros, rounds         bool
	}
	open := map[form]int{}
	for _, n := range list {
		_, columns := p.held[n].Size()
		bias := n.Input(biasOperand)
		joins := columns%abi.PanelColumns == 0 && (bias == nil || bias.Tensor != nil && slices.Equal(bias.Tensor.Dims, []int64{columns}) && onnx.Tensor_DataType(bias.Tensor.GetDataType()) == onnx.Tensor_FLOAT)
		as := form{columns: columns}
		if q := p.integers[n]; q != nil {
			sizes, _ := q.Panels()
			as = form{columns, q.Bits, sizes.Groups, sizes.Zeros, q.RoundsRows()}
		}
		if i, ok := open[as]; ok && joins && len(groups[i]) < maxParts {
			groups[i] = append(groups[i], n)
			continue
		}
		if joins {
			open[as] = len(groups)
		}
		groups = append(groups, []*graph.Node{n})
	}
	return groups
}

// layOut gives linear layers of one x their weights in panels, as one node.
func (p *panels) layOut(group []*graph.Node) error {
	first := group[0]
	if p.integers[first] != nil {
		return p.layIntegers(group)
	}
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
	return p.finish(group, total)
}

// layIntegers is layOut of weights that the model has as integers.
func (p *panels) layIntegers(group []*graph.Node) error {
	first, total := group[0], int64(0)
	var list []*model.Integers
	for _, n := range group {
		list, total = append(list, p.integers[n]), total+p.integers[n].Columns
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
	return p.finish(group, total, "activations", activations(list[0]))
}

// activations is how rows are multiplied with integers.
func activations(q *model.Integers) string {
	if q.RoundsRows() {
		return "int8"
	}
	return "float32"
}

// finish lets linear layers of one x, of which the first reads all weights in panels, be one node.
func (p *panels) finish(group []*graph.Node, columns int64, attributes ...any) error {
	if len(group) > 1 {
		return p.join(group, columns, attributes...)
	}
	first := group[0]
	first.Proto.Attribute = slices.DeleteFunc(first.Proto.Attribute, func(a *onnx.Attribute) bool { return a.GetName() == "transposed" })
	attributes = append(attributes, "columns", columns)
	for i := 0; i+1 < len(attributes); i += 2 {
		a, err := attribute(attributes[i].(string), attributes[i+1])
		if err != nil {
			return err
		}
		first.Proto.Attribute = append(first.Proto.Attribute, a)
	}
	return nil
}

// join makes one node of several whose weights are one by now.
func (p *panels) join(group []*graph.Node, columns int64, attributes ...any) error {
	bias, err := p.biases(group, columns)
	if err != nil {
		return err
	}
	r := &rewriter{main: p.g, order: order{main: p.g}, shapes: p.shapes}
	in := slices.Clone(group[0].In)
	if bias != nil {
		for len(in) <= biasOperand {
			in = append(in, nil)
		}
		in[biasOperand] = bias
	}
	var names []string
	for range group {
		names = append(names, p.g.FreshName("graft_part"))
	}
	n, err := r.node(p.g, group[0].Proto.GetDomain(), group[0].Proto.GetOpType(), in, names, append(attributes, "columns", columns, "parts", int64(len(group)))...)
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
