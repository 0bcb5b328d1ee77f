package patterns

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// asNodes is a model with each layer normalisation written as its nine nodes.
func asNodes(t *testing.T, m *model.Model) *onnx.Model {
	t.Helper()
	p := proto.Clone(m.Proto()).(*onnx.Model)
	for _, set := range p.OpsetImport {
		if set.GetDomain() == "" && set.GetVersion() < 18 {
			set.Version = proto.Int64(18) // in which ReduceMean's axes are an input
		}
	}
	g := must.Value(graph.New(p, m))(t)
	var list []*graph.Node
	g.Walk(func(n *graph.Node) {
		if n.Is("LayerNormalization") {
			list = append(list, n)
		}
	})
	for _, n := range list {
		in := n.Graph
		node := func(op string, inputs ...*graph.Value) *graph.Value {
			added := must.Value(in.AddNode(&onnx.Node{OpType: proto.String(op)}, inputs, []string{in.FreshName("nine")}))(t)
			return added.Out[0]
		}
		x := n.In[0]
		last := in.AddInitializer(graph.Int64Tensor("", []int64{1}, -1))
		centred := node("Sub", x, node("ReduceMean", x, last))
		variance := node("ReduceMean", node("Pow", centred, in.AddInitializer(graph.FloatTensor("", nil, 2))), last)
		deviation := node("Sqrt",
			node("Add", variance, in.AddInitializer(graph.FloatTensor("", nil, n.Float("epsilon", 1e-5)))))
		y := node("Mul", node("Div", centred, deviation), n.In[1])
		if n.Input(2) != nil {
			y = node("Add", y, n.In[2])
		}
		in.Replace(n.Out[0], y)
		in.Remove(n)
	}
	must.Succeed(t, g.Sort())
	must.Succeed(t, g.Commit())
	return p
}
