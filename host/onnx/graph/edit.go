package graph

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
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
	v := g.constant(t)
	g.Proto.Initializer = append(g.Proto.Initializer, t)
	return v
}

// AddConstant is AddInitializer of a constant that belongs to the view: the model has it from the next Commit on, and
// only if something reads it then.
func (g *Graph) AddConstant(t *onnx.Tensor) *Value {
	g.waiting = append(g.waiting, t)
	return g.constant(t)
}

func (g *Graph) constant(t *onnx.Tensor) *Value {
	if t.GetName() == "" || g.root.names[t.GetName()] {
		stem := t.GetName()
		if stem == "" {
			stem = "graft_constant"
		}
		t.Name = proto.String(g.FreshName(stem))
	}
	g.root.names[t.GetName()] = true
	v := g.make(t.GetName())
	v.Tensor = t
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

// SetInputs makes nodes read other values, to, at different places. Unlike SetInput for
// each it takes no longer where many nodes read one value.
func (g *Graph) SetInputs(uses []Use, to []*Value) {
	left := map[*Value]bool{}
	for i, u := range uses {
		if old := u.Node.In[u.Index]; old != nil {
			left[old] = true
		}
		u.Node.In[u.Index] = to[i]
	}
	for v := range left {
		v.Uses = slices.DeleteFunc(v.Uses, func(u Use) bool { return u.Node.In[u.Index] != v })
	}
	for i, u := range uses {
		if to[i] != nil {
			to[i].Uses = append(to[i].Uses, u)
		}
	}
}

// handOut makes a value the next output of the graph.
func (g *Graph) handOut(v *Value) {
	v.handed = append(v.handed, place{g, len(g.Outputs)})
	g.Outputs = append(g.Outputs, v)
}

// Replace lets to stand wherever old was read, and gives it old's name when old
// is an output of the graph: callers know outputs by name. A value that has a
// name to keep already (an input, a constant, another output, one of a graph
// further out) is handed out through an Identity.
func (g *Graph) Replace(old, to *Value) {
	g.Stand(to, old)
	uses := old.Uses
	old.Uses = nil
	for _, u := range uses {
		u.Node.In[u.Index] = to
	}
	to.Uses = append(to.Uses, uses...)
	if old.IsOutput && (to.Producer == nil || to.IsOutput || to.Graph != old.Graph) {
		fresh := []string{old.Graph.FreshName("graft_output")} // which cannot be refused
		n, _ := old.Graph.AddNode(&onnx.Node{OpType: proto.String("Identity")}, []*Value{to}, fresh)
		to = n.Out[0]
	}
	for _, at := range old.handed {
		at.graph.Outputs[at.index] = to
	}
	to.handed, old.handed = append(to.handed, old.handed...), nil
	if old.IsOutput {
		old.IsOutput, to.IsOutput = false, true
		old.Name, to.Name = to.Name, old.Name
		old.Graph.values[old.Name], to.Graph.values[to.Name] = old, to
		if to.Type == nil {
			to.Type = old.Type
		}
	}
}

// Stand notes that a value is in the place of another, which Replace does by itself.
func (g *Graph) Stand(to, old *Value) {
	if g.root.stands == nil {
		g.root.stands = map[*Value]string{}
	}
	name, ok := g.root.stands[old]
	if !ok {
		name = old.Name
	}
	g.root.stands[to] = name
}

// Stands are what values of the graph were put in the place of since it was read, by the names of both.
func (g *Graph) Stands() map[string]string {
	list := map[string]string{}
	for v, old := range g.root.stands {
		if v.Name != old {
			list[v.Name] = old
		}
	}
	return list
}

// Inherit notes what values of the graph stood for in an earlier view of it.
func (g *Graph) Inherit(earlier *Graph) {
	for name, old := range earlier.Stands() {
		if v := g.Lookup(name); v != nil {
			g.Stand(v, &Value{Name: old})
		}
	}
}

// Remove takes the node and what it makes out of its graph. Its outputs must
// be read by nothing.
func (g *Graph) Remove(n *Node) {
	g.drop([]*Node{n})
}

// drop takes nodes that nothing else reads out of their graph.
func (g *Graph) drop(nodes []*Node) {
	if len(nodes) == 0 {
		return
	}
	gone, graphs := map[*Node]bool{}, map[*Graph]bool{}
	read := map[*Value]bool{}
	var detach func(n *Node)
	detach = func(n *Node) {
		gone[n] = true
		for _, s := range n.Subgraphs {
			graphs[s] = true
			for _, inner := range s.Nodes {
				detach(inner)
			}
			for _, v := range s.Outputs {
				read[v] = true
			}
		}
		for _, v := range n.Out {
			if v != nil {
				delete(n.Graph.values, v.Name)
			}
		}
	}
	for _, n := range nodes {
		n.EachRead(func(v *Value) { read[v] = true })
		detach(n)
	}
	for v := range read {
		v.Uses = slices.DeleteFunc(v.Uses, func(u Use) bool { return gone[u.Node] })
		v.handed = slices.DeleteFunc(v.handed, func(at place) bool { return graphs[at.graph] })
	}
	for s := range graphs {
		s.Nodes = nil
	}
	g.Nodes = slices.DeleteFunc(g.Nodes, func(m *Node) bool { return gone[m] })
}

// EachRead goes through what the node and the nodes of its subgraphs read.
func (n *Node) EachRead(f func(*Value)) {
	for _, v := range n.In {
		if v != nil {
			f(v)
		}
	}
	for _, s := range n.Subgraphs {
		for _, inner := range s.Nodes {
			inner.EachRead(f)
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
	var dead []*Node
	going := map[*Value]int{} // uses that go
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := g.Nodes[i]
		if !slices.ContainsFunc(n.Out,
			func(v *Value) bool { return v != nil && (len(v.Uses) > going[v] || len(v.handed) > 0) }) {
			dead = append(dead, n)
			n.EachRead(func(v *Value) { going[v]++ })
		}
	}
	g.drop(dead)
	gone := map[string]bool{}
	g.Proto.Initializer = slices.DeleteFunc(g.Proto.Initializer, func(t *onnx.Tensor) bool {
		v := g.values[t.GetName()]
		if v == nil || v.IsInput || len(v.Uses) > 0 || len(v.handed) > 0 {
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
	order := make([]*Node, 0, len(g.Nodes))
	placed := make(map[*Node]bool, len(g.Nodes))
	open := map[*Node]bool{} // nodes on the way, which must not be met again
	type step struct {
		n    *Node
		left []*Value // what it needs and was not looked at
	}
	var way []step // chains of nodes are as long as a model makes them
	for _, n := range g.Nodes {
		if !placed[n] {
			open[n], way = true, append(way, step{n, g.reads(n)})
		}
		for len(way) > 0 {
			at := &way[len(way)-1]
			if len(at.left) == 0 {
				delete(open, at.n)
				placed[at.n] = true
				order, way = append(order, at.n), way[:len(way)-1]
				continue
			}
			v := at.left[0]
			at.left = at.left[1:]
			if v == nil || v.Producer == nil || v.Graph != g || placed[v.Producer] {
				continue
			}
			m := v.Producer
			if open[m] {
				return fmt.Errorf("node %s depends on itself", m)
			}
			open[m], way = true, append(way, step{m, g.reads(m)})
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
// included; nil for an input left out.
func (g *Graph) reads(n *Node) []*Value {
	if len(n.Subgraphs) == 0 {
		return n.In
	}
	list := slices.Clone(n.In)
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
	if g.Owner != nil { // it may hand out a value of the graph around it, for which another stands now
		for i, v := range g.Outputs {
			g.Proto.Output[i].Name = proto.String(v.Name)
		}
	}
	g.Proto.Node = make([]*onnx.Node, 0, len(g.Nodes))
	for _, n := range g.Nodes {
		n.Proto.Input = nameAll(n.Proto.Input, n.In)
		n.Proto.Output = nameAll(n.Proto.Output, n.Out)
		for _, s := range n.Subgraphs {
			s.commit()
		}
		g.Proto.Node = append(g.Proto.Node, n.Proto)
	}
	for _, t := range g.waiting {
		if v := g.values[t.GetName()]; v != nil && len(v.Uses) > 0 {
			g.Proto.Initializer = append(g.Proto.Initializer, t)
			continue
		}
		delete(g.values, t.GetName())
	}
	g.waiting = nil
	g.Proto.ValueInfo = slices.DeleteFunc(g.Proto.ValueInfo, func(vi *onnx.ValueInfo) bool {
		return g.values[vi.GetName()] == nil
	})
}

// nameAll is the names of values, before itself where they are the same.
func nameAll(before []string, list []*Value) []string {
	if slices.EqualFunc(before, list, func(name string, v *Value) bool { return name == v.name() }) {
		return before
	}
	s := make([]string, len(list))
	for i, v := range list {
		s[i] = v.name()
	}
	return s
}

// name is empty for what is left out.
func (v *Value) name() string {
	if v == nil {
		return ""
	}
	return v.Name
}

// ImportOpset makes the model import an operator set unless it does already.
func (g *Graph) ImportOpset(domain string, version int64) {
	if g.Opset(domain) == 0 {
		p := g.root.proto
		p.OpsetImport = append(p.OpsetImport, &onnx.OperatorSet{Domain: proto.String(domain), Version: proto.Int64(version)})
		g.root.opsets[domain] = version
	}
}
