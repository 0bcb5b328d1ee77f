package blocks

import (
	"fmt"

	"github.com/opgraft/graft/host/onnx/graph"
)

// input is the value that key and value, and in self attention query too, are
// projected from; nil when they come from different values.
func (f *finder) input(a *Attention) *graph.Value {
	p := a.Projections
	if p == nil || p.Key == nil || p.Value == nil {
		return nil
	}
	x := f.elements(p.Key.From)
	switch {
	case x != f.elements(p.Value.From) || p.Key.Inputs != p.Value.Inputs:
		return nil
	case a.Type == "self" && (p.Query == nil || f.elements(p.Query.From) != x || p.Key.Inputs != p.Query.Inputs):
		return nil
	}
	return p.Key.From
}

// elements looks through nodes that keep the elements, their type and their order:
// two values of one width that come from the same are the same rows.
func (f *finder) elements(v *graph.Value) *graph.Value {
	for v = f.first(v); v != nil && (f.copies(v.Producer) || reshapes(v.Producer)); {
		v = f.in(v.Producer, 0)
	}
	return v
}

// leaving is the output of the graph that hands out a key or value, or nil.
func (f *finder) leaving(v view, depth int) *graph.Value {
	if o := f.output(v.value); o != nil && v.layout() != "" {
		return o
	}
	if depth == 0 {
		return nil
	}
	at := leave{v.value, fmt.Sprint(v.dims), depth}
	if o, before := f.leaves[at]; before {
		return o
	}
	f.leaves[at] = nil
	for _, u := range f.readers(v.value) {
		if u.Index != 0 || u.Node.Graph != v.value.Graph {
			continue
		}
		if next, ok := f.stepDown(v, u.Node); ok {
			if o := f.leaving(next, depth-1); o != nil {
				f.leaves[at] = o
				break
			}
		}
	}
	return f.leaves[at]
}
