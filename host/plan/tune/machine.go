package tune

import (
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plan/machine"
	"github.com/opgraft/graft/host/plugin"
)

// Machine is this machine's roofline as the planner reads it, measured with the operator
// that attends over keys and values. Where it cannot be measured it is
// plan.ThisMachine's estimate, and the error says why.
func Machine(plugins []*plugin.Plugin, implementations plan.Implementations, o machine.Options) (plan.Machine, error) {
	implementation := implementations.Among(plugin.Manifests(plugins)).Of(plan.KeysValues)
	o.Attention = machine.Operator{Plugin: implementation.Plugin, Name: implementation.Operator}
	m := plan.ThisMachine()
	f, err := machine.Roofline(plugins, o)
	if err == nil {
		m.Bandwidth, m.FLOPS, m.LastCacheBandwidth, m.LastCacheBytes = f.Bandwidth, f.FLOPS, f.LastCacheBandwidth,
			f.LastCacheBytes
	}
	return m, err
}
