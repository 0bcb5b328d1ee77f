package session

import (
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/capability"
)

// multipliesIntegers reports a matmul of integers: x, its scale and its zero point, then weights with all that goes
// with each. A plan places it for one weight and integers that another node made.
func multipliesIntegers(n *graph.Node) bool { return n.Provides(capability.IntegerLinear) }

// Inputs of a matmul of integers.
const (
	quantizedOperands = 3 // of x, before the weights
	weightOperands    = 4 // of each weight
	maxWeights        = 3
)

// Layouts of its rows: one after the other; batch, heads, rows, size; and batch, heads, size, rows.
const (
	rowsLayout = iota
	headsLayout
	headsTransposedLayout
)

// joinQuantized lets matmuls of one x be one operator, which rounds x itself where nothing else reads its integers, and
// reads and writes heads as attention has them. Only copies and what is rounded as before change places: all values
// have the bits that they had. fusions are those around them.
func (r *rewriter) joinQuantized(fusions []plan.Fusion) error {
	readers := map[*graph.Value][]*graph.Node{}
	var integers []*graph.Value
	r.main.Walk(func(n *graph.Node) {
		r.main.Spend(1)
		if !multipliesIntegers(n) || len(n.In) > quantizedOperands+weightOperands || n.Graph != n.Input(0).Graph {
			return
		}
		x := n.Input(0)
		if len(readers[x]) == 0 {
			integers = append(integers, x)
		}
		readers[x] = append(readers[x], n)
	})
	if len(integers) == 0 {
		return nil
	}
	if err := r.fuse(fusions); err != nil {
		return err
	}
	for _, x := range integers {
		if err := r.joinReaders(x, readers[x]); err != nil {
			return err
		}
	}
	r.passRanges()
	return nil
}

// joinReaders joins the matmuls that read one x.
func (r *rewriter) joinReaders(x *graph.Value, nodes []*graph.Node) error {
	nodes = slices.DeleteFunc(nodes,
		func(n *graph.Node) bool { return n.Input(1) != nodes[0].Input(1) || n.Input(2) != nodes[0].Input(2) })
	rounds := x.Producer
	floats := rounds != nil && rounds.Is("DynamicQuantizeLinear") && len(nodes) <= maxWeights && readBy(rounds, nodes)
	for part := range slices.Chunk(nodes, maxWeights) {
		if y := part[0].Out[0]; !floats && len(part) == 1 && r.headsOf(y) == nil && r.gelus[y] == nil && r.norms[y] == nil {
			continue
		}
		j := joined{in: slices.Clone(part[0].In[:quantizedOperands])}
		if floats {
			j.in = []*graph.Value{rounds.Input(0), nil, nil}
			j.readHeads(r, rounds)
		}
		for _, n := range part {
			j.add(r, n, len(part) == 1)
		}
		if err := j.place(r, x.Graph); err != nil {
			return err
		}
	}
	return nil
}

// readBy reports that nothing but these nodes reads what a node makes.
func readBy(n *graph.Node, nodes []*graph.Node) bool {
	for _, v := range n.Out {
		if v != nil && (v.IsOutput ||
			slices.ContainsFunc(v.Uses, func(u graph.Use) bool { return !slices.Contains(nodes, u.Node) })) {
			return false
		}
	}
	return true
}

// joined is an operator in the making.
type joined struct {
	in          []*graph.Value
	out         []*graph.Value // that its outputs stand for
	heads       int64
	xLayout     int64
	layouts     [maxWeights]int64
	activations [maxWeights]int64
	norm        *norm // of a matmul alone
}

// geluActivation is GELU by the error function.
const geluActivation = 1

// add takes a matmul in, with the nodes after it that only tell heads apart, or with a GELU, or, of one alone,
// with a sum and its normalisation.
func (j *joined) add(r *rewriter, n *graph.Node, alone bool) {
	out, layout := n.Out[0], int64(rowsLayout)
	if h := r.headsOf(out); h != nil && (j.heads == 0 || j.heads == h.heads) {
		j.heads, out, layout = h.heads, h.value, h.layout
	} else if norm := r.norms[out]; norm != nil && len(j.out) == 0 && alone {
		j.norm, out = norm, norm.output
	} else if gelu := r.gelus[out]; gelu != nil {
		j.activations[len(j.out)], out = geluActivation, gelu
	}
	j.layouts[len(j.out)] = layout
	j.out = append(j.out, out)
	weight := slices.Clone(n.In[quantizedOperands:])
	for len(weight) < weightOperands {
		weight = append(weight, nil)
	}
	j.in = append(j.in, weight...)
}

