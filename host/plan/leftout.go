package plan

import (
	"cmp"
	"maps"
	"slices"
)

// Key names what an operator replaces in every plan of a model, whatever else the plan has: the node by which it was
// recognised, and its kind. Of the choices with one key at most one has an operator.
type Key struct{ Node, Kind string }

// Key names what the choice is about.
func (c *Choice) Key() Key { return Key{c.Node, c.Kind} }

// LeftOut says why operators are left out of a plan, by what they would replace.
type LeftOut map[Key]string

// Sorted are the keys, by node.
func (l LeftOut) Sorted() []Key {
	return slices.SortedFunc(maps.Keys(l), func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Kind, b.Kind))
	})
}

// LeaveOut leaves out the operators for these.
func (p *Plan) LeaveOut(these LeftOut) {
	for i := range p.Choices {
		c := &p.Choices[i]
		if why, ok := these[c.Key()]; ok && c.Operator != nil {
			c.Leave(why)
		}
	}
}

// Placed are the choices with an operator, by their keys.
func (p *Plan) Placed() map[Key]*Choice {
	placed := map[Key]*Choice{}
	for i := range p.Choices {
		if c := &p.Choices[i]; c.Operator != nil {
			placed[c.Key()] = c
		}
	}
	return placed
}

// LeftOut says of what was considered, and has no operator, why.
func (p *Plan) LeftOut() LeftOut {
	placed, left := p.Placed(), LeftOut{}
	for i := range p.Choices {
		if k := p.Choices[i].Key(); placed[k] == nil && left[k] == "" {
			left[k] = p.Choices[i].Reason
		}
	}
	return left
}
