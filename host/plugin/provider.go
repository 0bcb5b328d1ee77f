package plugin

import (
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// Manifests are those of plugins, in their order.
func Manifests(plugins []*Plugin) []*manifest.Manifest {
	list := make([]*manifest.Manifest, len(plugins))
	for i, p := range plugins {
		list[i] = p.Manifest
	}
	return list
}

// Provider is the plugin of those that are loaded of which the host takes a capability, and the name of its operator:
// see [manifest.Provider]. Without one, the error is of kind refusal.ErrNotFound.
func Provider(plugins []*Plugin, capability string, ruledOut func(name string) bool) (*Plugin, string, error) {
	m, op := manifest.Provider(Manifests(plugins), capability, ruledOut)
	var have []string
	for _, p := range plugins {
		if m != nil && p.Manifest == m {
			return p, op.Name, nil
		}
		have = append(have, p.Manifest.Name)
	}
	if have == nil {
		have = []string{"none"}
	}
	return nil, "", &diagnostic.Error{Kind: refusal.ErrNotFound, Fix: "see graft plugin list",
		Found: "no plugin that provides " + capability + " is loaded, found " + strings.Join(have, ", ")}
}
