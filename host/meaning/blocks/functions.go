package blocks

import (
	"fmt"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// calls says of a node that calls a function of the model's own which softmax or attention operator stands in there,
// at any depth, and so is not seen; "" for any other.
func (f *finder) calls(n *graph.Node) string {
	if f.hidden == nil {
		f.hidden = map[string]string{}
		functions := f.main.Model().GetFunctions()
		for more := true; more; { // a function may call others, which stand in any order
			more = false
			for _, of := range functions {
				name := called(of.GetDomain(), of.GetName())
				if inner := f.attentionIn(of.GetNode()); inner != "" && f.hidden[name] == "" {
					f.hidden[name], more = inner, true
				}
			}
		}
	}
	if inner := f.hidden[called(n.Proto.GetDomain(), n.Proto.GetOpType())]; inner != "" {
		return fmt.Sprintf("its %s stands in %s, a function of the model, and functions are left as they are; "+
			"onnx.inliner.inline_local_functions writes the model without", inner, n.Op())
	}
	return ""
}

func called(domain, name string) string { return domain + ":" + name }

// attentionIn names the first such operator among the nodes of a function.
func (f *finder) attentionIn(nodes []*onnx.Node) string {
	for _, p := range nodes {
		f.main.Spend(1)
		if inner := f.hidden[called(p.GetDomain(), p.GetOpType())]; inner != "" {
			return inner
		}
		if n := (&graph.Node{Proto: p}); n.Is("Softmax") || IsAttentionOperator(n) {
			return n.Op()
		}
		for _, a := range p.GetAttribute() {
			if inner := f.attentionIn(a.GetG().GetNode()); inner != "" {
				return inner
			}
		}
	}
	return ""
}
