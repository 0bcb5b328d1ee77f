package engine

import (
	"slices"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/rewrite"
)

// TurnAtOnce puts one RotaryEmbedding of ONNX Runtime's own in place of the ten nodes or
// so that an export turns queries and keys with, in an engine graph:
// at one token a step a node costs as much as the arithmetic of a dozen. Each row is a
// sequence of one token there, so the cosines and sines of the step, a line for each
// row, are the operator's tables, and a row's position is its number. How angles are
// computed is no matter, but both of a pair must be the same, and one of them is taken
// once a step. A row's features lie in memory alike whatever axes of length 1 they have,
// which is all that attention over a pool asks: views between are left out.
func TurnAtOnce(g *graph.Graph, shapes *graph.Shapes) error {
	t := &turner{Editor: rewrite.NewEditor(g, shapes), main: g, shapes: shapes, tables: map[blocks.Pairs]*graph.Value{}}
	turned := false
	for _, turn := range blocks.FindTurns(g, shapes) {
		did, err := t.turn(&turn)
		if err != nil {
			return err
		}
		turned = turned || did
	}
	if !turned {
		return nil
	}
	g.ImportOpset("com.microsoft", 1)
	if err := g.Sort(); err != nil {
		return err
	}
	g.Prune()
	return g.Commit()
}

type turner struct {
	*rewrite.Editor
	main   *graph.Graph
	shapes *graph.Shapes
	tables map[blocks.Pairs]*graph.Value // (rows, Size/2)
	rows   []numbered
}

// numbered are the numbers of rows, int64 (rows, 1).
type numbered struct {
	length  graph.Dim
	numbers *graph.Value
}

// turn replaces one, and reports whether it could.
func (t *turner) turn(turn *blocks.Turn) (bool, error) {
	x := t.shapes.Of(turn.Of)
	heads, size, ok := headsOf(x.Dims)
	if !ok || x.DType != onnx.Tensor_FLOAT || !rewrite.SameDims(t.shapes.Of(turn.Result).Dims, x.Dims) ||
		!t.byRow(turn.Cos.Of, x.Dims[0]) || !t.byRow(turn.Sin.Of, x.Dims[0]) ||
		len(turn.Result.Uses) == 0 && !turn.Result.IsOutput {
		return false, nil
	}
	features, err := t.features(turn.Of, heads, size)
	if err != nil {
		return false, err
	}
	cos, err := t.table(turn.Cos, turn.Size/2)
	if err != nil {
		return false, err
	}
	sin, err := t.table(turn.Sin, turn.Size/2)
	if err != nil {
		return false, err
	}
	rows, err := t.numbers(cos, x.Dims[0])
	if err != nil {
		return false, err
	}
	attributes := []any{"interleaved", turn.Style == "interleaved", "num_heads", heads}
	if turn.Size < size {
		attributes = append(attributes, "rotary_embedding_dim", turn.Size)
	}
	n, err := t.AddNode(t.main, "com.microsoft", "RotaryEmbedding", []*graph.Value{features, rows, cos, sin},
		[]string{t.main.FreshName("graft_turned")}, attributes...)
	if err != nil {
		return false, err
	}
	t.shapes.Know(n.Out[0], t.shapes.Of(features))
	return true, t.hand(turn.Result, n.Out[0])
}

// headsOf reads dimensions (rows, ..., size) of which those between are lengths that are known.
func headsOf(dims []graph.Dim) (heads, size int64, ok bool) {
	if len(dims) < 2 || !dims[0].Known() {
		return 0, 0, false
	}
	if _, constant := dims[0].Const(); constant {
		return 0, 0, false
	}
	heads = 1
	for _, d := range dims[1 : len(dims)-1] {
		n, ok := d.Const()
		if !ok || n < 1 {
			return 0, 0, false
		}
		heads *= n
	}
	size, ok = dims[len(dims)-1].Const()
	return heads, size, ok && size > 0
}

