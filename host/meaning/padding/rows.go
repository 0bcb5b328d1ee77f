package padding

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
)

// rows finds the nodes that compute each row of their results from that row of what they read.
type rows struct {
	main             *graph.Graph
	shapes           *graph.Shapes
	batch, positions graph.Dim
	masks            *masks
	clears           *masks // of the mask by whose zeros hidden rows are cleared
	facts            *Facts

	blocks  map[*graph.Value]*Block // by what they make
	inner   map[*graph.Node]bool    // nodes that blocks consist of
	through map[*graph.Node]*passage
	chosen  map[*graph.Node]bool
	late    map[*graph.Value]bool // made from what attention made
	scales  map[*graph.Value]bool // numbers taken over all rows
	beyond  map[*graph.Value]bool // made by attention that stays as the model has it
}

// passage is how rows pass a node: where they stand in its results, and how they are taken of what it reads that is not
// made of rows itself.
type passage struct {
	out   map[int]Place // by output
	given map[int]Given // by input
	rows  []int         // inputs whose rows are what is read
	needs []int         // inputs that are numbers taken over all rows
	mixes bool          // one number is taken over all rows
}

// from are the inputs that change with the rows.
func (p *passage) from() []int { return append(slices.Clone(p.rows), p.needs...) }

// find fills the facts; the result is why there are none, or "", and the blocks that cannot attend within sequences.
func (r *rows) find() (why string, failed []*Block) {
	for _, b := range r.facts.Blocks {
		w := b.Wiring
		r.blocks[w.Output] = b
		for _, n := range blocks.Region(append([]*graph.Value{w.Query, w.Key, w.Value}, w.Hiding()...),
			[]*graph.Value{w.Output}) {
			r.inner[n] = true
		}
	}
	for _, n := range r.main.Nodes {
		r.main.Spend(1 + len(n.In))
		if b := r.blocks[first(n.Out)]; b != nil {
			if not := r.attend(b); not != "" {
				if why == "" {
					why = not
				}
				failed, r.beyond[b.Wiring.Output] = append(failed, b), true
			}
			continue
		}
		if r.inner[n] {
			continue
		}
		p := r.pass(n)
		if p == nil {
			beyond := n.Is("Softmax") && has(r.shapes.Of(n.Output(0)).Dim(-1), r.positions) ||
				slices.ContainsFunc(n.In, func(v *graph.Value) bool { return v != nil && r.beyond[v] })
			for _, v := range n.Out {
				if beyond && v != nil {
					r.beyond[v] = true
				}
			}
			continue
		}
		r.through[n] = p
		late := slices.ContainsFunc(p.from(), func(i int) bool { return r.late[n.In[i]] || r.beyond[n.In[i]] })
		for i, at := range p.out {
			if v := n.Output(i); v != nil {
				r.facts.Places[v] = at
			}
		}
		for _, v := range n.Out {
			if v != nil {
				r.late[v] = late
				if _, ok := r.facts.Places[v]; !ok {
					r.scales[v] = true
				}
			}
		}
	}
	if failed != nil {
		return why, failed
	}
	r.choose()
	return r.leave(), nil
}

// at is where the rows of a value stand, be it made of rows itself or there of all rows.
func (r *rows) at(v *graph.Value) (Place, bool) {
	if v == nil || v.Tensor != nil {
		return Place{}, false
	}
	if at, ok := r.facts.Places[v]; ok {
		return at, true
	}
	return r.found(v)
}

func uses(v *graph.Value) []graph.Use {
	if v == nil {
		return nil
	}
	return v.Uses
}

