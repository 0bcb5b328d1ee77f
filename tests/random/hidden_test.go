package random

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// degenerate is a mask of five queries: of the first half of the keys, of the last, of those up to the query, of those
// after it, of all but one and of all, hidden by one number.
func degenerate(hidden float64) fill {
	return func(r *randSource, shape []int64) func(int64) float64 {
		queries, keys := shape[len(shape)-2], shape[len(shape)-1]
		return func(i int64) float64 {
			row, k := i/keys, i%keys
			q := row%queries + keys - queries // the key of the query itself
			hide := []bool{k <= q, true, k < keys/2, k > q, k >= keys/2, k != q, false}[(row+row/queries)%7]
			if hide {
				return hidden
			}
			return 0
		}
	}
}

// someNaN gives normal numbers, and NaN in one of 50.
func someNaN(r *randSource, shape []int64) func(int64) float64 {
	number := normal(r, shape)
	return func(i int64) float64 {
		if x := number(i); i%50 != 7 {
			return x
		}
		return math.NaN()
	}
}

// TestCausalOverOtherKeys: of a causal MultiHeadAttention over more keys than queries the last query sees all.
func TestCausalOverOtherKeys(t *testing.T) {
	w := &writer{Rand: rand.New(rand.NewPCG(1, 1)), left: map[string]bool{}, opset: 18, float: f32,
		main: &onnx.Graph{Name: proto.String("rows")}}
	w.g = w.main
	q := w.input("query", f32, normal, number(1), number(3), number(16))
	k := w.input("key", f32, normal, number(1), number(7), number(16))
	w.leave(w.node("com.microsoft/MultiHeadAttention", []value{q, k, k}, q.like(q.dims...), "num_heads", 2,
		"unidirectional", 1))
	c, err := newBench(t).check(t.Context(), w.graph(), 1)
	if err != nil || len(c.Replaced) > 0 {
		t.Errorf("got %v, replaced were %v, needed is nothing replaced", err, c.Replaced)
	}
}

// TestRowsWithoutVisibleKeys compares attention in each of its forms where a mask hides rows wholly, or all of a row
// that causality leaves, with each number that masks hide by.
func TestRowsWithoutVisibleKeys(t *testing.T) {
	b := newBench(t)
	b.near = true
	for _, form := range []struct {
		name string
		kept []onnx.Tensor_DataType // types in which it is left alone
	}{
		{"nodes", nil},
		{"nodes with a bias", nil},
		{"nodes with a joint bias", nil},
		{"nodes with their softmax in float32", nil},
		{"nodes with their mask in float32", []onnx.Tensor_DataType{f16}},
		{"nodes with views after their mask", []onnx.Tensor_DataType{f16}},
		{"nodes with undone views after their mask", []onnx.Tensor_DataType{f16}},
		{"nodes with a floor", []onnx.Tensor_DataType{f16}},
		{"nodes with a floor after two masks", []onnx.Tensor_DataType{f16}},
		{"nodes with a clip", []onnx.Tensor_DataType{f16}},
		{"nodes that clear NaN", nil},
		{"nodes that clear NaN of queries", nil},
		{"MultiHeadAttention", nil},
		{"MultiHeadAttention causal", []onnx.Tensor_DataType{f16}},
		{"MultiHeadAttention causal after a past", []onnx.Tensor_DataType{f16}},
		{"Attention", []onnx.Tensor_DataType{f16}},
		{"Attention causal", []onnx.Tensor_DataType{f16}},
		{"Attention causal after a past", []onnx.Tensor_DataType{f16}},
	} {
		for _, kind := range []onnx.Tensor_DataType{f32, f16} {
			for _, hidden := range []float64{math.Inf(-1), lowest(kind), -1e9, -10000, -100} {
				if kind == f16 && hidden == -1e9 {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%g", form.name, strings.ToLower(kind.String()), hidden), func(t *testing.T) {
					c := must.Value(b.check(t.Context(), rows(form.name, kind, hidden), 1))(t)
					if kept := slices.Contains(form.kept, kind); kept == (len(c.Replaced) > 0) {
						t.Errorf("replaced were %v, needed is %t", c.Replaced, !kept)
					}
				})
			}
		}
	}
}

// lowest is the least number of a type.
func lowest(kind onnx.Tensor_DataType) float64 {
	if kind == f16 {
		return -65504
	}
	return -math.MaxFloat32
}

