package random

import (
	"encoding/binary"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/half"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// widened is a graph and its inputs with float32 or float64 in place of every narrower type: what both sides round.
func widened(g *Graph, feed Feed, to onnx.Tensor_DataType) (*Graph, Feed) {
	p := proto.Clone(g.Model).(*onnx.Model)
	widenGraph(p.Graph, to)
	wide := Feed{}
	for name, a := range feed {
		if narrower(a.Kind, to) {
			a = Array{to, a.Shape, widen(a.Data, a.Kind, to)}
		}
		wide[name] = a
	}
	return &Graph{Model: p}, wide
}

// narrower reports floats of fewer digits.
func narrower(kind, than onnx.Tensor_DataType) bool {
	return kind == f16 && than != f16 || kind == f32 && than == f64
}

func widen(data []byte, from, to onnx.Tensor_DataType) (out []byte) {
	for _, x := range floats(data, from) {
		if to == f64 {
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(x))
		} else {
			out = append32(out, float32(x))
		}
	}
	return out
}

// floats are the elements of a tensor of floats; none of another.
func floats(data []byte, kind onnx.Tensor_DataType) (out []float64) {
	for len(data) > 0 {
		switch kind {
		case f16:
			out, data = append(out, half.ToFloat(read16(data))), data[2:]
		case f32:
			out, data = append(out, float64(math.Float32frombits(read32(data)))), data[4:]
		case f64:
			out, data = append(out, math.Float64frombits(binary.LittleEndian.Uint64(data))), data[8:]
		default:
			return nil
		}
	}
	return out
}

func widenGraph(g *onnx.Graph, to onnx.Tensor_DataType) {
	tensor := func(t *onnx.Tensor) {
		if from := onnx.Tensor_DataType(t.GetDataType()); t != nil && narrower(from, to) {
			t.DataType, t.RawData = proto.Int32(int32(to)), widen(t.RawData, from, to)
		}
	}
	for _, list := range [][]*onnx.ValueInfo{g.Input, g.Output, g.ValueInfo} {
		for _, v := range list {
			if t := v.GetType().GetTensorType(); narrower(onnx.Tensor_DataType(t.GetElemType()), to) {
				t.ElemType = proto.Int32(int32(to))
			}
		}
	}
	for _, t := range g.Initializer {
		tensor(t)
	}
	for _, n := range g.Node {
		for _, a := range n.Attribute {
			tensor(a.T)
			if n.GetOpType() == "Cast" && a.GetName() == "to" && narrower(onnx.Tensor_DataType(a.GetI()), to) {
				a.I = proto.Int64(int64(to))
			}
			if a.G != nil {
				widenGraph(a.G, to)
			}
		}
	}
}

// usesHalves reports a model with inputs or constants of float16.
func usesHalves(p *onnx.Model) bool {
	return slices.ContainsFunc(p.Graph.Input,
		func(v *onnx.ValueInfo) bool { return v.GetType().GetTensorType().GetElemType() == int32(f16) }) ||
		slices.ContainsFunc(p.Graph.Initializer, func(t *onnx.Tensor) bool { return t.GetDataType() == int32(f16) })
}
