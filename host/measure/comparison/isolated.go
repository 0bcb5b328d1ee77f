package comparison

import (
	"slices"
	"strings"

	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/session/isolation"
	"github.com/opgraft/graft/host/session/loaded"
)

// isolatedPrefix begins the name of a side of a plugin whose kernels run in a worker: "isolated:fused-gelu".
const isolatedPrefix = "isolated:"

// isolates reports that one of the sides has an isolated plugin.
func isolates(sides ...string) bool {
	return slices.ContainsFunc(sides, func(side string) bool { return strings.HasPrefix(side, isolatedPrefix) })
}

// isolated are the plugins of a side.
func isolated(plugins []*plugin.Plugin, side string) ([]*plugin.Plugin, error) {
	name, ok := strings.CutPrefix(side, isolatedPrefix)
	if !ok {
		return plugins, nil
	}
	return loaded.Apart(plugins, []string{name}, isolation.Options{})
}
