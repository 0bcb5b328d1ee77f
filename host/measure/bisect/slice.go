package bisect

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
)

// slice is a part of a model: the nodes that make some values.
type slice struct {
	graph   *graph.Graph
	shapes  *graph.Shapes
	nodes   map[*graph.Node]bool
	inputs  []*graph.Value // of the part, in the order of the model
	cut     []*graph.Value // those of them that nodes of the model make
	reads   map[*graph.Value]bool
	outputs []*graph.Value
}

// sliceOf is the part that makes some values. With cut it begins at tensors of floats that no node of part makes:
// what is computed from shapes, masks and numbers belongs to it, since blocks are recognised by that. Without, it
// begins at the model's inputs.
func sliceOf(g *graph.Graph, shapes *graph.Shapes, part map[*graph.Node]bool, outputs []*graph.Value, cut bool) *slice {
	s := &slice{graph: g, shapes: shapes, nodes: map[*graph.Node]bool{}, reads: map[*graph.Value]bool{}, outputs: outputs}
	var left []*graph.Value
	read := func(v *graph.Value) {
		if v != nil && v.Graph == g && !s.reads[v] {
			s.reads[v] = true
			left = append(left, v)
		}
	}
	for _, v := range outputs {
		read(v)
	}
	for len(left) > 0 {
		v := left[len(left)-1]
		left = left[:len(left)-1]
		switch n := v.Producer; {
		case n == nil:
			if v.IsInput {
				s.inputs = append(s.inputs, v)
			}
		case cut && !part[n] && v.Tensor == nil && s.large(v):
			s.cut = append(s.cut, v)
		case !s.nodes[n]:
			s.nodes[n] = true
			eachRead(n, read)
		}
	}
	for _, v := range s.cut { // another output of its node may be made by the part all the same
		if s.nodes[v.Producer] {
			return sliceOf(g, shapes, with(part, v.Producer), outputs, cut)
		}
	}
	place := map[string]int{}
	for i, n := range g.Nodes {
		for _, name := range keys(n) {
			place[name] = i + 1
		}
	}
	order := func(a, b *graph.Value) int { return place[a.Name] - place[b.Name] }
	slices.SortFunc(s.cut, order)
	slices.SortStableFunc(s.inputs,
		func(a, b *graph.Value) int { return slices.Index(g.Inputs, a) - slices.Index(g.Inputs, b) })
	slices.SortFunc(s.outputs, order)
	s.inputs = append(s.inputs, s.cut...)
	return s
}

func with(part map[*graph.Node]bool, n *graph.Node) map[*graph.Node]bool {
	more := map[*graph.Node]bool{n: true}
	for m := range part {
		more[m] = true
	}
	return more
}

// large reports a tensor of floats that is neither a number nor a list of them.
func (s *slice) large(v *graph.Value) bool {
	f := s.shapes.Of(v)
	switch f.DType {
	case onnx.Tensor_FLOAT, onnx.Tensor_FLOAT16, onnx.Tensor_DOUBLE, onnx.Tensor_BFLOAT16:
		return f.Rank < 0 || f.Rank > 1
	}
	return false
}

// eachRead goes through what a node and the graphs in it read.
func eachRead(n *graph.Node, f func(*graph.Value)) {
	for _, v := range n.In {
		if v != nil {
			f(v)
		}
	}
	for _, g := range n.Subgraphs {
		for _, inner := range g.Nodes {
			eachRead(inner, f)
		}
		for _, v := range g.Outputs {
			f(v)
		}
	}
}

// edit makes a model, whose graph the part is of, the part. fed are values that its inputs had.
func (s *slice) edit(m *onnx.Model, fed map[string]*ort.Value) {
	g := m.GetGraph()
	g.Node, g.ValueInfo, g.QuantizationAnnotation = nil, nil, nil
	for _, n := range s.graph.Nodes {
		if s.nodes[n] {
			g.Node = append(g.Node, n.Proto)
		}
	}
	read := map[string]bool{}
	for v := range s.reads {
		read[v.Name] = true
	}
	g.Initializer = slices.DeleteFunc(g.Initializer, func(t *onnx.Tensor) bool { return !read[t.GetName()] })
	g.SparseInitializer = slices.DeleteFunc(g.SparseInitializer,
		func(t *onnx.SparseTensor) bool { return !read[t.GetValues().GetName()] })
	g.Input = slices.DeleteFunc(g.Input, func(in *onnx.ValueInfo) bool { return !read[in.GetName()] })
	for _, v := range s.cut {
		g.Input = append(g.Input, s.declare(v, fed[v.Name]))
	}
	g.Output = nil
	for _, v := range s.outputs {
		g.Output = append(g.Output, s.declare(v, nil))
	}
}

// declare is a value as an input that had a value, or as an output.
func (s *slice) declare(v *graph.Value, had *ort.Value) *onnx.ValueInfo {
	info := &onnx.ValueInfo{Name: proto.String(v.Name)}
	f := s.shapes.Of(v)
	t := &onnx.Type_TensorType{ElemType: proto.Int32(int32(f.DType))}
	if had == nil {
		if f.DType != onnx.Tensor_UNDEFINED {
			info.Type = &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: t}}
		}
		return info
	}
	t.ElemType, t.Shape = proto.Int32(int32(had.Element())), &onnx.Shape{}
	for i, n := range had.Shape() {
		d := &onnx.Shape_Dim{}
		known := f.Rank == len(had.Shape())
		if known && f.Dims[i].Is(n) {
			d.Value = &onnx.Shape_Dim_DimValue{DimValue: n}
		} else if known {
			if names := f.Dims[i].Symbols(); len(names) == 1 && f.Dims[i].Equal(graph.DimSym(names[0])) &&
				s.shapes.Declarable(names[0]) {
				d.Value = &onnx.Shape_Dim_DimParam{DimParam: names[0]}
			}
		}
		t.Shape.Dim = append(t.Shape.Dim, d)
	}
	info.Type = &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: t}}
	return info
}
