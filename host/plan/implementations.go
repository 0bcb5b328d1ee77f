package plan

import (
	"maps"
	"slices"

	"github.com/opgraft/graft/host/plugin/manifest"
)

// Implementation is an operator that attends over what is stored, and its plugin.
type Implementation struct {
	Plugin   string `json:"plugin"`
	Operator string `json:"operator"`
}

// Implementations say which operator implements each strategy, and know the strategies of
// plugins beside the standard ones. The zero value has none: Among finds them. A value is never
// changed: methods make others.
type Implementations struct {
	of    map[Strategy]implementation
	named []string  // plugins that Take was given
	own   []*Layout // strategies that manifests declare beside the standard ones
}

// implementation is what a manifest says of a strategy.
type implementation struct {
	attends Implementation
	store   Implementation // zero: there is none
}

// get is what implements a strategy.
func (s Implementations) get(k Strategy) implementation {
	if x, ok := s.of[k]; ok {
		return x
	}
	if k == FirstLayerKeys {
		return implementation{s.of[HiddenStates].attends, s.of[Keys].store} // which its layers are, but for the first
	}
	return implementation{}
}

// Of is the operator that attends over what a strategy stores; the zero value where none is
// known.
func (s Implementations) Of(k Strategy) Implementation { return s.get(k).attends }

// Store is the operator that stores whole sequences for a strategy: what an encoder made.
// False: there is none, and no cross attention can use the strategy.
func (s Implementations) Store(k Strategy) (Implementation, bool) {
	x := s.get(k).store
	return x, x != Implementation{}
}

// Strategies are all that are known, the default first, those of other plugins last.
func (s Implementations) Strategies() []Strategy {
	list := StandardStrategies()
	for _, l := range s.own {
		list = append(list, l.Strategy)
	}
	return list
}

// Layout is that of a strategy; nil where it is not known.
func (s Implementations) Layout(k Strategy) *Layout {
	if l := standardLayout(k); l != nil {
		return l
	}
	if i := slices.IndexFunc(s.own, func(l *Layout) bool { return l.Strategy == k }); i >= 0 {
		return s.own[i]
	}
	return nil
}

// Candidate is a strategy with a storage.
func (s Implementations) Candidate(k Strategy, storage Storage) Candidate {
	c := Candidate{Strategy: k, Storage: storage}
	if standardLayout(k) == nil {
		c.layout = s.Layout(k)
	}
	return c
}

// with is s with another implementation of a strategy.
func (s Implementations) with(k Strategy, x implementation) Implementations {
	s.of = maps.Clone(s.of)
	if s.of == nil {
		s.of = map[Strategy]implementation{}
	}
	s.of[k] = x
	return s
}

// Among are the operators that run with the plugins of these manifests: those that s names, else for each strategy
// the cheapest, of several that are as cheap the first. The strategies that manifests declare beside the standard ones
// are known to it.
func (s Implementations) Among(manifests []*manifest.Manifest) Implementations {
	for _, m := range manifests {
		s = s.declared(m)
	}
	for _, k := range s.Strategies() {
		x, named := s.of[k]
		if !named {
			var by *manifest.Operator
			for _, m := range manifests {
				if op := implementing(m, k); op != nil && (by == nil || op.Cost.Less(by.Cost)) {
					by, x.attends, x.store = op, Implementation{m.Name, op.Name}, Implementation{}
					if op.KVCache.Store != "" {
						x.store = Implementation{m.Name, op.KVCache.Store}
					}
				}
			}
		}
		if x.attends == (Implementation{}) {
			continue
		}
		if x.store == (Implementation{}) {
			x.store = storeAmong(k, manifests)
		}
		s = s.with(k, x)
	}
	return s
}

// storeAmong is the first operator that stores whole sequences for a strategy: what a
// strategy stores has one layout, whichever plugin wrote it.
func storeAmong(k Strategy, manifests []*manifest.Manifest) Implementation {
	for _, m := range manifests {
		if op := implementing(m, k); op != nil && op.KVCache.Store != "" {
			return Implementation{m.Name, op.KVCache.Store}
		}
	}
	return Implementation{}
}

// implementing is a manifest's operator for a strategy, or nil.
func implementing(m *manifest.Manifest, k Strategy) *manifest.Operator {
	i := slices.IndexFunc(m.Operators,
		func(op manifest.Operator) bool { return op.KVCache != nil && Strategy(op.KVCache.Strategy) == k })
	if i < 0 {
		return nil
	}
	return &m.Operators[i]
}

// declared is s with the strategies that a manifest declares. Of two manifests that declare
// one name the first counts.
func (s Implementations) declared(m *manifest.Manifest) Implementations {
	for i := range m.Operators {
		if c := m.Operators[i].KVCache; c != nil && s.Layout(Strategy(c.Strategy)) == nil {
			s.own = append(slices.Clip(s.own), declaredLayout(c))
		}
	}
	return s
}

// Named are the plugins that Take was given, in its order.
func (s Implementations) Named() []string { return s.named }

// Plugins are those of all operators.
func (s Implementations) Plugins() (names []string) {
	for _, k := range s.Strategies() {
		if name := s.Of(k).Plugin; name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Take lets a plugin's operators implement the strategies that its manifest says, and
// returns these, in the order of the manifest.
func (s *Implementations) Take(m *manifest.Manifest) (list []Strategy) {
	*s = s.declared(m)
	for i := range m.Operators {
		op := &m.Operators[i]
		if op.KVCache == nil {
			continue
		}
		k, x := Strategy(op.KVCache.Strategy), implementation{attends: Implementation{m.Name, op.Name}}
		if op.KVCache.Store != "" {
			x.store = Implementation{m.Name, op.KVCache.Store}
		}
		*s = s.with(k, x)
		list = append(list, k)
	}
	if list != nil && !slices.Contains(s.named, m.Name) {
		s.named = append(slices.Clip(s.named), m.Name)
	}
	return list
}
