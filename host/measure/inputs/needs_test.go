package inputs

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// numbers is a constant of int64.
func numbers(name string, list ...int64) *onnx.Tensor {
	return &onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(i64)), Dims: []int64{int64(len(list))},
		Int64Data: list}
}

// bytesOf is a constant of zeros of a type of one byte.
func bytesOf(name string, kind onnx.Tensor_DataType, dims ...int64) *onnx.Tensor {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return &onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(kind)), Dims: dims, RawData: make([]byte, n)}
}

// TestInputsOperatorsTake: lengths that no input names are those that the graph's operators need, and the model runs
// with what is made for it.
func TestInputsOperatorsTake(t *testing.T) {
	open := func(names ...any) []value { return []value{{name: "x", dims: names}} }
	for _, c := range []struct {
		name   string
		ins    []value
		tables []*onnx.Tensor
		nodes  []string
		want   string
	}{
		{"channels", open("batch", "c", "h", "w"), []*onnx.Tensor{table("k", 4, 3, 2, 2)}, []string{"y = Conv(x, k)"},
			"[1 3 224 224]"},
		{"channels of weights of eight bits", open("batch", "c", "h", "w"),
			[]*onnx.Tensor{bytesOf("q", onnx.Tensor_INT8, 4, 3, 2, 2), table("scale")},
			[]string{"k = DequantizeLinear(q, scale)", "y = Conv(x, k)"}, "[1 3 224 224]"},
		{"channels at the end", open("batch", "h", "w", "c"), []*onnx.Tensor{table("k", 4, 3, 2, 2)},
			[]string{"t = Transpose(x) perm=0,3,1,2", "y = Conv(t, k)"}, "[1 128 128 3]"},
		{"channels far away", open("batch", "c", "h", "w"),
			[]*onnx.Tensor{table("k", 4, 3, 2, 2), table("s"), bytesOf("z", onnx.Tensor_UINT8)},
			[]string{"a = Relu(x)", "q = QuantizeLinear(a, s, z)", "d = DequantizeLinear(q, s, z)", "e = Tanh(d)", "f = Abs(e)",
				"g = Neg(f)", "y = Conv(g, k)"}, "[1 3 128 128]"},
		{"groups", open("batch", "c", "t"), []*onnx.Tensor{table("k", 6, 1, 3)}, []string{"y = Conv(x, k) group=6"},
			"[1 6 128]"},
		{"channels of what is made larger", open("batch", "c", "t"), []*onnx.Tensor{table("k", 6, 2, 3)},
			[]string{"y = ConvTranspose(x, k)"}, "[1 6 128]"},
		{"the width of a matrix", open("batch", "s", "d"), []*onnx.Tensor{table("w", 24, 5)}, []string{"y = MatMul(x, w)"},
			"[1 128 24]"},
		{"a matrix the other way round", open("batch", "d"), []*onnx.Tensor{table("w", 5, 24)},
			[]string{"y = Gemm(x, w) transB=1"}, "[1 24]"},
		{"a recurrent layer", open("s", "batch", "d"), []*onnx.Tensor{table("w", 1, 32, 6), table("r", 1, 32, 8)},
			[]string{"y = LSTM(x, w, r) hidden_size=8"}, "[128 1 6]"},
		{"a norm", open("batch", "c", "s"), []*onnx.Tensor{table("g", 12), table("o", 12)},
			[]string{"y = InstanceNormalization(x, g, o)"}, "[1 12 128]"},
		{"a table that is added", open("batch", "s", "d"), []*onnx.Tensor{table("p", 1, 77, 16)}, []string{"y = Add(x, p)"},
			"[1 77 16]"},
		{"a row that is put before", open("batch", "s", "d"), []*onnx.Tensor{table("first", 1, 1, 16)},
			[]string{"y = Concat(first, x) axis=1"}, "[1 128 16]"},
		{"squares with positions", open("batch", "c", "h", "w"),
			[]*onnx.Tensor{table("k", 6, 3, 4, 4), table("first", 1, 1, 6), table("p", 1, 26, 6), numbers("flat", 0, 6, -1)},
			[]string{"a = Conv(x, k) strides=4,4", "r = Reshape(a, flat)", "s = Transpose(r) perm=0,2,1",
				"j = Concat(first, s) axis=1", "y = Add(j, p)"}, "[1 3 20 20]"},
		{"squares whose positions are looked up", open("batch", "c", "h", "w"),
			[]*onnx.Tensor{table("k", 6, 3, 4, 4), table("p", 25, 6), numbers("flat", 0, 6, -1),
				{Name: proto.String("ids"), DataType: proto.Int32(int32(i64)), Dims: []int64{1, 25}, RawData: make([]byte, 200)}},
			[]string{"f = Identity(x)", "a = Conv(f, k) strides=4,4", "r = Reshape(a, flat)", "s = Transpose(r) perm=0,2,1",
				"q = Gather(p, ids)", "y = Add(s, q)"}, "[1 3 20 20]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := write(t, c.ins, []value{{name: "y", dims: []any{}}}, c.tables, c.nodes...)
			values, infos := made(t, path, Options{Seed: 1})
			must.Equal(t, fmt.Sprint(infos["x"].Shape), c.want)
			runs(t, path, values)
		})
	}
}

