package manifest

import (
	"math"

	"github.com/opgraft/graft/host/plugin/capability"
)

// A call that costs are compared by: what it moves and computes takes this long on a machine that does so at its
// limits, in microseconds.
const (
	usualMoveUS    = 50
	usualComputeUS = 100
)

// usual is the time of that call, in microseconds; an operator that states no cost takes longest.
func (c Cost) usual() float64 {
	if c == (Cost{}) {
		return math.Inf(1)
	}
	return usualMoveUS/c.Bandwidth + usualComputeUS/c.FLOPS + c.OverheadUS
}

// Less reports that an operator of this cost is taken where one of another could be, too.
func (c Cost) Less(other Cost) bool { return c.usual() < other.usual() }

// providingCost is what the operator says of its cost as the host calls it.
func (op *Operator) providingCost() Cost {
	if op.CostInPanels != nil {
		return *op.CostInPanels
	}
	return op.Cost
}

// Provider is the plugin of which the host takes a capability, with the operator that provides it: of those that are
// not ruled out the cheapest, of several that are as cheap the first. It is nil where there is none. Capabilities that
// belong together come from one plugin.
func Provider(list []*Manifest, name string, ruledOut func(plugin string) bool) (*Manifest, *Operator) {
	c := capability.Find(name)
	var by *Manifest
	var cost Cost
	for _, m := range list {
		leads := m.Providing(c.Leads)
		if leads == nil || m.Providing(name) == nil || ruledOut != nil && ruledOut(m.Name) {
			continue
		}
		if x := leads.providingCost(); by == nil || x.Less(cost) {
			by, cost = m, x
		}
	}
	if by == nil {
		return nil, nil
	}
	return by, by.Providing(name)
}
