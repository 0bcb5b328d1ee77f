package engine

import (
	"slices"
	"unsafe"

	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/host/rewrite/linear"
)

// Weights that one x is multiplied with lie side by side, and are one linear layer: gate and up of a gated network,
// keys and values, queries too where they are as wide. Panels of [K, N1 + N2] are those of [K, N1] and then those of
// [K, N2] where N1 is whole panels, and so are scales and zero points; a column's sum is the same wherever it lies.

// beside puts weights together that can lie side by side, in the order in which they are to. Weights of different
// kinds cannot, nor can one that several linear layers read.
func beside[T any](list []T, of func(T) *matrix, kind func(T) string) (groups [][]T) {
	byNode := map[*graph.Node]T{}
	var nodes []*graph.Node
	for _, w := range list {
		m := of(w)
		if len(m.nodes) != 1 {
			groups = append(groups, []T{w})
			continue
		}
		byNode[m.nodes[0]], nodes = w, append(nodes, m.nodes[0])
	}
	for _, beside := range linear.Groups(nodes,
		func(n *graph.Node) (int64, string) { return of(byNode[n]).columns, kind(byNode[n]) }) {
		var group []T
		for _, n := range beside {
			group = append(group, byNode[n])
		}
		groups = append(groups, group)
	}
	return groups
}

// shapeBeside is that of tensors that lie side by side.
func shapeBeside(list []*tensor.Tensor) []int64 {
	shape := slices.Clone(list[0].Shape)
	for _, t := range list[1:] {
		shape[0] += t.Shape[0]
	}
	return shape
}

// lieIn has tensors lie one after the other where data is.
func lieIn(data []byte, list []*tensor.Tensor) {
	for _, t := range list {
		t.Data = unsafe.Pointer(unsafe.SliceData(data))
		data = data[len(t.Bytes()):]
	}
}

// operand is what linear layers read at a position: of each weight of a group a tensor, which lie one after the other.
type operand struct {
	at      int
	name    string
	tensors []*tensor.Tensor
}

// stand lets the linear layers of a group of weights multiply with what is laid out: as one where there are several.
func (p *panels) stand(of *prepare.Graph, l *ort.Library, group []*matrix, operands []operand,
	attributes ...*onnx.Attribute) error {
	inputs := make([]*graph.Value, len(operands))
	for i, o := range operands {
		whole := &tensor.Tensor{DType: o.tensors[0].DType, Shape: shapeBeside(o.tensors), Data: o.tensors[0].Data}
		var err error
		if inputs[i], err = p.input(l, of.Graph, o.name+group[0].value.Name, whole); err != nil {
			return err
		}
	}
	var nodes []*graph.Node
	for _, m := range group {
		for _, n := range m.nodes {
			for i, o := range operands {
				for len(n.In) <= o.at {
					n.In = append(n.In, nil)
				}
				n.SetInput(o.at, inputs[i])
			}
			n.Proto.Attribute = slices.DeleteFunc(n.Proto.Attribute,
				func(a *onnx.Attribute) bool { return a.GetName() == "transposed" })
			n.Proto.Attribute = append(append(n.Proto.Attribute, integer("columns", m.columns)), attributes...)
		}
		nodes = append(nodes, m.nodes...)
	}
	if len(group) == 1 {
		return nil
	}
	return linear.Join(of.Graph, of.Shapes, nodes)
}
