package manifest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/formula"
)

// strategyPattern is the form of a strategy's name.
var strategyPattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// slotNames are what the formula of a slot can name.
var slotNames = []string{"heads", "kv_heads", "head_size", "value_size", "width"}

// kvCache reads how an operator attends over the host's KV cache.
func (r *reader) kvCache(n *yaml.Node, what string) *KVCache {
	f := r.fields(n, what, "strategy", "inputs", "slot", "store", "exact")
	if f == nil {
		return nil
	}
	if f["strategy"] == nil {
		r.fail(n.Line, "%s.strategy is missing; add it", what)
		return nil
	}
	c := &KVCache{Strategy: r.match(f["strategy"], what+".strategy", strategyPattern, "lower-case letters, digits and _"),
		line: n.Line}
	if f["store"] != nil {
		c.Store = r.match(f["store"], what+".store", operatorPattern, "an operator of this manifest")
	}
	if slices.Contains(Strategies, c.Strategy) {
		for _, key := range slices.Sorted(maps.Keys(f)) {
			if key != "strategy" && key != "store" && f[key] != nil {
				r.fail(f[key].Line, "%s.%s stands beside the standard strategy %s, which abi/README.md defines; remove it or "+
					"give the strategy a name of its own", what, key, c.Strategy)
			}
		}
		c.Inputs = c.Strategy
		return c
	}
	for _, key := range []string{"inputs", "slot"} {
		if f[key] == nil {
			r.fail(n.Line, "%s.%s is missing, which the strategy %s needs: it is none of %s; add it", what, key,
				diagnostic.Clip(c.Strategy), strings.Join(Strategies, ", "))
			return c
		}
	}
	c.Inputs = r.oneOf(f["inputs"], what+".inputs", "keys_values", "keys", "hidden_states")
	c.Slot = r.text(f["slot"], what+".slot")
	if f["exact"] != nil {
		c.Inexact = !r.flag(f["exact"], what+".exact")
	}
	p, err := formula.Parse(c.Slot)
	if err != nil {
		r.fail(f["slot"].Line, "%s.slot: %v", what, err)
		return c
	}
	for _, name := range p.Inputs {
		if !slices.Contains(slotNames, name) {
			r.fail(f["slot"].Line, "%s.slot names %s, needed is one of %s", what, diagnostic.Clip(name),
				strings.Join(slotNames, ", "))
		}
	}
	return c
}

// stores checks that operators that store are described in the same manifest.
func (r *reader) stores(operators []Operator, names map[string]int) {
	for _, op := range operators {
		if c := op.KVCache; c != nil && c.Store != "" && names[c.Store] == 0 {
			r.fail(c.line, "operator %s: kv_cache.store is %s, which this manifest does not list; add it under operators",
				diagnostic.Clip(op.Name), diagnostic.Clip(c.Store))
		}
	}
}

// SlotNumbers is how many float32 numbers a slot holds of one layer with these sizes, by the
// names that Slot may use; at least 1.
func (c *KVCache) SlotNumbers(sizes map[string]int64) int64 {
	p, err := formula.Parse(c.Slot)
	if err != nil {
		panic(fmt.Sprintf("the slot of %s was not checked: %v", c.Strategy, err)) // Read does
	}
	return max(1, int64(p.Compute(func(name string) float64 { return float64(sizes[name]) })))
}
