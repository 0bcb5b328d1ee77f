package equivalent

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// rename gives every value and node a name that says nothing. Names of inputs
// and outputs, of subgraphs too, stay. Equal names in two branches stay equal.
func (d *writer) rename(m *onnx.Model) {
	fixed := map[string]bool{}
	names := map[string]string{}
	each(m.Graph, func(g *onnx.Graph) {
		for _, v := range append(append([]*onnx.ValueInfo{}, g.Input...), g.Output...) {
			fixed[v.GetName()] = true
		}
	})
	to := func(name string) string {
		if name == "" || fixed[name] {
			return name
		}
		if names[name] == "" {
			names[name] = fmt.Sprintf("v%d", d.rand.Uint64())
			d.names[names[name]] = name
		}
		return names[name]
	}
	each(m.Graph, func(g *onnx.Graph) {
		for _, t := range g.Initializer {
			t.Name = proto.String(to(t.GetName()))
		}
		for _, v := range g.ValueInfo {
			v.Name = proto.String(to(v.GetName()))
		}
		for _, n := range g.Node {
			n.Name = proto.String(fmt.Sprintf("n%d", d.rand.Uint64()))
			for i, name := range n.Input {
				n.Input[i] = to(name)
			}
			for i, name := range n.Output {
				n.Output[i] = to(name)
			}
		}
	})
}

// each calls f for a graph and the graphs inside it.
func each(g *onnx.Graph, f func(*onnx.Graph)) {
	f(g)
	for _, n := range g.Node {
		for _, a := range n.Attribute {
			if a.G != nil {
				each(a.G, f)
			}
			for _, s := range a.Graphs {
				each(s, f)
			}
		}
	}
}