// byRow reports angles that are one line of float32 for each row.
func (t *turner) byRow(v *graph.Value, rows graph.Dim) bool {
	s := t.shapes.Of(v)
	lines, _, ok := headsOf(s.Dims)
	return ok && lines == 1 && s.DType == onnx.Tensor_FLOAT && s.Dims[0].Equal(rows)
}

// features is what is turned as the operator takes it: (rows, 1, heads * size), which linear
// layers make, or (rows, heads, 1, size).
func (t *turner) features(v *graph.Value, heads, size int64) (*graph.Value, error) {
	flat := (*graph.Value)(nil)
	rows := t.shapes.Of(v).Dims[0]
	for up := v; up != nil; up = t.viewed(up.Producer) {
		t.main.Spend(1)
		s := t.shapes.Of(up)
		switch {
		case s.Rank < 2 || !s.Dims[0].Equal(rows) || !s.Dim(-1).Is(heads*size) || s.DType != onnx.Tensor_FLOAT:
		case s.Rank == 3 && s.Dims[1].Is(1):
			return up, nil
		case s.Rank == 2:
			flat = up
		}
	}
	if s := t.shapes.Of(v); flat == nil && s.Rank == 4 && s.Dims[2].Is(1) {
		return v, nil
	}
	if flat == nil {
		flat = v
	}
	return t.reshaped(flat, []int64{-1, 1, heads * size}, []graph.Dim{rows, graph.DimInt(1), graph.DimInt(heads * size)})
}

// viewed is what a node gives other axes without moving an element in memory; nil for another node.
func (t *turner) viewed(n *graph.Node) *graph.Value {
	switch {
	case n.Is("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"):
		return n.Input(0)
	case n.Is("Transpose"):
		dims, last := t.shapes.Of(n.Input(0)).Dims, int64(-1)
		perm, ok := n.Ints("perm")
		if !ok || len(perm) != len(dims) {
			return nil
		}
		for _, axis := range perm {
			if dims[axis].Is(1) {
				continue
			}
			if axis < last {
				return nil
			}
			last = axis
		}
		return n.Input(0)
	}
	return nil
}

// reshaped is a value in other dimensions.
func (t *turner) reshaped(v *graph.Value, to []int64, dims []graph.Dim) (*graph.Value, error) {
	target := t.main.AddInitializer(graph.Int64Tensor("", []int64{int64(len(to))}, to...))
	n, err := t.AddNode(t.main, "", "Reshape", []*graph.Value{v, target}, []string{t.main.FreshName("graft_rows")})
	if err != nil {
		return nil, err
	}
	t.shapes.Know(n.Out[0], graph.Fact{DType: t.shapes.Of(v).DType, Rank: len(dims), Dims: dims})
	return n.Out[0], nil
}

// table is a line for each row of what stands once for each pair.
func (t *turner) table(p blocks.Pairs, pairs int64) (*graph.Value, error) {
	if made := t.tables[p]; made != nil {
		return made, nil
	}
	half := graph.DimInt(pairs)
	in := []*graph.Value{p.Of}
	for _, x := range []int64{p.First, p.First + pairs*p.Step, -1, p.Step} {
		in = append(in, t.main.AddInitializer(graph.Int64Tensor("", []int64{1}, x)))
	}
	n, err := t.AddNode(t.main, "", "Slice", in, []string{t.main.FreshName("graft_angles")})
	if err != nil {
		return nil, err
	}
	s := t.shapes.Of(p.Of)
	dims := slices.Clone(s.Dims)
	dims[len(dims)-1] = half
	t.shapes.Know(n.Out[0], graph.Fact{DType: s.DType, Rank: len(dims), Dims: dims})
	made := n.Out[0]
	if len(dims) != 2 {
		if made, err = t.reshaped(made, []int64{-1, pairs}, []graph.Dim{dims[0], half}); err != nil {
			return nil, err
		}
	}
	t.tables[p] = made
	return made, nil
}

