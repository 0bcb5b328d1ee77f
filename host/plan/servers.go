package plan

import (
	"maps"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/plugin/manifest"
)

// Implementation is an operator that attends over what is kept, and its plugin.
type Implementation struct {
	Plugin   string `json:"plugin"`
	Operator string `json:"operator"`
}

// Implementations say which operator implements each strategy, where it is not graft's own. A
// value is never changed: With makes another.
type Implementations struct{ of map[Strategy]Implementation }

// Of is the operator of a way of keeping.
func (s Implementations) Of(k Strategy) Implementation {
	if x, ok := s.of[HiddenStates]; ok && k == FirstLayerKeys {
		return x // which its layers are, but for the first
	}
	if x, ok := s.of[k]; ok {
		return x
	}
	return operators[k]
}

// With is s with another operator for a strategy.
func (s Implementations) With(k Strategy, x Implementation) Implementations {
	of := maps.Clone(s.of)
	if of == nil {
		of = map[Strategy]Implementation{}
	}
	of[k] = x
	return Implementations{of}
}

// Among are the operators that run with the plugins of these manifests: where graft's own
// plugin is not among them, the first of another that keeps the same.
func (s Implementations) Among(manifests []*manifest.Manifest) Implementations {
	for _, k := range AllStrategies() {
		if _, named := s.of[k]; named || slices.ContainsFunc(manifests, func(m *manifest.Manifest) bool { return m.Name == operators[k].Plugin }) {
			continue
		}
		for _, m := range manifests {
			i := slices.IndexFunc(m.Operators, func(op manifest.Operator) bool { return op.KVCache != nil && Strategy(op.KVCache.Strategy) == k })
			if i >= 0 {
				s = s.With(k, Implementation{m.Name, m.Operators[i].Name})
				break
			}
		}
	}
	return s
}

// Others names the plugins that are not graft's own, with dashes between; "" for none.
func (s Implementations) Others() string {
	var names []string
	for _, x := range s.of {
		if !slices.Contains(names, x.Plugin) && !slices.ContainsFunc(AllStrategies(), func(k Strategy) bool { return operators[k].Plugin == x.Plugin }) {
			names = append(names, x.Plugin)
		}
	}
	slices.Sort(names)
	return strings.Join(names, "-")
}

// Plugins are those of all operators.
func (s Implementations) Plugins() (names []string) {
	for _, k := range AllStrategies() {
		if name := s.Of(k).Plugin; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Take lets a plugin's operators implement the strategies that its manifest says, and
// returns these, in the order of the manifest.
func (s *Implementations) Take(m *manifest.Manifest) (list []Strategy) {
	for _, op := range m.Operators {
		if op.KVCache != nil {
			k := Strategy(op.KVCache.Strategy)
			*s = s.With(k, Implementation{m.Name, op.Name})
			list = append(list, k)
		}
	}
	return list
}
