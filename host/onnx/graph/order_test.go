package graph

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/onnx/onnxtext"
	"github.com/opgraft/graft/internal/must"
)

// TestNodesOutOfOrder: nodes that stand before those that make what they read are put after them, in branches too, as
// ONNX Runtime does; what cannot be put in order is one error.
func TestNodesOutOfOrder(t *testing.T) {
	for _, c := range []struct{ name, text, order, wrong string }{
		{"in order", `g (float[n] x) => (float[n] y) { a = Relu(x) b = Neg(a) y = Abs(b) }`, "Relu Neg Abs", ""},
		{"a cast last", `g (float[n] x) => (float[n] y) { b = Neg(a) y = Abs(b) a = Cast <to = 1> (x) }`, "Cast Neg Abs", ""},
		{"no more moved than needed", `g (float[n] x) => (float[n] y) { c = Sin(x) y = Add(b, c) d = Cos(x) b = Neg(a)
			a = Relu(x) }`, "Sin Relu Neg Add Cos", ""},
		{"in a branch", `g (float[n] x, bool c) => (float[n] y) { y = If(c) <
			then_branch = t () => (float[n] z) { z = Neg(a) a = Relu(x) },
			else_branch = e () => (float[n] w) { w = Abs(x) }> }`, "If", ""},
		{"for a branch", `g (float[n] x, bool c) => (float[n] y) { y = If(c) <
			then_branch = t () => (float[n] z) { z = Neg(a) },
			else_branch = e () => (float[n] a) { w = Abs(x) }> a = Relu(x) }`, "Relu If", ""},
		{"a cycle", `g (float[n] x) => (float[n] y) { a = Add(x, b) b = Neg(a) y = Abs(b) }`, "",
			"depends on itself: the graph has a cycle"},
		{"a node of itself", `g (float[n] x) => (float[n] y) { y = Add(x, y) }`, "", "the graph has a cycle"},
		{"nothing makes it", `g (float[n] x) => (float[n] y) { y = Add(x, b) }`, "",
			`reads "b", which nothing before it makes`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := must.Value(onnxtext.Read("t", []byte(c.text)))(t)
			g, err := New(m, nil)
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Fatalf("%v, want %q", err, c.wrong)
				}
				return
			}
			must.Succeed(t, err)
			var viewed []string
			for _, n := range g.Nodes {
				viewed = append(viewed, n.Op())
			}
			if got := strings.Join(viewed, " "); got != c.order {
				t.Errorf("%s, want %s", got, c.order)
			}
			for i, n := range g.Nodes {
				if m.Graph.Node[i] != n.Proto {
					t.Error("the model has another order")
				}
			}
		})
	}
}

// TestOrderOfMany: a chain that is written backwards takes no longer than its length, and no deep recursion.
func TestOrderOfMany(t *testing.T) {
	const many = 100000
	m := must.Value(onnxtext.Read("t", []byte(`g (float[n] v0) => (float[n] v100000) { v100000 = Neg(v0) }`)))(t)
	m.Graph.Node = nil
	for i := range many {
		m.Graph.Node = append(m.Graph.Node, &onnx.Node{OpType: proto.String("Neg"),
			Input: []string{link(i)}, Output: []string{link(i + 1)}})
	}
	slices.Reverse(m.Graph.Node)
	g := must.Value(New(m, nil))(t)
	if len(g.Nodes) != many || g.Nodes[0].In[0].Name != "v0" {
		t.Errorf("%d nodes, the first reads %s", len(g.Nodes), g.Nodes[0].In[0].Name)
	}
}

func link(i int) string { return "v" + strconv.Itoa(i) }
