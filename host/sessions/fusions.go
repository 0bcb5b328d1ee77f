package sessions

import (
	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
)

// fusions says what ONNX Runtime fuses in the program's own model, with the program's options.
func fusions(r ort.Request) ([]plan.Fusion, error) {
	b, err := r.Optimized()
	if err != nil {
		return nil, err
	}
	m, err := model.Parse(b, "")
	if err != nil {
		return nil, err
	}
	defer m.Close()
	g, err := graph.New(m.Proto(), m)
	if err != nil {
		return nil, err
	}
	var list []plan.Fusion
	g.Walk(func(n *graph.Node) {
		if !n.Is("com.microsoft.SkipLayerNormalization") || n.Input(0) == nil || n.Input(1) == nil || n.Input(2) == nil {
			return
		}
		f := plan.Fusion{Sum: [2]string{n.In[0].Name, n.In[1].Name}, Scale: n.In[2].Name, Output: n.Output(0).Name, Epsilon: n.Float("epsilon", 1e-12)}
		if v := n.Input(3); v != nil {
			f.Bias = v.Name
		}
		list = append(list, f)
	})
	return list, nil
}
