package prepare

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// WithoutPast makes a merged decoder the one that reads no past. A model that is not merged stays as it is.
func WithoutPast(p *onnx.Model) error { return takeBranch(p, false) }

// takeBranch makes a merged decoder one of its two: the branch that reads a past,
// or the one that does not. A model that is not merged stays as it is.
func takeBranch(p *onnx.Model, past bool) error {
	g := p.GetGraph()
	at := branches(g)
	if at < 0 {
		return nil
	}
	var branches []*onnx.Graph
	for _, a := range g.Node[at].GetAttribute() {
		if a.GetG() != nil {
			branches = append(branches, a.GetG())
		}
	}
	if len(branches) != 2 {
		return fmt.Errorf("the node %s has %d branches, needed are 2", g.Node[at].GetName(), len(branches))
	}
	caches := map[string]bool{}
	for _, in := range g.Input {
		if rank := len(in.GetType().GetTensorType().GetShape().GetDim()); rank == 4 {
			caches[in.GetName()] = true
		}
	}
	counts := [2]int{reads(branches[0], caches), reads(branches[1], caches)}
	take := 0
	if (counts[1] > counts[0]) == past {
		take = 1
	}
	b := branches[take]
	names := map[string]string{}
	for i, o := range b.Output {
		names[o.GetName()] = g.Node[at].Output[i]
	}
	rename(b, names)
	g.Node = append(append(slices.Clone(g.Node[:at]), b.Node...), g.Node[at+1:]...)
	g.Initializer = append(g.Initializer, b.Initializer...)
	g.ValueInfo = append(g.ValueInfo, b.ValueInfo...)
	return nil
}

// branches is where the node of a merged decoder stands that chooses a branch; -1 of another graph.
func branches(g *onnx.Graph) int {
	return slices.IndexFunc(g.GetNode(), func(n *onnx.Node) bool {
		return n.GetOpType() == "If" && len(n.GetOutput()) == len(g.GetOutput()) && len(n.GetInput()) == 1 &&
			slices.ContainsFunc(g.GetInput(), func(in *onnx.ValueInfo) bool { return in.GetName() == n.GetInput()[0] })
	})
}

// reads counts how many of the names the nodes of a graph read.
func reads(g *onnx.Graph, names map[string]bool) int {
	seen := map[string]bool{}
	for _, n := range g.Node {
		for _, in := range n.Input {
			if names[in] && n.GetOpType() != "Shape" {
				seen[in] = true
			}
		}
	}
	return len(seen)
}

// rename gives values of a graph, and what reads them in graphs inside it, other
// names.
func rename(g *onnx.Graph, names map[string]string) {
	swap := func(list []string) {
		for i, name := range list {
			if to, ok := names[name]; ok {
				list[i] = to
			}
		}
	}
	for _, n := range g.Node {
		swap(n.Input)
		swap(n.Output)
		for _, a := range n.Attribute {
			if a.G != nil {
				rename(a.G, names)
			}
		}
	}
	for _, t := range g.Initializer {
		if to, ok := names[t.GetName()]; ok {
			t.Name = proto.String(to)
		}
	}
	g.ValueInfo = slices.DeleteFunc(g.ValueInfo, func(v *onnx.ValueInfo) bool { _, ok := names[v.GetName()]; return ok })
}

// extract is the part of a model that makes some of its values, with the inputs
// that it needs. The parts are shared with the model, which must not change. Where
// known, which may be nil, gives an input for a node, that stands for the node's
// output.
func extract(p *onnx.Model, outputs []*onnx.ValueInfo, known func(*onnx.Node) *onnx.ValueInfo) (*onnx.Model, error) {
	g := p.GetGraph()
	maker := map[string]int{}
	for i, n := range g.Node {
		for _, o := range n.Output {
			maker[o] = i
		}
	}
	needed := map[string]bool{}
	nodes := map[int]bool{}
	var given []*onnx.ValueInfo
	var need func(name string)
	var needNode func(n *onnx.Node)
	needNode = func(n *onnx.Node) {
		for _, in := range n.Input {
			need(in)
		}
		for _, a := range n.Attribute {
			if a.G != nil {
				for _, inner := range a.G.Node {
					needNode(inner)
				}
				for _, o := range a.G.Output {
					need(o.GetName())
				}
			}
		}
	}
	need = func(name string) {
		if name == "" || needed[name] {
			return
		}
		needed[name] = true
		i, made := maker[name]
		if made && known != nil {
			if in := known(g.Node[i]); in != nil {
				given = append(given, in)
				return
			}
		}
		if made && !nodes[i] {
			nodes[i] = true
			needNode(g.Node[i])
		}
	}
	for _, o := range outputs {
		need(o.GetName())
	}
	part := &onnx.Graph{Name: g.Name, Output: outputs}
	for i, n := range g.Node {
		if nodes[i] {
			part.Node = append(part.Node, n)
		}
	}
	for _, in := range g.Input {
		if needed[in.GetName()] {
			part.Input = append(part.Input, in)
		}
	}
	part.Input = append(part.Input, given...)
	for _, t := range g.Initializer {
		if needed[t.GetName()] {
			part.Initializer = append(part.Initializer, t)
		}
	}
	have := map[string]bool{}
	for name := range maker {
		have[name] = true
	}
	for _, in := range part.Input {
		have[in.GetName()] = true
	}
	for _, t := range part.Initializer {
		have[t.GetName()] = true
	}
	for _, o := range outputs {
		if !have[o.GetName()] {
			return nil, fmt.Errorf("the model makes no value %s", o.GetName())
		}
	}
	return &onnx.Model{IrVersion: p.IrVersion, OpsetImport: p.OpsetImport, Functions: p.Functions, Graph: part}, nil
}
