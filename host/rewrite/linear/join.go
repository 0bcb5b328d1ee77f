package linear

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/rewrite"
)

// maxParts is how many matrices one linear layer may hold side by side.
const maxParts = 3

// Groups puts linear layers together that JoinLinear can make one of, those of one x that have as many columns,
// in whole panels, weights of one kind, and a bias for each of them or none. Each group is in the order in which its
// weights are to lie. form says the columns of a layer, and the kind of its weights.
func Groups(list []*graph.Node, form func(*graph.Node) (columns int64, kind string)) (groups [][]*graph.Node) {
	type key struct {
		x       *graph.Value
		columns int64
		kind    string
	}
	open := map[key]int{}
	for _, n := range list {
		k := key{x: n.Input(0)}
		k.columns, k.kind = form(n)
		bias := n.Input(biasOperand)
		joins := k.columns%abi.PanelColumns == 0 &&
			(bias == nil || bias.Tensor != nil && slices.Equal(bias.Tensor.Dims, []int64{k.columns}) &&
				onnx.Tensor_DataType(bias.Tensor.GetDataType()) == onnx.Tensor_FLOAT)
		if i, ok := open[k]; ok && joins && len(groups[i]) < maxParts {
			groups[i] = append(groups[i], n)
			continue
		}
		if joins {
			open[k] = len(groups)
		}
		groups = append(groups, []*graph.Node{n})
	}
	for _, group := range groups {
		if len(group) == 2 && activates(group[1]) && !activates(group[0]) { // a gate activates its first half
			slices.Reverse(group)
		}
	}
	return groups
}

// activates reports a linear layer whose result goes through a function and nowhere else.
func activates(n *graph.Node) bool {
	name, _ := activationOf(n.Out[0])
	return name != ""
}

// Join makes one node of a group of LinearBeside, which has a part of its result for each. Each node has its
// own columns; the first reads the panels of all of them by now, with all that belongs to these. The graph has to be
// sorted afterwards.
func Join(g *graph.Graph, shapes *graph.Shapes, group []*graph.Node) error {
	if len(group) == 1 {
		return nil
	}
	bias, err := biasesBeside(g, group)
	if err != nil {
		return err
	}
	first, columns := group[0], int64(0)
	in := slices.Clone(first.In)
	if bias != nil && len(in) == biasOperand {
		in = append(in, nil)
	}
	if bias != nil {
		in[biasOperand] = bias
	}
	var names []string
	for _, n := range group {
		columns += n.Int("columns", 0)
		names = append(names, g.FreshName("graft_part"))
	}
	attributes := []any{"columns", columns, "parts", int64(len(group))}
	if a := first.Attr("activations"); a != nil { // of weights that are integers
		attributes = append(attributes, "activations", string(a.S))
	}
	r := rewrite.NewEditor(g, shapes)
	n, err := r.AddNode(g, first.Proto.GetDomain(), first.Proto.GetOpType(), in, names, attributes...)
	if err != nil {
		return err
	}
	for i, old := range group {
		y := old.Out[0]
		shapes.Know(n.Out[i], shapes.Of(y))
		r.Declare(n.Out[i], y, true)
		g.Replace(y, n.Out[i])
		g.Remove(old)
	}
	return nil
}

// biasesBeside are those of several linear layers side by side, with zeros where one has none; nil where none has one.
func biasesBeside(g *graph.Graph, group []*graph.Node) (*graph.Value, error) {
	if !slices.ContainsFunc(group, func(n *graph.Node) bool { return n.Input(biasOperand) != nil }) {
		return nil, nil
	}
	t := &onnx.Tensor{Name: proto.String(g.FreshName("graft_biases")), DataType: proto.Int32(int32(onnx.Tensor_FLOAT))}
	total := int64(0)
	for _, n := range group {
		columns := n.Int("columns", 0)
		total += columns
		if n.Input(biasOperand) == nil {
			t.RawData = append(t.RawData, make([]byte, 4*columns)...)
			continue
		}
		b, err := g.Data(n.Input(biasOperand).Tensor)
		if err != nil {
			return nil, err
		}
		t.RawData = append(t.RawData, b...)
	}
	t.Dims = []int64{total}
	return g.AddInitializer(t), nil
}
