package random

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort/session"
)

// shrink makes the graph of a failing run smaller while it fails: one output in place of all, the first that differs,
// and inputs in place of what is computed before it.
func (b *bench) shrink(ctx context.Context, g *Graph, threads int) *Graph {
	fails := func(g *Graph) bool {
		_, err := b.check(ctx, g, threads)
		return err != nil && !errors.Is(err, errRefused)
	}
	for _, feed := range g.Runs {
		if one := (&Graph{g.Model, []Feed{feed}, g.Rows}); fails(one) {
			g = one
			break
		}
	}
	for _, n := range g.Model.Graph.Node {
		if one := g.only(n.Output[0]); fails(one) {
			g = one
			break
		}
	}
	for i := len(g.Model.Graph.Node) - 1; i >= 0; i-- {
		if i >= len(g.Model.Graph.Node) || g.Model.Graph.Node[i].GetOpType() == "Constant" {
			continue
		}
		if one, err := b.cut(ctx, g, g.Model.Graph.Node[i].Output[0]); err == nil && fails(one) {
			g = one
		}
	}
	return g
}

// only is the graph with one output, and what that needs.
func (g *Graph) only(output string) *Graph {
	p := proto.Clone(g.Model).(*onnx.Model)
	p.Graph.Output = []*onnx.ValueInfo{{Name: proto.String(output)}}
	return (&Graph{p, g.Runs, g.Rows}).needed()
}

// needed is the graph without what its outputs do not need.
func (g *Graph) needed() *Graph {
	p := g.Model.Graph
	need := map[string]bool{}
	for _, o := range p.Output {
		need[o.GetName()] = true
	}
	var nodes []*onnx.Node
	for _, n := range slices.Backward(p.Node) {
		if slices.ContainsFunc(n.Output, func(o string) bool { return need[o] }) {
			nodes = append(nodes, n)
			reads(n, need)
		}
	}
	slices.Reverse(nodes)
	p.Node = nodes
	p.Initializer = slices.DeleteFunc(p.Initializer, func(t *onnx.Tensor) bool { return !need[t.GetName()] })
	p.Input = slices.DeleteFunc(p.Input, func(v *onnx.ValueInfo) bool { return !need[v.GetName()] })
	runs := make([]Feed, len(g.Runs))
	for i, feed := range g.Runs {
		runs[i] = Feed{}
		for name, a := range feed {
			if need[name] {
				runs[i][name] = a
			}
		}
	}
	return &Graph{g.Model, runs, g.Rows}
}

// reads adds what a node reads, its branches too.
func reads(n *onnx.Node, to map[string]bool) {
	for _, name := range n.Input {
		to[name] = true
	}
	for _, a := range n.Attribute {
		if a.G == nil {
			continue
		}
		for _, o := range a.G.Output {
			to[o.GetName()] = true
		}
		for _, inner := range a.G.Node {
			reads(inner, to)
		}
	}
}

// cut is the graph of one run with an input in place of a value, which is fed what ONNX Runtime alone computes.
func (b *bench) cut(ctx context.Context, g *Graph, name string) (*Graph, error) {
	bytes, err := proto.Marshal(g.only(name).Model)
	if err != nil {
		return nil, err
	}
	s, err := session.FromBytes(b.library, bytes,
		session.Options{IntraOpThreads: 1, Unpatched: true, LogSeverity: session.LogFatal})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	r := &run{bench: b, names: []string{name}}
	defer r.close()
	list, err := r.answers(ctx, s, g.only(name).Runs[0])
	if err != nil {
		return nil, err
	}
	data, err := list[0].Bytes()
	if err != nil {
		return nil, err
	}
	a := Array{onnx.Tensor_DataType(list[0].Element()), list[0].Shape(), slices.Clone(data)}
	p := proto.Clone(g.Model).(*onnx.Model)
	open := make([]any, len(a.Shape))
	for i, n := range a.Shape {
		open[i] = int(n)
	}
	p.Graph.Input = append(p.Graph.Input,
		&onnx.ValueInfo{Name: proto.String(name), Type: graph.TensorType(a.Kind, open...)})
	p.Graph.Node = slices.DeleteFunc(p.Graph.Node, func(n *onnx.Node) bool { return n.Output[0] == name })
	feed := Feed{name: a}
	for k, v := range g.Runs[0] {
		feed[k] = v
	}
	return (&Graph{p, []Feed{feed}, g.Rows}).needed(), nil
}
