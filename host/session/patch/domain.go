package patch

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// Placed names the operators of graft's domain that stand in a model, wherever they do. Those of a model
// that graft has rewritten are what its session needs registered, and no other is: a kernel that graft
// did not place has nothing to do there.
func Placed(m *onnx.Model) (names []string) {
	eachNode(m, func(n *onnx.Node) {
		if n.GetDomain() == manifest.Domain && !slices.Contains(names, n.GetOpType()) {
			names = append(names, n.GetOpType())
		}
	})
	return names
}

// Brought says why graft places nothing in a model as its file has it: it brings nodes, functions or an
// import of graft's domain. Registered for the model, operators would then run as whoever wrote it pleases.
// "" for every other model.
func Brought(m *onnx.Model) string {
	found := ""
	for _, f := range m.GetFunctions() {
		if f.GetDomain() == manifest.Domain {
			found = fmt.Sprintf("a function %q", f.GetName())
		}
	}
	if names := Placed(m); len(names) > 0 {
		found = fmt.Sprintf("nodes of operator %q", names[0])
	}
	imports := m.GetOpsetImport()
	for _, f := range m.GetFunctions() {
		imports = append(imports[:len(imports):len(imports)], f.GetOpsetImport()...)
	}
	if found == "" && slices.ContainsFunc(imports,
		func(o *onnx.OperatorSet) bool { return o.GetDomain() == manifest.Domain }) {
		found = "an import"
	}
	if found == "" {
		return ""
	}
	return "the model brings " + found + " of the domain " + manifest.Domain + ", where only what graft places may stand"
}

// eachNode calls f for every node of a model: of its graph, its functions, and graphs within attributes.
func eachNode(m *onnx.Model, f func(*onnx.Node)) {
	var each func([]*onnx.Node)
	each = func(nodes []*onnx.Node) {
		for _, n := range nodes {
			f(n)
			for _, a := range n.GetAttribute() {
				each(a.GetG().GetNode())
				for _, g := range a.GetGraphs() {
					each(g.GetNode())
				}
			}
		}
	}
	each(m.GetGraph().GetNode())
	for _, function := range m.GetFunctions() {
		each(function.GetNode())
	}
}
