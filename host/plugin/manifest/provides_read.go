package manifest

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/capability"
)

// provides reads one capability, or a list of them.
func (r *reader) provides(n *yaml.Node, what string) (names []string) {
	items := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		items = r.list(n, what, maxValues)
	}
	for _, item := range items {
		before := len(r.problems)
		name := r.text(item, what)
		if len(r.problems) > before {
			continue
		}
		if capability.Find(name) == nil {
			r.fail(item.Line, "%s is %q, which this graft does not know, needed one of %s%s", what, diagnostic.Clip(name),
				strings.Join(capability.Known(), ", "), suggestion(name, capability.Known()))
			continue
		}
		names = append(names, name)
	}
	return names
}

// provided checks that one operator provides each capability, and that those that it needs are provided too.
func (r *reader) provided(operators []Operator) {
	by := map[string]string{}
	for _, op := range operators {
		for _, name := range op.Provides {
			if other, twice := by[name]; twice {
				r.fail(op.line, "operators %s and %s both provide %s; keep one", diagnostic.Clip(other),
					diagnostic.Clip(op.Name), name)
			}
			by[name] = op.Name
		}
	}
	for _, op := range operators {
		for _, name := range op.Provides {
			for _, needed := range capability.Find(name).Needs {
				if _, ok := by[needed]; !ok {
					r.fail(op.line, "operator %s provides %s, which the host uses with %s, and no operator of this manifest "+
						"provides that; add it", diagnostic.Clip(op.Name), name, needed)
				}
			}
		}
	}
}

// Providing is the operator that provides a capability, or nil.
func (m *Manifest) Providing(name string) *Operator {
	i := slices.IndexFunc(m.Operators, func(op Operator) bool { return slices.Contains(op.Provides, name) })
	if i < 0 {
		return nil
	}
	return &m.Operators[i]
}
