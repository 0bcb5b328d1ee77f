package roles

import (
	"slices"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
)

// attention finds what recognised attention reads: pasts and the encoder's output.
func (r *Roles) attention(g *graph.Graph, report *blocks.Report) {
	for _, b := range report.Blocks {
		if b.Attention == nil {
			continue
		}
		a, w := b.Attention, b.Wiring
		if p := a.Past; p != nil {
			r.past(g.Lookup(p.Key), Past, a.PastLayout, a.KVHeads, a.HeadSize, Cached)
			r.past(g.Lookup(p.Value), Past, a.PastLayout, a.KVHeads, a.ValueSize, Cached)
		}
		if a.Type != "cross" || w.PastKey != nil {
			continue
		}
		r.past(origin(w.Key), EncoderPast, w.KeyLayout, a.KVHeads, a.HeadSize, Encoder)
		r.past(origin(w.Value), EncoderPast, w.ValueLayout, a.KVHeads, a.ValueSize, Encoder)
		if in := origin(w.Input); in != nil && in.IsInput && r.shapes.Of(in).Rank == 3 {
			r.inputs[in] = EncoderOutput
		}
	}
}

// past notes keys or values that are an input in some layout.
func (r *Roles) past(v *graph.Value, is Input, layout string, heads, size int64, positions Length) {
	if v == nil || !v.IsInput || v.Graph.Parent != nil {
		return
	}
	f := r.shapes.Of(v)
	if f.Rank < 3 {
		return
	}
	r.inputs[v] = is
	if len(layout) != f.Rank {
		return
	}
	axes := make([]Axis, f.Rank)
	for i, letter := range layout {
		switch letter {
		case 'b':
			axes[i].Length = Batch
		case 's':
			axes[i].Length = positions
		case 'h':
			axes[i].Fixed = heads
		case 'd':
			axes[i].Fixed = size
		}
	}
	r.axes[v] = axes
}

// masks finds the inputs that are turned into what hides keys.
func (r *Roles) masks(g *graph.Graph, report *blocks.Report) {
	// Without an input that may come from an encoder, attention is called cross attention
	// because nothing says that queries and keys are equally many.
	encoder := slices.ContainsFunc(g.Inputs,
		func(v *graph.Value) bool { return r.inputs[v] != Past && r.shapes.Of(v).Rank >= 3 })
	for _, b := range report.Blocks {
		if b.Attention == nil || b.Attention.Mask == nil {
			continue
		}
		for _, name := range b.Attention.Mask.Sources {
			g.Spend(1)
			v := g.Lookup(name)
			if v == nil || !v.IsInput || v.Graph.Parent != nil || r.inputs[v] != Other && r.inputs[v] != Mask {
				continue
			}
			f := r.shapes.Of(v)
			if in := named(v.Name); f.Rank < 2 && in != Mask || in == Positions {
				continue // lengths, counts and positions are compared with positions too
			}
			r.inputs[v] = Mask
			keys := Axis{Length: New}
			switch {
			case b.Attention.Type == "cross" && encoder:
				keys.Length = Encoder
			case b.Attention.Past != nil || b.Wiring.Grown:
				keys.Length = All
			}
			if f.Rank < 1 || len(r.axes[v]) > 0 && keys.Length == New {
				continue // of the branches of a decoder, the one with a past counts
			}
			axes := make([]Axis, f.Rank)
			axes[0].Length = Batch
			axes[f.Rank-1] = keys
			if f.Rank > 2 {
				axes[f.Rank-2].Length = New
			}
			r.axes[v] = axes
		}
	}
}

// origin is the value before nodes that keep the elements.
func origin(v *graph.Value) *graph.Value {
	for v != nil && v.Producer.Is("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Cast") {
		v.Graph.Spend(1)
		v = v.Producer.Input(0)
	}
	return v
}
