package blocks

import (
	"github.com/opgraft/graft/host/graph"
)

// positions says how the block knows where a token stands.
func (f *finder) positions(a *Attention, w *Wiring) string {
	switch {
	case rotated(w.Query) != nil:
		return "rotary"
	case w.Bias != nil && ancestry(w.Bias).learned:
		return "relative"
	case f.learned:
		return "learned"
	}
	return "none"
}

// rotated returns what a rotary embedding was applied to, or nil. Drawn out it
// is x*cos + rotate(x)*sin, with rotate made of slices, a negation and a
// concatenation; or one RotaryEmbedding.
func rotated(v *graph.Value) *graph.Value {
	for depth := 0; v != nil && depth < 8; depth++ {
		n := v.Producer
		switch {
		case n.Is("Identity", "Transpose", "Reshape", "Cast"):
			v = n.Input(0)
			continue
		case n.Is("RotaryEmbedding", "com.microsoft.RotaryEmbedding"):
			return n.Input(0)
		case n.Is("Mul", "Div"): // a scale on top of the rotation
			if n.Input(1).Tensor != nil || n.Input(1).Producer != nil && len(n.Input(1).Producer.In) <= 2 {
				if r := rotated(n.Input(0)); r != nil {
					return r
				}
			}
			return nil
		case n.Is("Add"):
			l, r := n.Input(0).Producer, n.Input(1).Producer
			if !l.Is("Mul") || !r.Is("Mul") {
				return nil
			}
			if x := halfTurned(r, l); x != nil {
				return x
			}
			return halfTurned(l, r)
		}
		return nil
	}
	return nil
}

// halfTurned matches turned = Concat(Neg(part of x), part of x) * sin beside
// plain = x * cos, and returns x.
func halfTurned(turned, plain *graph.Node) *graph.Value {
	for _, side := range turned.In {
		c := side.Producer
		if !c.Is("Concat") || len(c.In) != 2 {
			continue
		}
		neg, other := c.Input(0).Producer, c.Input(1).Producer
		if !neg.Is("Neg") {
			continue
		}
		x := part(neg.Input(0))
		if other == nil || x == nil || part(c.Input(1)) != x {
			continue
		}
		for _, p := range plain.In {
			if p == x || source(p) == source(x) {
				return x
			}
		}
	}
	return nil
}

// part returns the value that a Slice or Split cuts a piece from.
func part(v *graph.Value) *graph.Value {
	for v.Producer.Is("Identity") {
		v = v.Producer.Input(0)
	}
	if v.Producer.Is("Slice", "Split") {
		return v.Producer.Input(0)
	}
	return nil
}

// unrotate looks through a rotary embedding.
func unrotate(v *graph.Value) *graph.Value {
	if x := rotated(v); x != nil {
		return x
	}
	return v
}

// learnedPositions reports a model that adds a table of positions to its
// embeddings: the sum of two looked-up tables, or of an embedding and a
// constant table (or a part of it).
func learnedPositions(g *graph.Graph) bool {
	found := false
	g.Walk(func(n *graph.Node) {
		if n.Op() == "com.microsoft.EmbedLayerNormalization" {
			found = true
		}
		if found || !n.Is("Add", "com.microsoft.SkipLayerNormalization") {
			return
		}
		a, b := n.Input(0), n.Input(1)
		found = looksUp(a) && (looksUp(b) || table(b)) || looksUp(b) && table(a) ||
			encodes(a) && table(b) || encodes(b) && table(a)
	})
	return found
}

// looksUp reports rows gathered from a table of floats, possibly scaled or summed.
func looksUp(v *graph.Value) bool {
	for depth := 0; v != nil && depth < 8; depth++ {
		n := v.Producer
		switch {
		case n.Is("Gather"):
			return tableLike(n.Input(0))
		case n.Is("Identity", "Cast", "Mul", "Reshape", "Unsqueeze", "Expand"):
			if n.Is("Mul") && n.Input(0).Tensor != nil {
				v = n.Input(1)
				continue
			}
			v = n.Input(0)
		case n.Is("Add"):
			return looksUp(n.Input(0)) && looksUp(n.Input(1))
		default:
			return false
		}
	}
	return false
}

// table reports a constant matrix of floats with more than one row, or a part.
func table(v *graph.Value) bool {
	for v != nil && v.Producer.Is("Slice", "Identity", "Unsqueeze", "Cast", "Expand") {
		v = v.Producer.Input(0)
	}
	return v != nil && tableLike(v)
}

func tableLike(v *graph.Value) bool {
	if v.Tensor == nil {
		return v.Producer.Is("Identity", "Cast", "Transpose") && tableLike(v.Producer.Input(0))
	}
	d := v.Tensor.Dims
	return len(d) == 2 && d[0] > 1 || len(d) == 3 && d[0] == 1 && d[1] > 1
}

// encodes reports features that a convolution made, as audio encoders have.
func encodes(v *graph.Value) bool {
	for depth := 0; v != nil && depth < 8; depth++ {
		n := v.Producer
		switch {
		case n.Is("Conv"):
			return true
		case n.Is("Transpose", "Gelu", "Mul", "Div", "Erf", "Add", "Identity", "Reshape"):
			v = n.Input(0)
		default:
			return false
		}
	}
	return false
}
