package padding

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
)

// leave finds the values that go on to nodes outside, and whether hidden rows of theirs can be seen there. The result
// is why the graph cannot run without padding, or "".
func (r *rows) leave() (why string) {
	for _, n := range r.main.Nodes {
		for _, v := range n.Out {
			if v == nil || !r.late[v] || r.blocks[v] == nil && !r.chosen[n] {
				continue
			}
			if _, ok := r.facts.Places[v]; !ok {
				continue
			}
			if v.IsOutput {
				if !r.zero(v) {
					r.facts.Outputs = append(r.facts.Outputs, v.Name)
				}
				r.facts.Leaving = append(r.facts.Leaving, v)
			}
			leaves := v.IsOutput
			for _, u := range v.Uses {
				r.main.Spend(1)
				switch {
				case u.Node.Graph == r.main && (r.chosen[u.Node] || r.inner[u.Node]):
					continue
				case u.Node.Is("Shape"):
					if r.shapes.Of(u.Node.Output(0)).Elems == nil {
						return fmt.Sprintf("the shape of %s is read by %s, and is not known", v.Name, u.Node)
					}
					r.facts.Shapes = append(r.facts.Shapes, u.Node)
					continue
				}
				if !r.zero(v) {
					if why := r.seen(v, u); why != "" && u.Node.Graph != r.main {
						return why
					}
				}
				if !leaves {
					r.facts.Leaving = append(r.facts.Leaving, v)
					leaves = true
				}
			}
		}
	}
	if why := r.lengths(); why != "" {
		return why
	}
	return (&apart{rows: r, traces: map[*graph.Value]*trace{}}).follow()
}

// lengths says which value that is laid out anew, where rows are taken of it or put back, has a length that is not
// known, or "".
func (r *rows) lengths() string {
	check := func(v *graph.Value, at Place) string {
		if r.fixed(r.shapes.Of(v), at) {
			return ""
		}
		return fmt.Sprintf("a length of %s is not known", v.Name)
	}
	for _, v := range r.facts.Leaving {
		if why := check(v, r.facts.Places[v]); why != "" && r.facts.Places[v].Flat() {
			return why
		}
	}
	for _, n := range slices.Concat(r.facts.Early, r.facts.Late) {
		for i, v := range n.In {
			g, ok := r.facts.Given[graph.Use{Node: n, Index: i}]
			if !ok || g.Flat || g.Batch < 0 || r.shapes.Of(v).Dim(g.Position).Is(1) {
				continue
			}
			if why := check(v, g.Place); why != "" {
				return why
			}
		}
	}
	return ""
}

// seen says how a node sees hidden rows of what it reads, or "".
func (r *rows) seen(v *graph.Value, u graph.Use) (why string) {
	n := u.Node
	at := r.facts.Places[v]
	if u.Index == 0 && n.Graph == r.main && !at.Flat() {
		switch {
		case n.Is("Gather"):
			axis := n.Int("axis", 0)
			if axis < 0 {
				axis += int64(r.shapes.Of(v).Rank)
			}
			list, _, ok := r.numbers(n, 1, "")
			if int(axis) == at.Position && ok && len(list) == 1 && r.take(n, list[0], r.shapes.Of(n.In[1]).Rank == 1) {
				return ""
			}
		case n.Is("Slice"):
			starts, _, ok1 := r.numbers(n, 1, "starts")
			ends, _, ok2 := r.numbers(n, 2, "ends")
			axes, _, ok3 := r.numbers(n, 3, "axes")
			steps, _, ok4 := r.numbers(n, 4, "steps")
			if ok1 && ok2 && ok3 && ok4 && len(starts) == 1 && len(ends) == 1 && len(axes) == 1 &&
				(len(steps) == 0 || steps[0] == 1) {
				axis := axes[0]
				if axis < 0 {
					axis += int64(r.shapes.Of(v).Rank)
				}
				if int(axis) == at.Position &&
					(starts[0] == 0 && ends[0] == 1 && r.take(n, 0, true) ||
						starts[0] == -1 && ends[0] > 1<<30 && r.take(n, -1, true)) {
					return ""
				}
			}
		}
	}
	return fmt.Sprintf("rows of hidden tokens reach %s (%s) by %s", n, n.Op(), v.Name)
}

// take notes that a node reads one position of each sequence, hidden or not.
func (r *rows) take(n *graph.Node, position int64, axis bool) bool {
	if position != 0 && position != -1 {
		return false
	}
	r.facts.Ends[n] = End{Last: position == -1, Axis: axis}
	r.facts.First = r.facts.First || position == 0
	r.facts.Last = r.facts.Last || position == -1
	return true
}

// zero reports a value whose hidden rows are zeros in the graph too: what is made of rows there was multiplied by
// what the mask says.
func (r *rows) zero(v *graph.Value) bool {
	n := v.Producer
	for range maxWay {
		if !r.chosen[n] {
			return false
		}
		if n.Is("Transpose", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Cast") {
			n = n.In[0].Producer
			continue
		}
		break
	}
	switch {
	case n.Is("Mul"):
		return r.hides(n, 0) || r.hides(n, 1)
	case n.Is("Where"):
		l, at := r.clears.lane(n.In[0], 0), r.facts.Places[n.Out[0]]
		lift := r.shapes.Of(n.Out[0]).Rank - r.shapes.Of(n.In[0]).Rank
		if l == nil || l.token < 0 || l.query >= 0 || l.token+lift != at.Position || l.batch+lift != at.Batch {
			return false
		}
		c, ok := l.hidden.as()
		if !ok {
			return false
		}
		taken := n.In[2]
		if c != 0 {
			taken = n.In[1]
		}
		x, ok := even(r.shapes.Of(taken))
		return ok && x == 0
	}
	return false
}

// hides reports an operand of a node that is 0 in all rows of hidden tokens.
func (r *rows) hides(n *graph.Node, input int) bool {
	v := n.In[input]
	l, at := r.clears.lane(v, 0), r.facts.Places[n.Out[0]]
	lift := r.shapes.Of(n.Out[0]).Rank - r.shapes.Of(v).Rank
	return l != nil && l.token >= 0 && l.query < 0 && l.hidden.is(0) && l.token+lift == at.Position &&
		l.batch+lift == at.Batch
}
