package blocks

import (
	"fmt"
	"strings"

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

// Origin finds the block that makes what another takes in as a past: decoders
// exported with a past have no projections of the encoder's output, because its
// keys and values come in from the decoder without one, whose report is searched.
// A past past_key_values.0.encoder.key is what present.0.encoder.key was. It is
// nil for a block that makes its own keys, and where no block hands them out.
func Origin(b *Block, without *Report) *Block {
	key, value := inputPast(b.Wiring.Key), inputPast(b.Wiring.Value)
	if key == "" || value == "" {
		return nil
	}
	for _, o := range without.Blocks {
		w := o.Wiring
		if w.LeavingKey != nil && w.LeavingValue != nil && outputPresent(w.LeavingKey) == key &&
			outputPresent(w.LeavingValue) == value {
			return o
		}
	}
	return nil
}

// inputPast is what a graph's input that is a past has in common with the output
// that was its present, or "".
func inputPast(v *graph.Value) string {
	if v == nil || !v.IsInput {
		return ""
	}
	name, ok := strings.CutPrefix(v.Name, "past_key_values")
	if !ok {
		return ""
	}
	return name
}

func outputPresent(v *graph.Value) string {
	name, ok := strings.CutPrefix(v.Name, "present")
	if !ok {
		return ""
	}
	return name
}
