package loaded

import (
	"slices"

	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/session/isolation"
)

// Isolate says which plugins have their code in workers, and how.
type Isolate struct {
	Names   []string
	Options isolation.Options
}

func (i *Isolate) has(name string) bool { return i != nil && slices.Contains(i.Names, name) }

// Apart is plugins of which the named ones have their code in workers too.
func Apart(plugins []*plugin.Plugin, names []string, o isolation.Options) ([]*plugin.Plugin, error) {
	list := slices.Clone(plugins)
	for _, name := range names {
		p, err := Named(plugins, name)
		if err != nil {
			return nil, err
		}
		apart, err := isolation.Of(p, o)
		if err != nil {
			return nil, err
		}
		list[slices.Index(plugins, p)] = apart
	}
	return list, nil
}

// Isolated are those of the named plugins that have their code in workers.
func Isolated(plugins []*plugin.Plugin, names []string) (list isolation.Several) {
	for _, p := range plugins {
		if x := isolation.For(p); x != nil && slices.Contains(names, p.Manifest.Name) {
			list = append(list, x)
		}
	}
	return list
}