// readHeads lets x be read where heads lie before they are joined to rows.
func (j *joined) readHeads(r *rewriter, rounds *graph.Node) {
	rows := rounds.Input(0)
	reshape := rows.Producer
	if reshape == nil || !reshape.Is("Reshape") || !onlyRead(rows, rounds) {
		return
	}
	transpose := reshape.Input(0).Producer
	if transpose == nil || !transpose.Is("Transpose") || !onlyRead(transpose.Out[0], reshape) ||
		transpose.Input(0).Graph != rows.Graph {
		return
	}
	perm, _ := transpose.Ints("perm")
	if heads := r.split(rows, transpose.Out[0]); slices.Equal(perm, []int64{0, 2, 1, 3}) && heads > 0 {
		j.in[0], j.heads, j.xLayout = transpose.Input(0), heads, headsLayout
	}
}

// onlyRead reports that a value is read by one node alone.
func onlyRead(v *graph.Value, by *graph.Node) bool {
	return !v.IsOutput && !slices.ContainsFunc(v.Uses, func(u graph.Use) bool { return u.Node != by })
}

// heads is what rows become where attention reads them.
type heads struct {
	value         *graph.Value
	heads, layout int64
}

// headsOf follows rows to their heads, or is nil.
func (r *rewriter) headsOf(rows *graph.Value) *heads {
	if rows.IsOutput || len(rows.Uses) != 1 {
		return nil
	}
	reshape := rows.Uses[0].Node
	if !reshape.Is("Reshape") || rows.Uses[0].Index != 0 || reshape.Graph != rows.Graph {
		return nil
	}
	split := reshape.Out[0]
	if split.IsOutput || len(split.Uses) != 1 || !split.Uses[0].Node.Is("Transpose") ||
		split.Uses[0].Node.Graph != rows.Graph {
		return nil
	}
	transpose := split.Uses[0].Node
	h := &heads{value: transpose.Out[0], heads: r.split(rows, split)}
	switch perm, _ := transpose.Ints("perm"); {
	case h.heads == 0:
		return nil
	case slices.Equal(perm, []int64{0, 2, 1, 3}):
		h.layout = headsLayout
	case slices.Equal(perm, []int64{0, 2, 3, 1}):
		h.layout = headsTransposedLayout
	default:
		return nil
	}
	return h
}

// split is the number of heads where one value is batch, rows and elements, and the other the same with the elements of
// each head apart; else 0.
func (r *rewriter) split(rows, apart *graph.Value) int64 {
	a, b := r.shapes.Of(rows), r.shapes.Of(apart)
	if a.Rank != 3 || b.Rank != 4 || !a.Dims[0].Equal(b.Dims[0]) || !a.Dims[1].Equal(b.Dims[1]) {
		return 0
	}
	all, known := a.Dims[2].Const()
	heads, told := b.Dims[2].Const()
	size, sized := b.Dims[3].Const()
	if !known || !told || !sized || heads <= 0 || size <= 0 || all/heads != size || all%heads != 0 {
		return 0
	}
	return heads
}

// isRounded reports one result in which something is taken in, and which a matmul rounds: the operator finds its
// range on the way.
func (j *joined) isRounded() bool {
	return len(j.out) == 1 && (j.norm != nil || j.activations[0] != 0) &&
		slices.ContainsFunc(j.out[0].Uses, func(u graph.Use) bool {
			return u.Node.Is("DynamicQuantizeLinear") || multipliesIntegers(u.Node)
		})
}

// passRanges lets matmuls that round x know its range where the operator before has found it.
func (r *rewriter) passRanges() {
	r.main.Walk(func(n *graph.Node) {
		r.main.Spend(1)
		if !multipliesIntegers(n) || len(n.In) < quantizedOperands || n.In[1] != nil ||
			n.Int("x_layout", rowsLayout) != rowsLayout {
			return
		}
		if before := n.Input(0).Producer; multipliesIntegers(before) && before.Output(0) == n.Input(0) &&
			before.Output(maxWeights) != nil && before.Graph == n.Graph {
			n.SetInput(1, before.Output(maxWeights))
		}
	})
}

// place puts the operator into the graph.
func (j *joined) place(r *rewriter, g *graph.Graph) error {
	outputs := make([]string, len(j.out))
	for i := range outputs {
		outputs[i] = g.FreshName("graft_y")
	}
	in, epsilon := j.in, 0.
	if j.norm != nil {
		in = append(in, make([]*graph.Value, quantizedOperands+maxWeights*weightOperands-len(in))...)
		in = append(in, r.Latest(j.norm.residual), j.norm.scale, j.norm.bias)
		epsilon = j.norm.epsilon
	}
	if j.isRounded() {
		outputs = append(outputs, "", "", g.FreshName("graft_range"))
	}
	n, err := r.AddOperator(g, capability.IntegerLinear, in, outputs, "epsilon", epsilon, "heads",
		j.heads, "x_layout", j.xLayout, "layouts", j.layouts[:], "activations", j.activations[:])
	if err != nil {
		return err
	}
	for i, v := range j.out {
		r.ReplaceUnnamed(v, n.Out[i])
	}
	return nil
}
