package session

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/fused"
	"github.com/opgraft/graft/host/meaning/padding"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/rewrite"
)

// tokensSymbol names the number of tokens that are left of a batch.
const tokensSymbol = "graft_tokens"

// RemovePadding edits a graph, and its model, so that hidden tokens are not computed: a batch (B, S, ..) becomes the
// rows (1, N, ..) of its visible tokens, on which everything runs that works a row at a time, and attention runs
// within each sequence. Where hidden rows are outputs of the model, they are zeros. With whole, hidden tokens are
// computed as others are, and attention has no mask of n x n all the same. The shapes are those of the graph before;
// it is to be viewed anew.
func RemovePadding(g *graph.Graph, shapes *graph.Shapes, f *padding.Facts, whole bool) error {
	p := &unpadding{rewriter: newRewriter(g, shapes), f: f, whole: whole, taken: map[takenKey]*graph.Value{},
		early: map[*graph.Value]*graph.Value{}, made: map[*graph.Node]bool{}}
	for _, step := range []func() error{p.begin, p.clone, p.attend, p.enter, p.lengths, p.leave} {
		if err := step(); err != nil {
			return err
		}
	}
	p.forget()
	g.ImportOpset(manifest.Domain, rewrite.DomainVersion)
	g.Prune()
	return g.Commit()
}

// unpadding is a graph whose padding is being removed.
type unpadding struct {
	*rewriter
	f     *padding.Facts
	whole bool // nothing is left out

	mask                     *graph.Value // (B, S)
	keep, offsets, first     *graph.Value // what RemovePadding makes
	rows, list               *graph.Value // (1, N) and (N): the place of each row in (B * S); nil until they are needed
	positions, batches, seen *graph.Value
	hides                    *graph.Value // (B, S): tokens that attention hides
	// those, and those that are zeros where they are outputs, of rows, (1, N), or of all of them (B, S); nil until they
	// are needed
	hidden, cleared *graph.Value
	taken           map[takenKey]*graph.Value
	early           map[*graph.Value]*graph.Value // values of all rows, and what stands for them
	made            map[*graph.Node]bool          // nodes that read and make rows
}

// takenKey is a value and how rows are taken of it.
type takenKey struct {
	v *graph.Value
	g padding.Given
}

// begin adds the nodes that list the rows.
func (p *unpadding) begin() error {
	g := p.main
	s := p.shapes.Of(p.f.Mask)
	sizes := []graph.Dim{s.Dims[0], s.Dims[s.Rank-1]}
	if p.mask = p.f.Mask; s.Rank > 2 {
		var err error
		if p.mask, err = p.squeezed(p.mask, identity(s.Rank)[1:s.Rank-1]...); err != nil {
			return err
		}
		p.state(p.mask, s.DType, sizes...)
	}
	if p.f.Tokens != nil {
		if err := p.widen(sizes); err != nil {
			return err
		}
	}
	attributes := []any{"additive", p.f.Added, "keep_first", p.f.First || p.whole, "keep_last", p.f.Last ||
		p.whole, "keep_empty", p.f.First || p.f.Last || p.whole}
	if p.f.Apart && (p.f.First || p.f.Last) && !p.whole {
		attributes = append(attributes, "keep_whole", true)
	}
	n, err := p.AddOperator(g, capability.PackedRows, append([]*graph.Value{p.mask}, p.alike()...),
		[]string{g.FreshName("graft_keep"), g.FreshName("graft_offsets"), g.FreshName("graft_first"),
			g.FreshName("graft_hidden")}, attributes...)
	if err != nil {
		return err
	}
	p.keep, p.offsets, p.first = n.Out[0], n.Out[1], n.Out[2]
	p.state(p.keep, onnx.Tensor_BOOL, sizes...)
	p.state(n.Out[3], onnx.Tensor_BOOL, sizes...)
	p.hides = n.Out[3]
	if p.f.Tokens != nil {
		if p.hides, err = p.equals(p.f.Mask, 0); err == nil {
			p.state(p.hides, onnx.Tensor_BOOL, sizes...)
		}
	}
	return err
}

// holes says of each row whether the mask hides it.
func (p *unpadding) holes() (err error) {
	if p.hidden == nil {
		p.hidden, err = p.flags(p.hides)
	}
	return err
}

// clearings says of each row whether it is zeros where it is an output.
func (p *unpadding) clearings() (v *graph.Value, err error) {
	if p.f.Tokens == nil {
		err = p.holes()
		return p.hidden, err
	}
	if p.cleared == nil {
		var all *graph.Value
		if all, err = p.equals(p.f.Tokens, 0); err == nil {
			p.cleared, err = p.flags(all)
		}
	}
	return p.cleared, err
}

