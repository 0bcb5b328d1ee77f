package plan

import (
	"slices"

	"github.com/opgraft/graft/host/blocks"
)

// LayersOf counts the attention layers of a decoder that are alike, in the order in
// which the first of each stands. Blocks whose graph makes no keys of its own, as
// cross attention over a past, are taken to be as wide as their queries are made
// from.
func LayersOf(list []*blocks.Block) []Layers {
	var found []Layers
	for _, b := range list {
		if b.Attention == nil {
			continue
		}
		l := layersOf(b.Attention)
		if i := slices.IndexFunc(found, func(o Layers) bool { return o.alike(l) }); i >= 0 {
			found[i].Layers++
			continue
		}
		found = append(found, l)
	}
	return found
}

func layersOf(a *blocks.Attention) Layers {
	l := Layers{Type: a.Type, Layers: 1, Heads: a.Heads, KVHeads: a.KVHeads, HeadSize: a.HeadSize, ValueSize: a.ValueSize, Positions: a.Positions}
	switch p := a.Projections; {
	case p != nil && p.Key != nil:
		l.Width = p.Key.Inputs
	case p != nil && p.Query != nil:
		l.Width = p.Query.Inputs
	default:
		l.Width = a.Heads * a.HeadSize
	}
	return l
}

// alike reports layers that differ in nothing but their number.
func (l Layers) alike(o Layers) bool {
	l.Layers, o.Layers = 0, 0
	return l == o
}
