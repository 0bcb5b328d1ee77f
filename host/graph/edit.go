package graph

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/model/onnx"
)

// FreshName makes a name that no value or node of the model has.
func (g *Graph) FreshName(stem string) string {
	for {
		g.root.fresh++
		name := fmt.Sprintf("%s_%d", stem, g.root.fresh)
		if !g.root.names[name] {
			g.root.names[name] = true
			return name
		}
	}
}

// AddInitializer adds a constant to this graph and returns its value. The
// tensor's name is replaced when it is empty or taken.
func (g *Graph) AddInitializer(t *onnx.Tensor) *Value {
	if t.GetName() == "" || g.root.names[t.GetName()] {
		stem := t.GetName()
		if stem == "" {
			stem = "graft_constant"
		}
		t.Name = proto.String(g.FreshName(stem))
	}
	g.root.names[t.GetName()] = true
	v := &Value{Name: t.GetName(), Graph: g, Tensor: t}
	g.values[v.Name] = v
	g.Proto.Initializer = append(g.Proto.Initializer, t)
	return v
}

// AddNode appends a node that reads the given values and makes outputs of the
// given names (empty for an output left out). Sort puts it in its place.
func (g *Graph) AddNode(p *onnx.Node, in []*Value, outputs []string) (*Node, error) {
	n := &Node{Proto: p, Graph: g, In: in}
	if p.GetName() == "" || g.root.names[p.GetName()] {
		p.Name = proto.String(g.FreshName("graft/" + p.GetOpType()))
	}
	for i, v := range in {
		if v != nil {
			v.Uses = append(v.Uses, Use{n, i})
		}
	}
	for _, name := range outputs {
		if name == "" {
			n.Out = append(n.Out, nil)
			continue
		}
		v, err := g.define(name)
		if err != nil {
			return nil, err
		}
		v.Producer = n
		n.Out = append(n.Out, v)
	}
	g.Nodes = append(g.Nodes, n)
	return n, nil
}

// SetInput makes the node read v (nil for nothing) at position i.
func (n *Node) SetInput(i int, v *Value) {
	if old := n.In[i]; old != nil {
		old.dropUse(n, i)
	}
	n.In[i] = v
	if v != nil {
		v.Uses = append(v.Uses, Use{n, i})
	}
}

func (v *Value) dropUse(n *Node, i int) {
	v.Uses = slices.DeleteFunc(v.Uses, func(u Use) bool { return u.Node == n && u.Index == i })
}

// Replace lets to stand wherever old was read, and gives it old's name when old
// is an output of the graph: callers know outputs by name. A value that has a
// name to keep already (an input, a constant, another output, one of a graph
// further out) is handed out through an Identity.
func (g *Graph) Replace(old, to *Value) {
	for _, u := range slices.Clone(old.Uses) {
		u.Node.SetInput(u.Index, to)
	}
	if old.IsOutput && (to.Producer == nil || to.IsOutput || to.Graph != old.Graph) {
		fresh := []string{old.Graph.FreshName("graft_output")} // which cannot be refused
		n, _ := old.Graph.AddNode(&onnx.Node{OpType: proto.String("Identity")}, []*Value{to}, fresh)
		to = n.Out[0]
	}
	if !old.IsOutput && !g.isOuterOutput(old) {
		return
	}
	for _, s := range g.family() {
		for i, o := range s.Outputs {
			if o == old {
				s.Outputs[i] = to
			}
		}
	}
	if old.IsOutput {
		old.IsOutput, to.IsOutput = false, true
		old.Name, to.Name = to.Name, old.Name
		old.Graph.values[old.Name], to.Graph.values[to.Name] = old, to
		if to.Type == nil {
			to.Type = old.Type
		}
	}
}

// isOuterOutput reports whether a subgraph hands the value out as its own
// output (an outer-scope value named directly as a branch's result).
func (g *Graph) isOuterOutput(v *Value) bool {
	for _, s := range g.family() {
		if s != v.Graph && slices.Contains(s.Outputs, v) {
			return true
		}
	}
	return false
}

// family lists this graph and every graph below it.
func (g *Graph) family() []*Graph {
	list := []*Graph{g}
	for _, n := range g.Nodes {
		for _, s := range n.Subgraphs {
			list = append(list, s.family()...)
		}
	}
	return list
}

// Remove takes the node and what it makes out of its graph. Its outputs must
// be read by nothing.
func (g *Graph) Remove(n *Node) {
	g.detach(n)
	g.Nodes = slices.DeleteFunc(g.Nodes, func(m *Node) bool { return m == n })
}

