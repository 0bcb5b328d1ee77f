package graph

import (
	"slices"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

func controlRules() map[string]func(*call) {
	return map[string]func(*call){
		"If":   ifRule,
		"Loop": loopRule,
		"Scan": scanRule,
	}
}

// attrGraph is the subgraph in the attribute by that name, or nil.
func (n *Node) attrGraph(name string) *Graph {
	p := n.Attr(name).GetG()
	i := slices.IndexFunc(n.Subgraphs, func(g *Graph) bool { return g.Proto == p })
	if p == nil || i < 0 {
		return nil
	}
	return n.Subgraphs[i]
}

// ifRule takes what both branches agree on, or what the branch that is certain
// to be taken says.
func ifRule(c *call) {
	for _, g := range c.n.Subgraphs {
		for _, v := range g.Inputs {
			c.s.Know(v, c.s.input(v, Fact{Rank: -1}))
		}
		c.s.enter()
		c.s.graph(g, c.depth)
		c.s.leave(g)
	}
	yes, no := c.n.attrGraph("then_branch"), c.n.attrGraph("else_branch")
	if yes == nil || no == nil {
		return
	}
	cond, decided := c.in(0).one().Const()
	for i := range c.out {
		if i >= len(yes.Outputs) || i >= len(no.Outputs) {
			return
		}
		a, b := c.s.Of(yes.Outputs[i]), c.s.Of(no.Outputs[i])
		switch {
		case decided && cond != 0:
			c.set(i, a)
		case decided:
			c.set(i, b)
		default:
			f := agreed(a, b)
			for k, d := range f.Dims {
				// What is declared cannot be true of two different lengths.
				if v := c.n.Output(i); v != nil && !d.Known() {
					f.Dims[k] = c.s.symbol(v, k, Dim{}, true)
				}
			}
			c.set(i, f)
		}
	}
}

// agreed is what two facts have in common.
func agreed(a, b Fact) Fact {
	f := Fact{DType: a.DType, Rank: -1}
	if a.DType != b.DType {
		f.DType = onnx.Tensor_UNDEFINED
	}
	if a.Rank != b.Rank || a.Rank < 0 {
		return f
	}
	f = shaped(f.DType, make([]Dim, a.Rank)...)
	for i, d := range a.Dims {
		if d.Equal(b.Dims[i]) {
			f.Dims[i] = d
		}
	}
	if a.Elems != nil && len(a.Elems) == len(b.Elems) {
		f.Elems = make([]Dim, len(a.Elems))
		for i, d := range a.Elems {
			if d.Equal(b.Elems[i]) {
				f.Elems[i] = d
			}
		}
	}
	if a.Floats != nil && slices.Equal(a.Floats, b.Floats) {
		f.Floats = a.Floats
	}
	return f
}

// states goes through a body whose carried values begin as given, and returns
// the body's inputs as they are in every iteration. The lengths that a first
// pass shows to change are unknown in a second.
func (c *call) states(body *Graph, lead []Fact, carried []Fact, rest []Fact, outputs int) []Fact {
	begin := make([]Fact, len(carried))
	for i, f := range carried {
		begin[i] = like(f, onnx.Tensor_UNDEFINED) // the content changes
	}
	if c.depth >= maxRepeats {
		// Bodies within bodies would double the work at every level.
		for i, f := range begin {
			begin[i] = unranked(f.DType)
		}
		c.body(body, slices.Concat(lead, c.varying(body, len(lead), begin), rest))
		return begin
	}
	c.body(body, slices.Concat(lead, begin, rest))
	changed := false
	for i, f := range begin {
		if outputs+i >= len(body.Outputs) {
			return begin
		}
		end := c.s.Of(body.Outputs[outputs+i])
		kept := agreed(f, end)
		kept.Elems, kept.Floats = nil, nil
		if kept.Rank != f.Rank || slices.ContainsFunc(kept.Dims, func(d Dim) bool { return !d.Known() }) {
			changed = true
		}
		begin[i] = kept
	}
	if changed {
		c.body(body, slices.Concat(lead, c.varying(body, len(lead), begin), rest))
		for i, f := range begin {
			// What agreed with the first assumption need not with the second.
			end := c.s.Of(body.Outputs[outputs+i])
			for k, d := range f.Dims {
				if d.Known() && (end.Rank != f.Rank || !d.Equal(end.Dims[k])) {
					return c.loosely(body, lead, begin, rest)
				}
			}
		}
	}
	return begin
}

// loosely goes through a body of whose carried values only the type is known.
func (c *call) loosely(body *Graph, lead, begin, rest []Fact) []Fact {
	for i, f := range begin {
		begin[i] = unranked(f.DType)
	}
	c.body(body, slices.Concat(lead, c.varying(body, len(lead), begin), rest))
	return begin
}

// varying gives symbols of their own to the lengths of carried values that are
// not the same in every iteration. The names that the body declares for them
// are true of one iteration at most: exporters call a cache that grows by the
// name it has before the first.
func (c *call) varying(body *Graph, first int, carried []Fact) []Fact {
	list := slices.Clone(carried)
	for i, f := range list {
		if first+i >= len(body.Inputs) {
			break
		}
		v := body.Inputs[first+i]
		declared := fromType(v.Type)
		if f.Rank < 0 && declared.Rank >= 0 {
			f = shaped(f.DType, make([]Dim, declared.Rank)...)
		}
		f.Dims = slices.Clone(f.Dims)
		for k, d := range f.Dims {
			if d.Known() {
				continue
			}
			if want := declared.Dim(k); len(want.terms) == 0 && want.Known() {
				f.Dims[k] = want
			} else {
				f.Dims[k] = c.s.symbol(v, k, Dim{}, false)
			}
		}
		list[i] = f
	}
	return list
}

func loopRule(c *call) {
	body := c.n.attrGraph("body")
	if body == nil {
		unknownRule(c)
		return
	}
	count := max(len(c.n.In)-2, 0)
	carried := make([]Fact, count)
	for i := range carried {
		carried[i] = c.in(2 + i)
	}
	lead := []Fact{shaped(onnx.Tensor_INT64), shaped(onnx.Tensor_BOOL)}
	c.states(body, lead, carried, nil, 1)
	trips := c.s.trips(c.n, body)
	for i := range c.out {
		if 1+i >= len(body.Outputs) {
			return
		}
		f := c.s.Of(body.Outputs[1+i])
		f = like(f, onnx.Tensor_UNDEFINED)
		if i < count {
			// Without an iteration what comes out is what went in.
			f = agreed(like(carried[i], onnx.Tensor_UNDEFINED), f)
			f.Dims = outside(c.n, c.s, f.Dims)
		} else if f.Rank >= 0 {
			f = shaped(f.DType, append([]Dim{trips}, outside(c.n, c.s, f.Dims)...)...)
		}
		c.set(i, f)
	}
}

// trips is how often a Loop runs, where nothing ends it early.
func (s *Shapes) trips(n *Node, body *Graph) Dim {
	if len(body.Outputs) == 0 || n.Input(1) != nil && !s.Of(n.Input(1)).one().Is(1) {
		return Dim{}
	}
	cond := body.Outputs[0]
	always := s.Of(cond).one().Is(1)
	// A body that hands the condition on unchanged never ends the loop.
	for cond.Producer != nil && cond.Graph == body && cond.Producer.Is("Identity") && cond.Producer.Input(0) != nil {
		cond = cond.Producer.In[0]
	}
	trips := s.Of(n.Input(0)).one()
	if !always && (len(body.Inputs) < 2 || cond != body.Inputs[1]) || !trips.atLeastZero() {
		return Dim{}
	}
	return trips
}

// outside drops the lengths that depend on symbols made inside a node's bodies:
// they mean something in one iteration only.
func outside(n *Node, s *Shapes, dims []Dim) []Dim {
	list := slices.Clone(dims)
	for i, d := range dims {
		for _, name := range d.Symbols() {
			if s.inside[name] != nil && s.inside[name].within(n) {
				list[i] = Dim{}
			}
		}
	}
	return list
}

// within reports whether a graph lies in a node's bodies.
func (g *Graph) within(n *Node) bool {
	for ; g != nil; g = g.Parent {
		if g.Owner == n {
			return true
		}
	}
	return false
}

func scanRule(c *call) {
	body := c.n.attrGraph("body")
	scans := int(c.n.Int("num_scan_inputs", 0))
	states := len(c.n.In) - scans
	if body == nil || c.n.Graph.Opset("") < 9 || scans < 1 || states < 0 {
		unknownRule(c)
		return
	}
	axes, _ := c.n.Ints("scan_input_axes")
	outAxes, _ := c.n.Ints("scan_output_axes")
	carried := make([]Fact, states)
	for i := range carried {
		carried[i] = c.in(i)
	}
	var length Dim
	rows := make([]Fact, scans)
	for i := range rows {
		x := c.in(states + i)
		rows[i] = unranked(x.DType)
		at := int64(0)
		if i < len(axes) {
			at = axes[i]
		}
		if a, ok := axisOf(at, x.Rank); ok && x.Rank >= 0 {
			rows[i] = reduced(x, []int{a}, false, x.DType)
			length = same(length, x.Dims[a])
		}
	}
	c.states(body, nil, carried, rows, 0)
	for i := range c.out {
		if i >= len(body.Outputs) {
			return
		}
		f := like(c.s.Of(body.Outputs[i]), onnx.Tensor_UNDEFINED)
		f.Dims = outside(c.n, c.s, f.Dims)
		if i < states {
			f = agreed(like(carried[i], onnx.Tensor_UNDEFINED), f)
		} else if f.Rank >= 0 {
			at := int64(0)
			if k := i - states; k < len(outAxes) {
				at = outAxes[k]
			}
			a, ok := axisOf(at, f.Rank+1)
			if !ok {
				f = unranked(f.DType)
			} else {
				f = shaped(f.DType, slices.Insert(f.Dims, a, length)...)
			}
		}
		c.set(i, f)
	}
}
