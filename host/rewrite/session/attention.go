package session

import (
	"slices"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/signature"
)

// attention puts one operator with the signature of canonical attention in place of
// a block.
func (r *rewriter) attention(c plan.Choice) error {
	w := c.Block.Wiring
	g := w.Graph
	old := []*graph.Value{w.Output, w.PresentKey, w.PresentValue, w.Scores}
	ins := []*graph.Value{w.Query, w.Key, w.Value, w.PastKey, w.PastValue, nil, w.BoolMask, w.Lengths, w.Sinks}
	operands := len(ins)
	for _, b := range w.Biases {
		ins = append(ins, b.Value)
	}
	biases := len(ins)
	ins = append(ins, w.HeadScale)
	for i, v := range ins {
		ins[i] = r.Current(v)
	}
	region := blocks.Region(ins, old)
	if err := r.FreeShapes(region, ins, old); err != nil {
		return err
	}
	r.NodesVanish(region...)
	if w.BoolMask != nil && w.BoolMaskInverted {
		not, err := r.AddNode(g, "", "Not", []*graph.Value{ins[6]}, []string{g.FreshName("graft_visible")})
		if err != nil {
			return err
		}
		ins[6] = not.Out[0]
	}
	var err error
	if ins[5], err = r.bias(c.Block, ins[operands:biases]); err != nil {
		return err
	}
	if w.HeadScale != nil {
		if ins[0], err = r.make(g, "Mul", ins[0], ins[biases]); err != nil {
			return err
		}
	}
	if w.KeyLayout == "bd1s" { // no operator has a name for it
		if ins[1], err = r.turned(ins[1], w.KeyLayout, "graft_key"); err != nil {
			return err
		}
	}
	if blocks.Columns(w.ValueLayout) {
		if ins[2], err = r.turned(ins[2], w.ValueLayout, "graft_value"); err != nil {
			return err
		}
	}
	ins = ins[:operands]
	var attributes []any
	described := signature.Find(c.Described, c.Operator.Name)
	for _, x := range plan.AttentionAttributes(c.Block) {
		if described == nil || described.Has(x.Name) {
			attributes = append(attributes, x.Name, x.Value)
		}
	}
	outputs := make([]string, len(old))
	for i, v := range old {
		if v != nil {
			outputs[i] = g.FreshName("graft_" + []string{"attention", "present_key", "present_value", "scores"}[i])
		}
	}
	placed := slices.Clone(outputs)
	if described != nil { // an operator has those that it describes, at its own places
		placed = plan.AtPlaces(outputs, plan.AttentionOutputs, described.Outputs)
		ins = plan.AtPlaces(ins, plan.AttentionInputs, described.Inputs)
	}
	for len(placed) > 1 && placed[len(placed)-1] == "" {
		placed = placed[:len(placed)-1]
	}
	for len(ins) > 1 && ins[len(ins)-1] == nil {
		ins = ins[:len(ins)-1]
	}
	n, err := r.AddNode(g, manifest.Domain, c.Operator.Name, slices.Clone(ins), placed, attributes...)
	if err != nil {
		return err
	}
	for i, v := range old {
		if v == nil {
			continue
		}
		to := n.Out[slices.Index(placed, outputs[i])]
		if v == w.Output {
			if to, err = r.result(w, to); err != nil {
				return err
			}
		}
		r.Replace(v, to)
	}
	return nil
}

// result makes of an operator's result what the block makes.
func (r *rewriter) result(w *blocks.Wiring, v *graph.Value) (*graph.Value, error) {
	var err error
	if w.Filled > 0 {
		if v, err = r.Fill(v, w.OutputRank, w.Filled); err != nil {
			return nil, err
		}
	}
	if blocks.Columns(w.OutputLayout) {
		return r.turned(v, w.OutputLayout, "graft_result")
	}
	return v, nil
}

// turned takes rows of a head for columns, or columns for rows.
func (r *rewriter) turned(v *graph.Value, layout, name string) (*graph.Value, error) {
	perm := []int64{0, 1, 3, 2}
	if layout == "bd1s" {
		perm = []int64{0, 2, 1}
	}
	n, err := r.AddNode(v.Graph, "", "Transpose", []*graph.Value{v}, []string{v.Graph.FreshName(name)}, "perm", perm)
	if err != nil {
		return nil, err
	}
	return n.Out[0], nil
}
