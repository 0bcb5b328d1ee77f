package plan

import (
	"slices"

	"github.com/opgraft/graft/host/meaning/blocks"
)

// LayersOf sums up the attention of a decoder by type, each as its first layer is:
// they share one pool, so they are alike. Layers whose graph makes no keys of
// its own, as cross attention over a past, are taken to be as wide as what their
// queries are made from, which an encoder's output nearly always is.
func LayersOf(list []*blocks.Block) []Layers {
	var found []Layers
	for _, b := range list {
		if b.Attention == nil {
			continue
		}
		i := slices.IndexFunc(found, func(l Layers) bool { return l.Type == b.Attention.Type })
		if i < 0 {
			i = len(found)
			found = append(found, layersOf(b.Attention))
		}
		found[i].Layers++
		found[i].Sinks = found[i].Sinks || b.Attention.Sinks
	}
	return found
}

func layersOf(a *blocks.Attention) Layers {
	return Layers{Type: a.Type, Heads: a.Heads, KVHeads: a.KVHeads, HeadSize: a.HeadSize, ValueSize: a.ValueSize,
		Width: WidthOf(a), Positions: a.Positions}
}

// WidthOf is the width of what a block's keys and values are projected from.
func WidthOf(a *blocks.Attention) int64 {
	switch p := a.Projections; {
	case p != nil && p.Key != nil:
		return p.Key.Inputs
	case p != nil && p.Query != nil:
		return p.Query.Inputs
	}
	return a.Heads * a.HeadSize
}