// numbers are those of rows, of which a table has one each.
func (t *turner) numbers(table *graph.Value, rows graph.Dim) (*graph.Value, error) {
	for _, r := range t.rows {
		if r.length.Equal(rows) {
			return r.numbers, nil
		}
	}
	v, err := rowNumbers(t.Editor, t.main, table)
	if err != nil {
		return nil, err
	}
	t.rows = append(t.rows, numbered{rows, v})
	return v, nil
}

// rowNumbers are the numbers of a table's rows, int64 (rows, 1).
func rowNumbers(e *rewrite.Editor, g *graph.Graph, table *graph.Value) (v *graph.Value, err error) {
	number := func(x int64, dims ...int64) *graph.Value { return g.AddInitializer(graph.Int64Tensor("", dims, x)) }
	column := g.AddInitializer(graph.Int64Tensor("", []int64{2}, -1, 1))
	for _, by := range []struct {
		op         string
		in         func() []*graph.Value
		attributes []any
	}{
		{"Shape", func() []*graph.Value { return []*graph.Value{table} }, nil},
		{"Gather", func() []*graph.Value { return []*graph.Value{v, number(0)} }, []any{"axis", 0}},
		{"Range", func() []*graph.Value { return []*graph.Value{number(0), v, number(1)} }, nil},
		{"Reshape", func() []*graph.Value { return []*graph.Value{v, column} }, nil},
	} {
		n, err := e.AddNode(g, "", by.op, by.in(), []string{g.FreshName("graft_row")}, by.attributes...)
		if err != nil {
			return nil, err
		}
		v = n.Out[0]
	}
	return v, nil
}

// numbersRows reports a RotaryEmbedding whose tables have a line for each token of the batch, which its positions
// number one after another, as the fusions of transformers 5 write it.
func (s *builder) numbersRows(n *graph.Node) bool {
	if !n.Is("com.microsoft.RotaryEmbedding") || n.Input(1) == nil || n.Input(2) == nil {
		return false
	}
	each := n.In[1].Producer
	for each.Is("Reshape", "Unsqueeze", "Identity", "Cast") {
		each = each.Input(0).Producer
	}
	if !each.Is("Range") {
		return false
	}
	is := func(i int, x int64) bool {
		elements := s.Shapes.Of(each.Input(i)).Elems
		return len(elements) == 1 && elements[0].Is(x)
	}
	lines, count := s.Shapes.Of(n.In[2]).Dim(0), s.Shapes.Of(each.Out[0]).Dim(0)
	// Positions have as many elements as tokens, by names of their own.
	return is(0, 0) && is(2, 1) && count.Equal(s.Shapes.Of(s.tokens).Count()) &&
		(lines.Equal(count) ||
			slices.ContainsFunc(s.numbers, func(v *graph.Value) bool { return lines.Equal(s.Shapes.Of(v).Count()) }))
}

// hand gives what was turned to those who read it: to attention as it is, to others as they knew it.
func (t *turner) hand(old, to *graph.Value) error {
	t.attending(old, to)
	if len(old.Uses) == 0 && !old.IsOutput {
		return nil
	}
	s := t.shapes.Of(old)
	if !rewrite.SameDims(s.Dims, t.shapes.Of(to).Dims) {
		target := []int64{-1}
		for _, d := range s.Dims[1:] {
			n, _ := d.Const() // as headsOf found
			target = append(target, n)
		}
		var err error
		if to, err = t.reshaped(to, target, s.Dims); err != nil {
			return err
		}
	}
	t.main.Replace(old, to)
	return nil
}

// attending lets attention over a pool read to where it reads old, or old with other axes.
func (t *turner) attending(old, to *graph.Value) {
	t.main.Spend(1)
	for _, u := range slices.Clone(old.Uses) {
		switch {
		case attends(u.Node):
			u.Node.SetInput(u.Index, to)
		case u.Index == 0 && t.viewed(u.Node) == old:
			view := u.Node.Out[0]
			if s := t.shapes.Of(view); s.Rank > 0 && s.Dims[0].Equal(t.shapes.Of(old).Dims[0]) {
				t.attending(view, to)
			}
			if len(view.Uses) == 0 && !view.IsOutput {
				t.main.Remove(u.Node)
			}
		}
	}
}
