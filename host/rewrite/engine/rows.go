package engine

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/rewrite"
)

// pointwise are operators that compute each element of each row from the same
// element of their inputs.
var pointwise = map[string]bool{
	"Add": true, "Sub": true, "Mul": true, "Div": true, "Pow": true, "Sqrt": true, "Erf": true, "Tanh": true,
	"Sigmoid": true,
	"Relu":    true, "Gelu": true, "Neg": true, "Reciprocal": true, "Cast": true, "Identity": true, "Min": true,
	"Max":                true,
	"com.microsoft.Gelu": true, "com.microsoft.FastGelu": true, "com.microsoft.QuickGelu": true,
}

// SelectEarly lets an engine graph compute for the selected
// rows alone what nothing but the scores needs: of a prompt's rows, only the last
// goes through what follows the last attention.
func SelectEarly(g *graph.Graph, shapes *graph.Shapes) error {
	at := slices.IndexFunc(g.Nodes, func(n *graph.Node) bool {
		return n.Is("Gather") && n.Input(1) != nil && n.Input(1).IsInput && n.Input(1).Name == SelectInput
	})
	if at < 0 {
		return nil
	}
	pick := g.Nodes[at]
	// What was a batch of sequences is rows now, and the targets of Reshapes are known.
	rewrite.NewEditor(g, shapes).SettleReshapes()
	r := &rows{shapes: shapes, attended: map[*graph.Node]bool{}, late: map[*graph.Node]bool{}}
	if r.of(pick.In[0]) {
		r.length = shapes.Of(pick.In[0]).Dims[0]
	}
	for _, n := range g.Nodes {
		if attends(n) {
			r.attend(n)
		}
	}
	r.visit(pick.In[0].Producer)
	r.settle(pick)
	if !r.late[pick.In[0].Producer] {
		return nil
	}
	selected := map[*graph.Value]*graph.Value{}
	length := shapes.Of(pick.In[1]).Dim(0)
	for _, n := range slices.Clone(g.Nodes) {
		if !r.late[n] {
			continue
		}
		for i, v := range n.In {
			if rewrite.IsConstant(v) || r.late[v.Producer] {
				continue
			}
			if selected[v] == nil {
				p := &onnx.Node{OpType: proto.String("Gather"),
					Attribute: []*onnx.Attribute{{Name: proto.String("axis"), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(0)}}}
				early, err := g.AddNode(p, []*graph.Value{v, pick.In[1]}, []string{g.FreshName("graft.selected")})
				if err != nil {
					return err
				}
				selected[v] = early.Out[0]
				shapes.Know(early.Out[0], ofRows(shapes.Of(v), length))
			}
			n.SetInput(i, selected[v])
		}
		for _, v := range n.Out {
			if v != nil {
				shapes.Know(v, ofRows(shapes.Of(v), length))
			}
		}
	}
	g.Replace(pick.Out[0], pick.In[0])
	g.Prune()
	return g.Commit()
}

// ofRows is what is known of a value with another number of rows.
func ofRows(f graph.Fact, length graph.Dim) graph.Fact {
	f.Dims = slices.Clone(f.Dims)
	f.Dims[0] = length
	return f
}

// rows finds the nodes that need to run for selected rows only.
type rows struct {
	shapes   *graph.Shapes
	length   graph.Dim
	attended map[*graph.Node]bool // what attention needs, of every row
	late     map[*graph.Node]bool
}

func (r *rows) attend(n *graph.Node) {
	if n == nil || r.attended[n] {
		return
	}
	r.attended[n] = true
	for _, v := range n.In {
		if v != nil {
			r.attend(v.Producer)
		}
	}
}

// visit takes a node in, and what makes its inputs.
func (r *rows) visit(n *graph.Node) {
	if n == nil || r.attended[n] || r.late[n] || !r.apart(n) {
		return
	}
	r.late[n] = true
	for _, v := range n.In {
		if !rewrite.IsConstant(v) {
			r.visit(v.Producer)
		}
	}
}

// settle lets go of nodes that something else reads, until none is left.
func (r *rows) settle(pick *graph.Node) {
	for again := true; again; {
		again = false
		for n := range r.late {
			for _, v := range n.Out {
				if v != nil && (v.IsOutput ||
					slices.ContainsFunc(v.Uses, func(u graph.Use) bool { return u.Node != pick && !r.late[u.Node] })) {
					delete(r.late, n)
					again = true
				}
			}
		}
	}
}

// of says whether a value's first axis is that of the rows.
func (r *rows) of(v *graph.Value) bool {
	f := r.shapes.Of(v)
	return f.Rank >= 2 && (!r.length.Known() || f.Dims[0].Equal(r.length))
}

// apart says whether a node computes each row of its outputs from that row of
// its inputs.
func (r *rows) apart(n *graph.Node) bool {
	for _, v := range n.Out {
		if v != nil && !r.of(v) {
			return false
		}
	}
	x := n.Input(0)
	switch {
	case n.Unread() != "":
		return false
	case pointwise[n.Op()]:
		rank := r.shapes.Of(n.Out[0]).Rank
		for _, v := range n.In {
			f := r.shapes.Of(v)
			if rewrite.IsConstant(v) && (f.Rank < rank || f.Rank == rank && f.Dims[0].Is(1)) {
				continue
			}
			if rewrite.IsConstant(v) || !r.of(v) || f.Rank != rank {
				return false
			}
		}
		return true
	case n.Is("LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization"):
		axis := n.Int("axis", -1)
		return r.alone(n) && (axis == -1 || axis > 0)
	case n.Is("ReduceMean", "MatMul"):
		return r.alone(n)
	case n.Is("Gemm"):
		return r.alone(n) && n.Int("transA", 0) == 0
	case n.Is("Split"):
		return r.alone(n) && n.Int("axis", 0) != 0
	case n.Is("Reshape"):
		// A target that leaves the first length open, or takes the input's, fits any.
		target, ok := r.shapes.Of(n.Input(1)).Elems, n.Input(1) != nil && n.Input(1).Tensor != nil
		return ok && r.of(x) && len(target) > 1 && (target[0].Is(-1) || target[0].Is(0) && n.Int("allowzero", 0) == 0)
	}
	return false
}

// alone says whether the first input is the only one that is not constant.
func (r *rows) alone(n *graph.Node) bool {
	for i, v := range n.In {
		if i == 0 != !rewrite.IsConstant(v) {
			return false
		}
	}
	return r.of(n.Input(0))
}
