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
		n, err := r.AddNode(g, "", "Transpose", []*graph.Value{ins[1]}, []string{g.FreshName("graft_key")}, "perm",
			[]int64{0, 2, 1})
		if err != nil {
			return err
		}
		ins[1] = n.Out[0]
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
		r.Replace(v, n.Out[slices.Index(placed, outputs[i])])
	}
	return nil
}
