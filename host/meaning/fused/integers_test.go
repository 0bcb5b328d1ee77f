package fused_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/meaning/fused"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

const layer = `
	in x f32[rows, 64]
	in given f32[32, 2]
	out y f32[rows, 32]
	const w u8[32, 2, 16]
	const w8 u8[32, 2, 32]
	const small u8[32, 4, 8]
	const two u8[32, 2, 8]
	const s f32[64]
	const s4 f32[128]
	const z u8[32]
	const zf f32[64]
	const order i32[64]
	const b f32[32]
	`

// TestProductsWithIntegers: a MatMulNBits whose integers can be laid out in panels is a matmul and a sum in the view,
// the model has neither before a commit, and what nothing took is put back to the last attribute. Others stay, with a
// reason.
func TestProductsWithIntegers(t *testing.T) {
	const of = " K=64 N=32 bits=4 block_size=32"
	for _, c := range []struct {
		name, text string
		want       []string // operators; nil where it stays
		stays      string
	}{
		{"four bits", "y = com.microsoft.MatMulNBits(x, w, s)" + of, []string{"MatMul"}, ""},
		{"a bias", "y = com.microsoft.MatMulNBits(x, w, s, , , b)" + of, []string{"MatMul", "Add"}, ""},
		{"zero points and a bias", "y = com.microsoft.MatMulNBits(x, w, s, z, , b) accuracy_level=4" + of,
			[]string{"MatMul", "Add"}, ""},
		{"eight bits", "y = com.microsoft.MatMulNBits(x, w8, s) K=64 N=32 bits=8 block_size=32", []string{"MatMul"}, ""},
		{"a weight that two read", "a = com.microsoft.MatMulNBits(x, w, s)" + of + "\nc = com.microsoft.MatMulNBits(x, w, " +
			"s, , , b)" + of + "\ny = Mul(a, c)", []string{"MatMul", "MatMul", "Add", "Mul"}, ""},
		{"blocks of 16", "y = com.microsoft.MatMulNBits(x, small, s4) K=64 N=32 bits=4 block_size=16", nil,
			"in blocks of 16"},
		{"two bits", "y = com.microsoft.MatMulNBits(x, two, s) K=64 N=32 bits=2 block_size=32", nil, "2 bits"},
		{"groups in an order of their own", "y = com.microsoft.MatMulNBits(x, w, s, , order)" + of, nil, "g_idx"},
		{"zero points of float32", "y = com.microsoft.MatMulNBits(x, w, s, zf)" + of, nil, "zero points are float32"},
		{"scales that callers give", "y = com.microsoft.MatMulNBits(x, w, given)" + of, nil, "no constant"},
		{"sizes that the weight has not", "y = com.microsoft.MatMulNBits(x, w, s) K=64 N=32 bits=4 block_size=64", nil,
			"scales of float32 [64]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, shapes := blockstest.Graph(t, layer+c.text)
			for _, n := range g.Nodes {
				if why := fused.WholeNBits(n); n.Is(fused.NBits) &&
					((why == "") != (c.stays == "") || !strings.Contains(why, c.stays)) {
					t.Errorf("stays because %q, want %q", why, c.stays)
				}
			}
			before := proto.CloneOf(g.Model())
			p := must.Value(fused.TakeApart(g, shapes))(t)
			if !proto.Equal(before, g.Model()) {
				t.Error("the model changes before a commit")
			}
			if p.Any() != (c.want != nil) || c.want != nil && !slices.Equal(operators(g), c.want) {
				t.Fatalf("operators %v, want %v", operators(g), c.want)
			}
			must.Succeed(t, p.PutBack(g))
			for i, n := range g.Model().Graph.Node {
				if !proto.Equal(before.Graph.Node[i], n) {
					t.Errorf("put back is %v\nof %v", n, before.Graph.Node[i])
				}
			}
			must.Equal(t, len(g.Model().Graph.Node), len(before.Graph.Node))
			for _, x := range g.Model().Graph.Initializer {
				if !slices.ContainsFunc(before.Graph.Initializer, func(y *onnx.Tensor) bool { return proto.Equal(x, y) }) {
					t.Errorf("%s is a new constant", x.GetName())
				}
			}
		})
	}
}

// TestBiasThatSomethingTook: a sum that is not there any more stays apart, and the product has its integers again.
func TestBiasThatSomethingTook(t *testing.T) {
	g, shapes := blockstest.Graph(t, layer+"y = com.microsoft.MatMulNBits(x, w, s, , , b) K=64 N=32 bits=4 block_size=32")
	p := must.Value(fused.TakeApart(g, shapes))(t)
	sum := g.Nodes[1]
	rows, bias := sum.In[0], sum.In[1]
	sum.SetInput(0, bias)
	sum.SetInput(1, rows)
	must.Succeed(t, p.PutBack(g))
	must.Equal(t, operators(g), []string{fused.NBits, "Add"})
	must.Equal(t, g.Model().Graph.Node[0].Input, []string{"x", "w", "s"})
}
