package model

import (
	"fmt"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"google.golang.org/protobuf/proto"
)

// LiftConstants turns every Constant node of p whose value is referred to, and
// too large to be inline, into an initializer of the same graph, main or
// subgraph, and returns how many. The name of the value stays; where it is also an
// output of its graph, an Identity gives it that name. Functions have no
// initializers, so their constants stay, and so do all constants of models
// before IR version 4, where an initializer must also be an input.
func (m *Model) LiftConstants(p *onnx.Model) int {
	if p.GetIrVersion() < 4 {
		return 0
	}
	l := &lifter{m: m, model: p}
	l.graph(p.GetGraph())
	return l.lifted
}

type lifter struct {
	m      *Model
	model  *onnx.Model
	names  map[string]bool // every value name of the model, once needed
	lifted int
}

func (l *lifter) graph(g *onnx.Graph) {
	outputs := map[string]bool{}
	for _, o := range g.GetOutput() {
		outputs[o.GetName()] = true
	}
	kept := make([]*onnx.Node, 0, len(g.GetNode()))
	for _, n := range g.GetNode() {
		eachSubgraph(n, l.graph)
		t := l.m.largeConstant(n)
		if t == nil {
			kept = append(kept, n)
			continue
		}
		name := n.GetOutput()[0]
		t = proto.Clone(t).(*onnx.Tensor)
		if outputs[name] {
			t.Name = proto.String(l.fresh(name))
			kept = append(kept, &onnx.Node{
				OpType: proto.String("Identity"), Name: n.Name,
				Input: []string{t.GetName()}, Output: []string{name},
			})
		} else {
			t.Name = proto.String(name)
		}
		g.Initializer = append(g.Initializer, t)
		l.lifted++
	}
	g.Node = kept
}

// fresh makes a name that no value of the model has.
func (l *lifter) fresh(name string) string {
	if l.names == nil {
		l.names = map[string]bool{}
		collectNames(l.model.GetGraph(), l.names)
	}
	for i := 0; ; i++ {
		candidate := fmt.Sprintf("%s_constant_%d", name, i)
		if !l.names[candidate] {
			l.names[candidate] = true
			return candidate
		}
	}
}

func collectNames(g *onnx.Graph, names map[string]bool) {
	for _, t := range g.GetInitializer() {
		names[t.GetName()] = true
	}
	for _, t := range g.GetSparseInitializer() {
		names[t.GetValues().GetName()] = true
	}
	for _, v := range g.GetInput() {
		names[v.GetName()] = true
	}
	for _, n := range g.GetNode() {
		for _, o := range n.GetOutput() {
			names[o] = true
		}
		eachSubgraph(n, func(g *onnx.Graph) { collectNames(g, names) })
	}
}

func eachSubgraph(n *onnx.Node, f func(*onnx.Graph)) {
	for _, a := range n.GetAttribute() {
		if a.GetG() != nil {
			f(a.GetG())
		}
		for _, g := range a.GetGraphs() {
			f(g)
		}
	}
}

// largeConstant gives the tensor of a Constant node that may be lifted.
func (m *Model) largeConstant(n *onnx.Node) *onnx.Tensor {
	if n.GetOpType() != "Constant" || (n.GetDomain() != "" && n.GetDomain() != "ai.onnx") || len(n.GetOutput()) != 1 ||
		n.GetOutput()[0] == "" {
		return nil
	}
	for _, a := range n.GetAttribute() {
		if t := a.GetT(); a.GetName() == "value" && t != nil {
			ref, refers, err := m.reference(t)
			if err != nil || !refers || !ref.raw() || ref.length <= int64(inlineBound(t.GetDataType())) {
				return nil
			}
			return t
		}
	}
	return nil
}

func (m *Model) hasLargeConstants(g *onnx.Graph) bool {
	found := false
	for _, n := range g.GetNode() {
		eachSubgraph(n, func(g *onnx.Graph) { found = found || m.hasLargeConstants(g) })
		if found || m.largeConstant(n) != nil {
			return true
		}
	}
	return false
}
