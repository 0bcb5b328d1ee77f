package pattern

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
)

// Facts of a match, for constraints: the type of the first input, ranks and
// constant lengths ("w_rank", "w_dim0"), which values it has ("has_skip"), and what was captured.
func (m *Match) Facts() map[string]any {
	f := maps.Clone(m.Captured)
	for _, name := range m.Form.Pattern.Inputs {
		if name = m.Form.Resolve(name); name != "" {
			f["dtype"] = model.TypeName(m.finder.shapes.Of(m.Values[name]).DType)
			break
		}
	}
	for _, name := range m.Form.Pattern.Values() {
		f["has_"+name] = m.Form.Has(name)
	}
	for name, v := range m.names() {
		s := m.finder.shapes.Of(v)
		if s.Rank < 0 {
			continue
		}
		f[name+"_rank"] = s.Rank
		for i, d := range s.Dims {
			if n, ok := d.Const(); ok {
				f[fmt.Sprintf("%s_dim%d", name, i)] = n
			}
		}
	}
	return f
}

// names are the values of the match by their names in the pattern, those that are others in this form included.
func (m *Match) names() map[string]*graph.Value {
	list := maps.Clone(m.Values)
	for _, name := range m.Form.Pattern.Values() {
		if v := m.Values[m.Form.Resolve(name)]; v != nil {
			list[name] = v
		}
	}
	return list
}

// FactNames are those that constraints of a pattern may name; of the lengths those that are asked about.
func (p *Pattern) FactNames(asked []string) []string {
	list := append([]string{"dtype"}, p.Captures()...)
	for _, name := range p.Values() {
		list = append(list, "has_"+name, name+"_rank")
		for _, fact := range asked { // of whichever axis
			if axis, ok := strings.CutPrefix(fact, name+"_dim"); ok && axis != "" && strings.Trim(axis, "0123456789") == "" {
				list = append(list, fact)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
