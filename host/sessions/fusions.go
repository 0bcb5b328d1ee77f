package sessions

import (
	"strings"

	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
)

// fusions says what ONNX Runtime fuses in the program's own model, with the program's options.
func fusions(r ort.Request) (list []plan.Fusion, err error) {
	err = r.Optimized(func(b []byte) error {
		m, err := model.Parse(b, "")
		if err != nil {
			return err
		}
		defer m.Close()
		g, err := graph.New(m.Proto(), m)
		if err != nil {
			return err
		}
		g.Walk(func(n *graph.Node) {
			if !n.Is("com.microsoft.SkipLayerNormalization") || n.Input(0) == nil || n.Input(1) == nil || n.Input(2) == nil {
				return
			}
			f := plan.Fusion{Sum: [2]string{strings.Clone(n.In[0].Name), strings.Clone(n.In[1].Name)}, Scale: strings.Clone(n.In[2].Name),
				Output: strings.Clone(n.Output(0).Name), Epsilon: n.Float("epsilon", 1e-12)}
			if v := n.Input(3); v != nil {
				f.Bias = strings.Clone(v.Name)
			}
			list = append(list, f)
		})
		return nil
	})
	return list, err
}
