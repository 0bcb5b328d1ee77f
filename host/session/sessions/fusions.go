package sessions

import (
	"strings"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
)

// fusions says what ONNX Runtime fuses in the program's own model, with the program's options.
func fusions(r session.Request) (list []plan.Fusion, err error) {
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
			if f := fusion(n); f != nil {
				list = append(list, *f)
			}
		})
		return nil
	})
	return list, err
}

// fusion is what a node of an optimised graph stands for, or nil. Its names outlive the graph.
func fusion(n *graph.Node) *plan.Fusion {
	f := &plan.Fusion{}
	switch {
	case n.Is("com.microsoft.SkipLayerNormalization"):
		if n.Input(0) == nil || n.Input(1) == nil || n.Input(2) == nil {
			return nil
		}
		f.Sum, f.Scale = [2]string{name(n.In[0]), name(n.In[1])}, name(n.In[2])
		f.Bias, f.Epsilon = name(n.Input(3)), n.Float("epsilon", 1e-12)
	case n.Is("LayerNormalization"):
		sum := alone(n.Input(0))
		last := n.Int("axis", -1) == -1 && n.Output(1) == nil && n.Output(2) == nil
		if sum == nil || !sum.Is("Add") || !last || n.Input(1) == nil || n.Input(2) == nil {
			return nil
		}
		f.Sum, f.Scale = [2]string{name(sum.In[0]), name(sum.In[1])}, name(n.In[1])
		f.Bias, f.Epsilon, f.Apart = name(n.In[2]), n.Float("epsilon", 1e-5), true
	case n.Is("com.microsoft.Gelu", "Gelu"):
		if kind := n.Attr("approximate"); n.Input(0) == nil || kind != nil && string(kind.GetS()) != "none" {
			return nil
		}
		f.Gelu = name(n.In[0])
	case n.Is("Softmax"):
		var product *graph.Node
		if f.Attention, product = attention(n); product == nil {
			return nil
		}
		n = product
	default:
		return nil
	}
	f.Output = name(n.Output(0))
	return f
}

// attention is what a softmax belongs to, and the product with the values, or nil.
func attention(softmax *graph.Node) (*plan.FusedAttention, *graph.Node) {
	a := &plan.FusedAttention{Scale: 1}
	if axis := softmax.Int("axis", -1); axis != -1 && axis != 3 {
		return nil, nil
	}
	weights := softmax.Output(0)
	if weights.IsOutput || len(weights.Uses) != 1 || weights.Uses[0].Index != 0 || !weights.Uses[0].Node.Is("MatMul") {
		return nil, nil
	}
	product := weights.Uses[0].Node
	scores := alone(softmax.Input(0))
	if scores != nil && scores.Is("Add") {
		at := 0
		if p := alone(scores.Input(0)); p == nil || !isProduct(p) {
			at = 1
		}
		a.Mask, scores = name(scores.Input(1-at)), alone(scores.Input(at))
	}
	if scores == nil || !isProduct(scores) {
		return nil, nil
	}
	if !scores.Is("MatMul") {
		a.Scale = scores.Float("alpha", 1)
	}
	a.Query, a.Key, a.Value = name(scores.Input(0)), name(scores.Input(1)), name(product.Input(1))
	return a, product
}

// isProduct reports a product of matrices as stored.
func isProduct(n *graph.Node) bool {
	if n.Is("MatMul") {
		return true
	}
	for _, of := range []string{"transA", "transB", "transBatchA", "transBatchB"} {
		if n.Int(of, 0) != 0 {
			return false
		}
	}
	return n.Is("com.microsoft.FusedMatMul")
}

// alone is the node that makes a value which one node alone reads, or nil.
func alone(v *graph.Value) *graph.Node {
	if v == nil || v.IsOutput || len(v.Uses) != 1 {
		return nil
	}
	return v.Producer
}

// name is a copy of a value's name, "" for no value.
func name(v *graph.Value) string {
	if v == nil {
		return ""
	}
	return strings.Clone(v.Name)
}