// runs fails where ONNX Runtime does not run a model on values.
func runs(t *testing.T, path string, values map[string]*ort.Value) {
	t.Helper()
	s := must.Value(session.Open(library(t), path, session.Options{Unpatched: true}))(t)
	defer s.Close()
	out := must.Value(s.Run(context.Background(), values))(t)
	for _, v := range out {
		v.Close()
	}
}

// TestInputsWithinPositions: past and new tokens together are not more than the positions of a model, however it
// reads them.
func TestInputsWithinPositions(t *testing.T) {
	ids := []value{{name: "input_ids", dims: []any{"batch", "sequence"}, kind: i64}}
	past := append(ids[:1:1], value{name: "past_key_values.0.key", dims: []any{"batch", 2, "past_sequence", 4}})
	words := []*onnx.Tensor{table("words", 50, 6), numbers("zero", 0), numbers("one", 1), numbers("second", 1),
		numbers("third", 2)}
	for _, c := range []struct {
		name   string
		ins    []value
		tables []*onnx.Tensor
		nodes  []string
		dims   map[string]int64
		want   string // shapes
	}{
		{"a table that is cut", ids, append(words[:5:5], table("p", 1, 20, 6)),
			[]string{"e = Gather(words, input_ids)", "s = Shape(e)", "n = Slice(s, one, third)", "q = Slice(p, zero, n, second)",
				"y = Add(e, q)"}, nil, "[[1 20]]"},
		{"positions that are cut", ids,
			append(words[:5:5], table("p", 20, 6),
				&onnx.Tensor{Name: proto.String("ids"), DataType: proto.Int32(int32(i64)), Dims: []int64{1, 20},
					RawData: make([]byte, 160)}),
			[]string{"e = Gather(words, input_ids)", "s = Shape(input_ids)", "n = Slice(s, one, third)",
				"i = Slice(ids, zero, n, second)", "q = Gather(p, i)", "y = Add(e, q)"}, nil, "[[1 20]]"},
		{"positions that count what is seen", ids, append(words[:5:5], table("p", 20, 6)),
			[]string{"e = Gather(words, input_ids)", "s = Equal(input_ids, third)", "m = Not(s)", "k = Cast(m) to=7",
				"c = CumSum(k, axis)", "i = Add(c, second)", "q = Gather(p, i)", "y = Add(e, q)"}, nil, "[[1 18]]"},
		{"a table that is cut behind a past", past, append(words[:5:5], table("p", 1, 20, 6)),
			[]string{"e = Gather(words, input_ids)", "s = Shape(e)", "n = Slice(s, one, third)",
				"t = Shape(past_key_values.0.key)", "m = Slice(t, third, three)", "l = Add(m, n)",
				"q = Slice(p, m, l, second)", "y = Add(e, q)"}, nil, "[[1 1] [1 2 19 4]]"},
		{"coordinates of a table",
			append(past[:2:2], value{name: "position_ids", dims: []any{"batch", "sequence"}, kind: i64}),
			append(words[:5:5], table("p", 20, 6), numbers("last", -1)),
			[]string{"e = Gather(words, input_ids)", "i = Unsqueeze(position_ids, last)", "q = GatherND(p, i)",
				"t = ReduceSum(past_key_values.0.key)", "a = Add(e, q)", "y = Add(a, t)"}, nil, "[[1 1] [1 2 19 4] [1 1]]"},
		{"with tokens that are asked for", past, append(words[:5:5], table("p", 1, 20, 6)),
			[]string{"e = Gather(words, input_ids)", "s = Shape(e)", "n = Slice(s, one, third)",
				"t = Shape(past_key_values.0.key)", "m = Slice(t, third, three)", "l = Add(m, n)",
				"q = Slice(p, m, l, second)", "y = Add(e, q)"}, map[string]int64{"sequence": 6}, "[[1 6] [1 2 14 4]]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := write(t, c.ins, []value{{name: "y", dims: []any{}}},
				append(c.tables, numbers("three", 3),
					&onnx.Tensor{Name: proto.String("axis"), DataType: proto.Int32(int32(i64)), Int64Data: []int64{1}}), c.nodes...)
			values, infos := made(t, path, Options{Seed: 1, Dims: c.dims})
			var shapes [][]int64
			for _, in := range c.ins {
				shapes = append(shapes, infos[in.name].Shape)
			}
			must.Equal(t, fmt.Sprint(shapes), c.want)
			runs(t, path, values)
		})
	}
}