// rows is one attention of a form with a degenerate mask.
func rows(form string, kind onnx.Tensor_DataType, hidden float64) *Graph {
	w := &writer{Rand: rand.New(rand.NewPCG(7, 7)), left: map[string]bool{}, opset: 23, float: kind,
		main: &onnx.Graph{Name: proto.String("rows")}}
	w.g = w.main
	const heads, size = 2, 8
	w.batch, w.tokens = number(2), number(7)
	all := w.tokens
	causal := strings.Contains(form, "causal")
	if strings.Contains(form, "past") {
		all = number(10)
	}
	var in []value
	mask := func() value { return w.input("mask", kind, degenerate(hidden), w.batch, number(1), w.tokens, all) }
	o := value{}
	operator, _, _ := strings.Cut(form, " ")
	switch operator {
	case "nodes":
		for range 3 {
			side := normal
			if len(in) == 0 && strings.HasSuffix(form, "NaN of queries") {
				side = someNaN
			}
			in = append(in, w.input("side", kind, side, w.batch, number(heads), w.tokens, number(size)))
		}
		s := w.node("MatMul", []value{in[0], w.transpose(in[1], 0, 1, 3, 2)},
			value{kind: kind, dims: []dim{w.batch, number(heads), w.tokens, w.tokens}})
		s = w.node("Mul", []value{s, w.full(kind, func(int64) float64 { return 0.35 })}, s.like(s.dims...))
		hides := mask()
		if strings.HasSuffix(form, "their mask in float32") {
			s, hides = w.cast(s, f32), w.cast(hides, f32)
		}
		if strings.HasSuffix(form, "bias") {
			to := &s
			if strings.Contains(form, "joint") {
				to = &hides
			}
			*to = w.node("Add", []value{*to, w.input("bias", kind, normal, number(1), number(heads), w.tokens, w.tokens)},
				s.like(s.dims...))
		}
		s = w.node("Add", []value{s, hides}, s.like(s.dims...))
		if strings.HasSuffix(form, "two masks") {
			s = w.node("Add", []value{s, mask()}, s.like(s.dims...))
		}
		floor := w.full(kind, func(int64) float64 { return lowest(kind) })
		if strings.Contains(form, "floor") {
			s = w.node("Max", []value{s, floor}, s.like(s.dims...))
		} else if strings.HasSuffix(form, "clip") {
			s = w.node("Clip", []value{s, floor}, s.like(s.dims...))
		}
		if strings.Contains(form, "undone views") {
			s = w.node("Unsqueeze", []value{s, w.ints(1)}, s.like(w.batch, number(1), number(heads), w.tokens, w.tokens))
			s = w.node("Squeeze", []value{s, w.ints(1)}, s.like(w.batch, number(heads), w.tokens, w.tokens))
		} else if strings.Contains(form, "views") {
			s = w.node("Reshape", []value{s, w.ints(4, 7, 7)}, s.like(number(4), w.tokens, w.tokens))
		}
		if strings.Contains(form, "softmax in float32") {
			s = w.cast(s, f32)
		}
		p := w.cast(w.unary("Softmax", s, "axis", -1), kind)
		if strings.Contains(form, "clear NaN") {
			p = w.node("Where", []value{w.node("IsNaN", []value{p}, value{kind: boolean, dims: p.dims}),
				w.full(kind, func(int64) float64 { return 0 }), p}, p)
		}
		if p.rank() == 3 {
			p = w.node("Reshape", []value{p, w.ints(2, 2, 7, 7)}, p.like(w.batch, number(heads), w.tokens, w.tokens))
		}
		o = w.node("MatMul", []value{p, in[2]}, p.like(w.batch, number(heads), w.tokens, number(size)))
	default:
		attributes := []any{"unidirectional", 1}
		in = make([]value, 6)
		for i := range 3 {
			in[i] = w.input("side", kind, normal, w.batch, w.tokens, number(heads*size))
		}
		var past []value
		if operator == "MultiHeadAttention" {
			operator, in[5] = "com.microsoft/MultiHeadAttention", mask()
			attributes = append(attributes, "num_heads", heads)
			in = append(in, value{}, value{})
			past = in[6:]
		} else {
			attributes = []any{"is_causal", 1, "q_num_heads", heads, "kv_num_heads", heads}
			in[3] = mask()
			past = in[4:]
		}
		if !causal {
			attributes = attributes[2:]
		}
		made := []value{{kind: kind, dims: in[0].dims}}
		if all.number > w.tokens.number {
			for i := range past {
				past[i] = w.input("past", kind, normal, w.batch, number(heads), number(all.number-w.tokens.number), number(size))
				made = append(made, value{kind: kind, dims: []dim{w.batch, number(heads), all, number(size)}})
			}
		}
		for in[len(in)-1].name == "" {
			in = in[:len(in)-1]
		}
		o = w.nodes(operator, in, made, attributes...)[0]
	}
	w.leave(o)
	return w.graph()
}

// graph is what was written so far.
func (w *writer) graph() *Graph {
	p := &onnx.Model{IrVersion: proto.Int64(10), Graph: w.main, ProducerName: proto.String("random"),
		OpsetImport: []*onnx.OperatorSet{
			{Domain: proto.String(""), Version: proto.Int64(w.opset)},
			{Domain: proto.String("com.microsoft"), Version: proto.Int64(1)}}}
	return &Graph{Model: p, Runs: w.feeds()}
}
