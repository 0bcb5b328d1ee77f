package session

import (
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// widen makes the mask of rows that are computed where attention hides keys by another one than the program gives: 1
// where a token is visible in one of the two, 0 where it is in none. It is 2, with which no run goes on, where the
// program's holds anything but 0 and 1, and where attention shows nothing of a sequence that it shows tokens of:
// these would see what is left out.
func (p *unpadding) widen(sizes []graph.Dim) (err error) {
	op := func(name string, in ...*graph.Value) (v *graph.Value) {
		if err == nil {
			v, err = p.op(name, in...)
		}
		return v
	}
	is := func(v *graph.Value, x int32) (same *graph.Value) {
		if err == nil {
			same, err = p.equals(v, x)
		}
		return same
	}
	zero, one, wrong := p.int32s(0), p.int32s(1), p.int32s(2)
	shown := is(p.mask, 1)
	count := p.sum(op("Where", shown, one, zero), &err)
	visible := op("And", is(p.f.Tokens, 1), op("Not", is(count, 0)))
	p.mask = op("Where", shown, one, op("Where", is(p.f.Tokens, 0), zero, op("Where", visible, one, wrong)))
	if err == nil {
		p.state(p.mask, onnx.Tensor_INT32, sizes...)
	}
	return err
}

// sum is that of the last axis of a value (B, S), (B, 1) of int32.
func (p *unpadding) sum(v *graph.Value, err *error) *graph.Value {
	if *err != nil {
		return nil
	}
	in, attributes := []*graph.Value{v}, []any{"keepdims", 1}
	if p.main.Opset("") >= 13 {
		in = append(in, p.longs(1))
	} else {
		attributes = append(attributes, "axes", []int64{1})
	}
	n, failed := p.AddNode(p.main, "", "ReduceSum", in, []string{p.main.FreshName("graft_rows")}, attributes...)
	if failed != nil {
		*err = failed
		return nil
	}
	p.shapes.Know(n.Out[0], graph.Fact{DType: onnx.Tensor_INT32, Rank: 2,
		Dims: []graph.Dim{p.shapes.Of(p.f.Mask).Dims[0], graph.DimInt(1)}})
	return n.Out[0]
}

func (p *unpadding) int32s(x int32) *graph.Value { return p.main.AddInitializer(int32Scalar(x)) }

// equals says where a value of numbers or booleans is x.
func (p *unpadding) equals(v *graph.Value, x int32) (*graph.Value, error) {
	switch p.shapes.Of(v).DType {
	case onnx.Tensor_INT32:
		return p.op("Equal", v, p.int32s(x))
	case onnx.Tensor_INT64:
		return p.op("Equal", v, p.main.AddInitializer(graph.Int64Tensor("", nil, int64(x))))
	}
	n, err := p.AddNode(p.main, "", "Cast", []*graph.Value{v}, []string{p.main.FreshName("graft_rows")}, "to",
		int64(onnx.Tensor_FLOAT))
	if err != nil {
		return nil, err
	}
	return p.op("Equal", n.Out[0], p.main.AddInitializer(graph.FloatTensor("", nil, float32(x))))
}