// flags are those of rows, (1, N), of booleans of all of them (B, S).
func (p *unpadding) flags(all *graph.Value) (*graph.Value, error) {
	if p.whole {
		return all, nil // rows are all there are, in their order
	}
	if err := p.places(); err != nil {
		return nil, err
	}
	flat, err := p.op("Reshape", all, p.longs(-1))
	if err != nil {
		return nil, err
	}
	v, err := p.op("Gather", flat, p.rows)
	if err == nil {
		p.state(v, onnx.Tensor_BOOL, graph.DimInt(1), graph.DimSym(tokensSymbol))
	}
	return v, err
}

// places lists where each row stands.
func (p *unpadding) places() error {
	if p.rows != nil {
		return nil
	}
	flat, err := p.op("Reshape", p.keep, p.longs(-1))
	if err != nil {
		return err
	}
	if p.rows, err = p.op("NonZero", flat); err != nil {
		return err
	}
	p.state(p.rows, onnx.Tensor_INT64, graph.DimInt(1), graph.DimSym(tokensSymbol))
	if p.list, err = p.op("Reshape", p.rows, p.longs(-1)); err != nil {
		return err
	}
	p.state(p.list, onnx.Tensor_INT64, graph.DimSym(tokensSymbol))
	return nil
}

// alike are the model's inputs of which rows are taken. A run in which one has other lengths than the mask is an error.
func (p *unpadding) alike() (list []*graph.Value) {
	for u, g := range p.f.Given {
		if v := u.Node.In[u.Index]; v.IsInput && v != p.f.Mask && g.Place == (padding.Place{Batch: 0, Position: 1}) &&
			!slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	if v := p.f.Tokens; v != nil && !slices.Contains(list, v) {
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b *graph.Value) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// op adds a node of ONNX with one output.
func (p *unpadding) op(op string, in ...*graph.Value) (*graph.Value, error) {
	n, err := p.AddNode(p.main, "", op, in, []string{p.main.FreshName("graft_rows")})
	if err != nil {
		return nil, err
	}
	return n.Out[0], nil
}

// longs is a constant list.
func (p *unpadding) longs(list ...int64) *graph.Value {
	return p.main.AddInitializer(graph.Int64Tensor("", []int64{int64(len(list))}, list...))
}

// state declares a new value.
func (p *unpadding) state(v *graph.Value, kind onnx.Tensor_DataType, dims ...graph.Dim) {
	p.shapes.Know(v, graph.Fact{DType: kind, Rank: len(dims), Dims: dims})
	p.Declare(v, v, true)
}

// along are the positions or sequences of rows, (N): row 1 or 0 of what NonZero lists of the batch.
func (p *unpadding) along(row int64) (*graph.Value, error) {
	at := &p.batches
	if row == 1 {
		at = &p.positions
	}
	if *at != nil {
		return *at, nil
	}
	if p.seen == nil {
		v, err := p.op("NonZero", p.keep)
		if err != nil {
			return nil, err
		}
		p.seen = v
		p.state(v, onnx.Tensor_INT64, graph.DimInt(2), graph.DimSym(tokensSymbol))
	}
	v, err := p.op("Gather", p.seen, p.main.AddInitializer(graph.Int64Tensor("", nil, row)))
	if err != nil {
		return nil, err
	}
	p.state(v, onnx.Tensor_INT64, graph.DimSym(tokensSymbol))
	*at = v
	return v, nil
}

// packed is what is known of a value when it holds the rows that are left.
func (p *unpadding) packed(f graph.Fact, at padding.Place) graph.Fact {
	f.Dims, f.Elems, f.Floats = slices.Clone(f.Dims), nil, nil
	if at.Batch >= 0 {
		f.Dims[at.Batch] = graph.DimInt(1)
	}
	f.Dims[at.Position] = graph.DimSym(tokensSymbol)
	return f
}

// clone writes the nodes before attention again, for the rows that are left. Who reads them besides reads them as they
// were.
func (p *unpadding) clone() error {
	for _, n := range p.f.Early {
		in := slices.Clone(n.In)
		for i, v := range in {
			to, err := p.input(n, i, v)
			if err != nil {
				return err
			}
			in[i] = to
		}
		c := proto.CloneOf(n.Proto)
		c.Name, c.Input, c.Output = nil, nil, nil
		outputs := make([]string, len(n.Out))
		for i, v := range n.Out {
			if v != nil {
				outputs[i] = p.main.FreshName("graft_rows")
			}
		}
		made, err := p.main.AddNode(c, in, outputs)
		if err != nil {
			return err
		}
		made.Proto.Name, n.Proto.Name = n.Proto.Name, made.Proto.Name // a plan knows it by its name
		for i, v := range n.Out {
			if v == nil {
				continue
			}
			p.early[v] = made.Out[i]
			p.main.Stand(made.Out[i], v)
			f := p.shapes.Of(v)
			if at, ok := p.f.Places[v]; ok {
				f = p.packed(f, at)
			}
			p.shapes.Know(made.Out[i], f)
		}
	}
	return nil
}

// input is what a node reads in place of a value.
func (p *unpadding) input(n *graph.Node, i int, v *graph.Value) (*graph.Value, error) {
	if i == 7 && n.Is(fused.Embedding) {
		return nil, nil // a mask whose count nothing reads
	}
	if given, ok := p.f.Given[graph.Use{Node: n, Index: i}]; ok {
		return p.take(v, given)
	}
	if to := p.early[v]; to != nil {
		return to, nil
	}
	if at, ok := p.f.Places[n.Out[0]]; ok && i == 1 && n.Is("Reshape") {
		return p.target(n, at)
	}
	return v, nil
}

// target is that of a Reshape of the rows that are left.
func (p *unpadding) target(n *graph.Node, at padding.Place) (*graph.Value, error) {
	var target []int64
	for i, d := range p.shapes.Of(n.Out[0]).Dims {
		length, _ := d.Const()
		switch i {
		case at.Batch:
			length = 1
		case at.Position:
			length = -1
		}
		target = append(target, length)
	}
	return p.longs(target...), nil
}

// attend puts attention within sequences in the place of blocks.
func (p *unpadding) attend() error {
	for _, b := range p.f.Blocks {
		if err := p.holes(); err != nil {
			return err
		}
		w := b.Wiring
		ins := []*graph.Value{w.Query, w.Key, w.Value, p.offsets, p.first, p.hidden, b.Bias}
		for i, v := range ins[:3] {
			if to := p.early[v]; to != nil {
				ins[i] = to
			}
		}
		region := blocks.Region(append([]*graph.Value{w.Query, w.Key, w.Value}, w.Hiding()...), []*graph.Value{w.Output})
		if err := p.FreeShapes(region, ins, []*graph.Value{w.Output}); err != nil {
			return fmt.Errorf("%s: %w", b.Node, err)
		}
		attributes := []any{"hidden_fill", b.Fill, "hidden_adds", b.Adds, "window_left", bound(b.Left), "window_right",
			bound(b.Right)}
		if b.AllAlike() {
			attributes = append(attributes, "window_fill", b.Beyond)
		}
		for _, x := range plan.AttentionAttributes(b.Block) {
			if !strings.HasPrefix(x.Name, "mask_") && x.Name != "scores_mode" {
				attributes = append(attributes, x.Name, x.Value)
			}
		}
		switch {
		case b.Bias == nil:
			ins = ins[:len(ins)-1]
		case !b.Adds && !w.MaskAfterBias:
			attributes = append(attributes, "bias_after_fill", true)
		}
		n, err := p.AddOperator(p.main, capability.PackedAttention, ins,
			[]string{p.main.FreshName("graft_attention")}, attributes...)
		if err != nil {
			return err
		}
		p.made[n] = true
		to := n.Out[0]
		p.f.Places[to] = b.Output
		fact := p.packed(p.shapes.Of(w.Output), b.Output)
		p.state(to, fact.DType, fact.Dims...)
		if i := slices.Index(p.f.Leaving, w.Output); i >= 0 {
			p.f.Leaving[i] = to
		}
		p.main.Replace(w.Output, to) // declared above, with other lengths
		p.ReadersMoved(to)
	}
	return nil
}

// bound is that of a window as operators have it.
func bound(x int64) int64 {
	if x == math.MaxInt64 {
		return -1
	}
	return x
}

// enter lets the nodes after attention read rows.
func (p *unpadding) enter() error {
	var uses []graph.Use
	var to []*graph.Value
	for _, n := range p.f.Late {
		for i, v := range n.In {
			now, err := p.input(n, i, v)
			if err != nil {
				return err
			}
			if now != v {
				uses, to = append(uses, graph.Use{Node: n, Index: i}), append(to, now)
			}
		}
	}
	p.main.SetInputs(uses, to)
	return nil
}

// lengths lets what reads the lengths of values read them off the model's inputs.
func (p *unpadding) lengths() error {
	for _, n := range p.f.Shapes {
		if err := p.FreeShapeAnywhere(n); err != nil {
			return err
		}
	}
	p.main.Prune()
	gone := func(v *graph.Value) bool { return v != nil && !slices.Contains(p.main.Nodes, v.Producer) }
	if gone(p.rows) || gone(p.list) { // nothing has read them so far
		p.rows, p.list = nil, nil
	}
	if gone(p.hidden) {
		p.hidden = nil
	}
	return nil
}

// forget drops what the model declares of values that hold other rows now.
func (p *unpadding) forget() {
	gone := map[string]bool{}
	for _, n := range p.f.Late {
		for _, v := range n.Out {
			if v != nil && !v.IsOutput {
				gone[v.Name], v.Type = true, nil
			}
		}
	}
	p.main.Proto.ValueInfo = slices.DeleteFunc(p.main.Proto.ValueInfo,
		func(v *onnx.ValueInfo) bool { return gone[v.GetName()] })
}
