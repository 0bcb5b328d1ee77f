package blocks

import (
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
)

// positions says how the block knows where a token stands.
func (f *finder) positions(a *Attention, w *Wiring) string {
	switch {
	case w.Rotary != nil || f.rotated(w.Query) != nil:
		return "rotary"
	case slices.ContainsFunc(w.Biases, f.relative):
		return "relative"
	case f.learned:
		return "learned"
	}
	return "none"
}

// relative reports a bias that depends on how far apart query and key stand.
func (f *finder) relative(b Bias) bool {
	up := f.ancestry(b.Value)
	return up.learned || up.slopes
}

// learnedPositions reports a model that adds a table of positions to its
// embeddings: the sum of two looked-up tables, or of an embedding and a
// constant table (or a part of it).
func (f *finder) learnedPositions(g *graph.Graph) bool {
	found := false
	g.Walk(func(n *graph.Node) {
		if n.Op() == "com.microsoft.EmbedLayerNormalization" {
			found = true
		}
		if found || !n.Is("Add", "com.microsoft.SkipLayerNormalization") {
			return
		}
		a, b := n.Input(0), n.Input(1)
		found = f.positioned(a, b) || f.positioned(b, a)
	})
	return found
}

func (f *finder) positioned(tokens, positions *graph.Value) bool {
	if f.looksUp(tokens, 8) {
		return f.looksUp(positions, 8) || f.table(positions)
	}
	return f.encodes(tokens, 8) && f.table(positions)
}

// looksUp reports rows gathered from a table of floats, possibly scaled or summed.
func (f *finder) looksUp(v *graph.Value, depth int) bool {
	return f.within("looks up", f.first(v), depth, func() bool {
		n := f.maker(v)
		switch {
		case n == nil || depth == 0:
			return false
		case n.Is("Gather"):
			return f.tableLike(n.Input(0))
		case n.Is("Cast", "Expand", "Transpose") || reshapes(n):
			return f.looksUp(n.Input(0), depth-1)
		case n.Is("Mul", "Div"):
			x, _, ok := f.scalarFactor(n)
			return ok && f.looksUp(x, depth-1)
		case n.Is("Add"):
			return f.looksUp(n.Input(0), depth-1) && f.looksUp(n.Input(1), depth-1)
		}
		return false
	})
}

// table reports a constant matrix of floats with more than one row, or a part.
func (f *finder) table(v *graph.Value) bool {
	for n := f.maker(v); n.Is("Slice", "Split", "Cast", "Expand", "Transpose") || reshapes(n); n = f.maker(v) {
		v = n.Input(0)
	}
	return f.tableLike(v)
}

func (f *finder) tableLike(v *graph.Value) bool {
	for n := f.maker(v); n.Is("Cast", "Transpose") || reshapes(n); n = f.maker(v) {
		v = n.Input(0)
	}
	if v = f.first(v); v.Tensor == nil {
		return false
	}
	d := v.Tensor.Dims
	return len(d) == 2 && d[0] > 1 || len(d) == 3 && d[0] == 1 && d[1] > 1
}

// encodes reports features that a convolution made, as audio encoders have.
func (f *finder) encodes(v *graph.Value, depth int) bool {
	return f.within("encodes", f.first(v), depth, func() bool {
		n := f.maker(v)
		switch {
		case n == nil || depth == 0:
			return false
		case n.Is("Conv"):
			return true
		case n.Is("Transpose", "Gelu", "Erf", "Cast") || reshapes(n):
			return f.encodes(n.Input(0), depth-1)
		case n.Is("Add", "Mul", "Div"):
			return f.encodes(n.Input(0), depth-1) || f.encodes(n.Input(1), depth-1)
		}
		return false
	})
}
