package fused

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// PutBack makes one operator again of parts that nothing took, in the graph that they were taken apart in or one that
// was made of it. What is left of others has what it needs to run.
func (p *Parts) PutBack(g *graph.Graph) error {
	if !p.Any() {
		return nil
	}
	p.putIntegersBack(g) // while their constants are there
	nodes := map[string]*graph.Node{}
	for _, n := range g.Nodes {
		g.Spend(1)
		nodes[n.Proto.GetName()] = n
	}
	for _, a := range p.attentions {
		if n := nodes[a.node]; n != nil && n.Op() == MultiHead {
			if err := a.back(g, n); err != nil {
				return fmt.Errorf("%s: %w", n.Path(), err)
			}
		}
	}
	g.Prune() // of what masks added to scores
	for _, e := range p.embeddings {
		if n := nodes[e.node]; n != nil && n.Op() == Embedding {
			if err := e.back(g, n); err != nil {
				return fmt.Errorf("%s: %w", n.Path(), err)
			}
		}
	}
	g.Prune()
	return g.Commit()
}

// value is one that a graph has by a name; nil for "".
func value(g *graph.Graph, name string) (*graph.Value, error) {
	if name == "" {
		return nil, nil
	}
	v := g.Lookup(name)
	if v == nil {
		return nil, fmt.Errorf("%s, which it reads, is not there any more", name)
	}
	return v, nil
}

// named is an input of a node as a model has it, by name; "" for none.
func named(n *onnx.Node, i int) string {
	if i < len(n.Input) {
		return n.Input[i]
	}
	return ""
}

// back lets an attention that nothing took hide keys by itself, and, where its projections are there too, is what it
// was.
func (a attention) back(g *graph.Graph, n *graph.Node) error {
	was := n.Op() == MultiHead && a.before.GetOpType() == "MultiHeadAttention"
	mask := a.mask
	if was {
		mask = named(a.before, 4)
	}
	own, err := value(g, mask)
	if err != nil {
		return err
	}
	added, err := value(g, named(a.before, 5))
	if err != nil {
		return err
	}
	read(n, 4, own)
	read(n, 5, added)
	if was {
		err = a.addInside(g, n)
	} else {
		err = a.projectInside(g, n, added)
	}
	shorten(n)
	return err
}

// addInside lets a MultiHeadAttention add the biases of its projections, where nothing else does.
func (a attention) addInside(g *graph.Graph, n *graph.Node) error {
	bias, err := value(g, named(a.before, 3))
	if a.biases[0] == "" || err != nil {
		return nil // it had none, or it is read in parts alone
	}
	var rows [3]*graph.Value
	for i, part := range a.biases {
		sum := n.Input(i).Producer
		if !sum.Is("Add") || !alone(sum.Out[0]) || sum.In[1] == nil || sum.In[1].Name != part {
			return nil
		}
		rows[i] = sum.In[0]
	}
	for i, v := range rows {
		n.SetInput(i, v)
	}
	read(n, 3, bias)
	return nil
}

// projectInside makes an Attention again of a MultiHeadAttention whose projections are those of the model.
func (a attention) projectInside(g *graph.Graph, n *graph.Node, added *graph.Value) error {
	split := n.Input(0).Producer
	if !split.Is("Split") || len(split.Out) != 3 {
		return nil
	}
	for i, v := range split.Out {
		if n.Input(i) != v || !alone(v) {
			return nil
		}
	}
	rows, bias := split.In[0].Producer, (*graph.Value)(nil)
	if b := named(a.before, 2); b != "" {
		if !rows.Is("Add") || !alone(rows.Out[0]) || rows.In[1] == nil || rows.In[1].Name != b {
			return nil
		}
		rows, bias = rows.In[0].Producer, rows.In[1]
	}
	if !rows.Is("MatMul") || !alone(rows.Out[0]) || rows.In[1] == nil || rows.In[1].Name != named(a.before, 1) {
		return nil
	}
	mask, err := value(g, named(a.before, 3))
	if err != nil {
		return err
	}
	x, w := rows.In[0], rows.In[1]
	n.Proto.OpType, n.Proto.Attribute = proto.String("Attention"), slices.Clone(a.before.Attribute)
	for i := range n.In {
		n.SetInput(i, nil)
	}
	for i, v := range []*graph.Value{x, w, bias, mask, nil, added} {
		read(n, i, v)
	}
	return nil
}

// alone says that one node alone reads a value.
func alone(v *graph.Value) bool { return v != nil && len(v.Uses) == 1 && !v.IsOutput }

// back lets an embedding that reads the model's tokens count its mask again.
func (e embedding) back(g *graph.Graph, n *graph.Node) error {
	ids := n.Input(0)
	if ids == nil || ids.Name != named(e.before, 0) ||
		e.places != "" && (n.Input(8) == nil || n.Input(8).Name != e.places) {
		return nil
	}
	counted := g.Lookup(e.counted)
	if e.places != "" {
		n.SetInput(8, nil)
	}
	shorten(n)
	if given(counted) && n.Input(7) != nil && n.Output(1) != nil {
		g.Replace(counted, n.Out[1])
	}
	return nil
}