func first(list []*graph.Value) *graph.Value {
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

// lies reports that a value has its sequences and positions where a place says, and no such length elsewhere.
func (r *rows) lies(v *graph.Value, at Place) bool {
	s := r.shapes.Of(v)
	if s.Rank < 0 {
		return false
	}
	for i, d := range s.Dims {
		switch {
		case i == at.Position && at.Flat():
			if !d.Equal(r.batch.Mul(r.positions)) {
				return false
			}
		case i == at.Position:
			if !d.Equal(r.positions) {
				return false
			}
		case i == at.Batch:
			if !d.Equal(r.batch) {
				return false
			}
		case !d.Known() || has(d, r.batch, r.positions):
			return false
		}
	}
	return at.Position < s.Rank && at.Batch < s.Rank && at.Position != at.Batch
}

// found is where a value that is there of all rows has its sequences and positions; false where it has not both.
func (r *rows) found(v *graph.Value) (at Place, ok bool) {
	s := r.shapes.Of(v)
	at = Place{slices.IndexFunc(s.Dims, r.batch.Equal), slices.IndexFunc(s.Dims, r.positions.Equal)}
	if at.Position < 0 {
		at = Place{-1, slices.IndexFunc(s.Dims, r.batch.Mul(r.positions).Equal)}
	} else if at.Batch < 0 {
		return at, false
	}
	return at, at.Position >= 0 && r.lies(v, at)
}

// attend follows rows through attention.
func (r *rows) attend(b *Block) (why string) {
	w := b.Wiring
	operands := []struct {
		v      *graph.Value
		layout string
	}{{w.Query, w.QueryLayout}, {w.Key, w.KeyLayout}, {w.Value, w.ValueLayout}}
	for _, o := range operands {
		if o.v == nil {
			continue
		}
		at, ok := inLayout(o.layout)
		is, placed := r.facts.Places[o.v]
		if !ok || !placed || is != at {
			return fmt.Sprintf("%s: %s does not hold a row for each token, made from that token alone", b.Node, o.v.Name)
		}
	}
	at, ok := inLayout(w.OutputLayout)
	if ok = ok && !w.Turns() && w.Filled == 0; !ok || !r.lies(w.Output, at) {
		return fmt.Sprintf("%s: its result does not hold a row for each token", b.Node)
	}
	b.Output = at
	r.facts.Places[w.Output], r.late[w.Output] = at, true
	return ""
}

// inLayout is where rows stand in a layout of operators.
func inLayout(layout string) (Place, bool) {
	switch layout {
	case "bshd":
		return Place{0, 1}, true
	case "bhsd":
		return Place{0, 2}, true
	case "bhds":
		return Place{0, 3}, true
	}
	return Place{}, false
}

// choose takes in the nodes that lead to attention, and those that follow it, with what these read.
func (r *rows) choose() {
	var way []*graph.Value
	for _, b := range r.facts.Blocks {
		for _, v := range []*graph.Value{b.Wiring.Query, b.Wiring.Key, b.Wiring.Value} {
			if v != nil {
				way = append(way, v)
			}
		}
	}
	for _, n := range r.main.Nodes {
		if p := r.through[n]; p != nil && r.late[n.Out[0]] {
			r.chosen[n] = true
			for _, i := range p.from() {
				way = append(way, n.In[i])
			}
		}
	}
	for len(way) > 0 {
		v := way[len(way)-1]
		way = way[:len(way)-1]
		n := v.Producer
		p := r.through[n]
		if p == nil || r.chosen[n] {
			continue
		}
		r.chosen[n] = true
		for _, i := range p.from() {
			way = append(way, n.In[i])
		}
	}
	for v := range r.facts.Places {
		if r.blocks[v] == nil && !r.chosen[v.Producer] {
			delete(r.facts.Places, v)
		}
	}
	for _, n := range r.main.Nodes {
		if !r.chosen[n] {
			continue
		}
		p := r.through[n]
		if r.late[n.Out[0]] {
			r.facts.Late = append(r.facts.Late, n)
		} else {
			r.facts.Early = append(r.facts.Early, n)
			for _, v := range n.Out {
				for _, u := range uses(v) {
					if u.Node.Is("Shape") && r.shapes.Of(u.Node.Output(0)).Elems != nil {
						r.facts.Shapes = append(r.facts.Shapes, u.Node)
					}
				}
			}
		}
		r.facts.Rounds = r.facts.Rounds || p.mixes
		for i, g := range p.given {
			r.facts.Given[graph.Use{Node: n, Index: i}] = g
		}
		for _, i := range p.rows {
			if v := n.In[i]; r.blocks[v] == nil && !r.chosen[v.Producer] {
				at, _ := r.at(v)
				r.facts.Given[graph.Use{Node: n, Index: i}] = Given{at, at.Flat()}
			}
		}
	}
}