// detach lets go of what the node reads, holds and makes.
func (g *Graph) detach(n *Node) {
	for i, v := range n.In {
		if v != nil {
			v.dropUse(n, i)
		}
	}
	for _, s := range n.Subgraphs {
		for _, inner := range s.Nodes {
			s.detach(inner)
		}
		s.Nodes = nil
	}
	for _, v := range n.Out {
		if v != nil {
			delete(g.values, v.Name)
		}
	}
}

// Prune removes every node whose outputs are read by nothing, and then every
// initializer that nothing reads, here and in subgraphs.
func (g *Graph) Prune() {
	for _, n := range g.Nodes {
		for _, s := range n.Subgraphs {
			s.Prune()
		}
	}
	handedOut := map[*Value]bool{}
	for _, s := range g.family() {
		for _, o := range s.Outputs {
			handedOut[o] = true
		}
	}
	dead := map[*Node]bool{}
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := g.Nodes[i]
		if slices.ContainsFunc(n.Out, func(v *Value) bool { return v != nil && (len(v.Uses) > 0 || handedOut[v]) }) {
			continue
		}
		dead[n] = true
		g.detach(n)
	}
	g.Nodes = slices.DeleteFunc(g.Nodes, func(n *Node) bool { return dead[n] })
	gone := map[string]bool{}
	g.Proto.Initializer = slices.DeleteFunc(g.Proto.Initializer, func(t *onnx.Tensor) bool {
		v := g.values[t.GetName()]
		if v == nil || v.IsInput || len(v.Uses) > 0 || handedOut[v] {
			return false
		}
		delete(g.values, t.GetName())
		gone[t.GetName()] = true
		return true
	})
	// Models before IR version 4 list their constants among the inputs.
	g.Proto.Input = slices.DeleteFunc(g.Proto.Input, func(in *onnx.ValueInfo) bool { return gone[in.GetName()] })
}

// Sort orders the nodes so that each stands after what it reads, keeping the
// order they have where that allows it. A cycle is an error.
func (g *Graph) Sort() error {
	var order []*Node
	state := map[*Node]int8{} // 1: being visited, 2: placed
	var visit func(n *Node) error
	visit = func(n *Node) error {
		switch state[n] {
		case 1:
			return fmt.Errorf("node %s depends on itself", n)
		case 2:
			return nil
		}
		state[n] = 1
		for _, v := range g.reads(n) {
			if v.Producer != nil && v.Graph == g {
				if err := visit(v.Producer); err != nil {
					return err
				}
			}
		}
		state[n] = 2
		order = append(order, n)
		return nil
	}
	for _, n := range g.Nodes {
		if err := visit(n); err != nil {
			return err
		}
		for _, s := range n.Subgraphs {
			if err := s.Sort(); err != nil {
				return err
			}
		}
	}
	g.Nodes = order
	return nil
}

// reads lists what a node needs, the values its subgraphs take from outside
// included.
func (g *Graph) reads(n *Node) []*Value {
	var list []*Value
	for _, v := range n.In {
		if v != nil {
			list = append(list, v)
		}
	}
	for _, s := range n.Subgraphs {
		for _, inner := range s.Nodes {
			list = append(list, s.reads(inner)...)
		}
		list = append(list, s.Outputs...)
	}
	return list
}

// Commit writes the view back into the model's proto: nodes in order, their
// inputs and outputs by name. Types declared for values that are gone are
// dropped.
func (g *Graph) Commit() error {
	if err := g.Sort(); err != nil {
		return err
	}
	g.commit()
	return nil
}

func (g *Graph) commit() {
	g.Proto.Node = g.Proto.Node[:0:0]
	for _, n := range g.Nodes {
		n.Proto.Input = names(n.In)
		n.Proto.Output = names(n.Out)
		for _, s := range n.Subgraphs {
			s.commit()
		}
		g.Proto.Node = append(g.Proto.Node, n.Proto)
	}
	g.Proto.ValueInfo = slices.DeleteFunc(g.Proto.ValueInfo, func(vi *onnx.ValueInfo) bool {
		return g.values[vi.GetName()] == nil
	})
}

func names(list []*Value) []string {
	s := make([]string, len(list))
	for i, v := range list {
		if v != nil {
			s[i] = v.Name
		}
	}
	return s
}

// ImportOpset makes the model import an operator set unless it does already.
func (g *Graph) ImportOpset(domain string, version int64) {
	if g.Opset(domain) == 0 {
		p := g.root.proto
		p.OpsetImport = append(p.OpsetImport, &onnx.OperatorSet{Domain: proto.String(domain), Version: proto.Int64(version)})
	}
}
