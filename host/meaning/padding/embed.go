package padding

import "github.com/opgraft/graft/host/onnx/graph"

// embed passes rows of tokens and of their types into an embedding that is told their positions, and whose mask
// counts for nothing: it is left out of rows.
func (r *rows) embed(n *graph.Node) *passage {
	at, ok := r.at(n.Input(0))
	if !ok || at != (Place{0, 1}) || n.Input(8) == nil ||
		n.Output(1) != nil && (len(n.Out[1].Uses) > 0 || n.Out[1].IsOutput) {
		return nil
	}
	p := &passage{out: map[int]Place{0: at}, given: map[int]Given{}, rows: []int{0}}
	if n.Output(2) != nil { // what is normalized
		p.out[2] = at
	}
	for i, v := range n.In {
		switch {
		case i == 0 || i == 7 || v == nil:
		case i == 1:
			if own, ok := r.at(v); !ok || own != at {
				return nil
			}
			p.rows = append(p.rows, i)
		case i == 8:
			if own, ok := r.at(v); ok && own == at {
				p.rows = append(p.rows, i)
				continue
			}
			g, needed, ok := r.spread(v, at, 2)
			if !ok || !needed || r.shapes.Of(v).Rank != 2 {
				return nil
			}
			p.given[i] = g
		case !r.apartFrom(v):
			return nil
		}
	}
	return p
}
