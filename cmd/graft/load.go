package main

import "github.com/opgraft/graft/host/session/loaded"

// load finds and loads plugins. When none is there it is an error only if the
// command cannot do without.
func (c *cli) load(needed bool) (*loaded.Set, error) {
	set, err := loaded.Load(c.folders, false)
	if err != nil && needed {
		return nil, err
	}
	for _, refused := range set.Refused {
		c.say("graft: left out: %v", refused)
	}
	if err != nil && len(set.Refused) == 0 {
		c.say("graft: %v", err)
	}
	return set, nil
}
