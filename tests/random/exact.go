package random

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/half"
	"github.com/opgraft/graft/host/model/onnx"
)

// widened is a graph and its inputs with float32 in place of float16: what both sides round.
func widened(g *Graph, feed Feed) (*Graph, Feed) {
	p := proto.Clone(g.Model).(*onnx.Model)
	widenGraph(p.Graph)
	wide := Feed{}
	for name, a := range feed {
		if a.Kind == f16 {
			a = Array{f32, a.Shape, widen(a.Data)}
		}
		wide[name] = a
	}
	return &Graph{Model: p}, wide
}

func widen(data []byte) (out []byte) {
	for i := 0; i < len(data); i += 2 {
		out = append32(out, float32(half.ToFloat(read16(data[i:]))))
	}
	return out
}

func widenGraph(g *onnx.Graph) {
	tensor := func(t *onnx.Tensor) {
		if t != nil && t.GetDataType() == int32(f16) {
			t.DataType, t.RawData = proto.Int32(int32(f32)), widen(t.RawData)
		}
	}
	for _, list := range [][]*onnx.ValueInfo{g.Input, g.Output, g.ValueInfo} {
		for _, v := range list {
			if t := v.GetType().GetTensorType(); t.GetElemType() == int32(f16) {
				t.ElemType = proto.Int32(int32(f32))
			}
		}
	}
	for _, t := range g.Initializer {
		tensor(t)
	}
	for _, n := range g.Node {
		for _, a := range n.Attribute {
			tensor(a.T)
			if n.GetOpType() == "Cast" && a.GetName() == "to" && a.GetI() == int64(f16) {
				a.I = proto.Int64(int64(f32))
			}
			if a.G != nil {
				widenGraph(a.G)
			}
		}
	}
}

// usesHalves reports a model with inputs or constants of float16.
func usesHalves(p *onnx.Model) bool {
	return slices.ContainsFunc(p.Graph.Input, func(v *onnx.ValueInfo) bool { return v.GetType().GetTensorType().GetElemType() == int32(f16) }) ||
		slices.ContainsFunc(p.Graph.Initializer, func(t *onnx.Tensor) bool { return t.GetDataType() == int32(f16) })
}
