package plan

import (
	"sync/atomic"

	"github.com/opgraft/graft/host/plugin/manifest"
)

// Layout is what a strategy stores of a position, and what the attending operator is given:
// all that a plan must know of a strategy. What lies where in a slot is the plugin's alone.
type Layout struct {
	Strategy Strategy
	// Inputs is the standard strategy whose inputs, attributes and fold the operator has.
	Inputs Strategy
	// Exact says that results are the exported model's but for rounding. A strategy that is
	// not exact is used only where it is named.
	Exact bool
	// typed says that numbers may be stored as any Storage.
	typed bool
	slot  func(Layers) int64 // numbers of one position and layer
}

// standard are the strategies of abi/README.md.
var standard = []*Layout{
	{KeysValues, KeysValues, true, true, func(l Layers) int64 { return l.KeyWidth() + l.ValueWidth() }},
	{PromptHiddenStates, PromptHiddenStates, true, true, func(l Layers) int64 { return l.Width }},
	{Keys, Keys, true, true, Layers.KeyWidth},
	{HiddenStates, HiddenStates, true, true, func(l Layers) int64 { return l.Width }},
	{FirstLayerKeys, FirstLayerKeys, true, true, Layers.KeyWidth},
}

// exported is the layout of the model as exported.
var exported = &Layout{Exported, Exported, true, false, standard[0].slot}

// standardLayout is that of a standard strategy, or nil.
func standardLayout(k Strategy) *Layout {
	if k == Exported {
		return exported
	}
	for _, l := range standard {
		if l.Strategy == k {
			return l
		}
	}
	return nil
}

// declaredLayout is that of a strategy that a manifest declares.
func declaredLayout(c *manifest.KVCache) *Layout {
	type known struct {
		layers Layers
		slot   int64
	}
	// A plan asks for one kind of layers many times in a row, and must not allocate.
	var last atomic.Pointer[known]
	return &Layout{Strategy(c.Strategy), Strategy(c.Inputs), !c.Inexact, false, func(l Layers) int64 {
		if x := last.Load(); x != nil && x.layers == l {
			return x.slot
		}
		x := &known{l, c.SlotNumbers(
			map[string]int64{"heads": l.Heads, "kv_heads": l.KVHeads, "head_size": l.HeadSize, "value_size": l.ValueSize,
				"width": l.Width})}
		last.Store(x)
		return x.slot
	}}
}

// nowhere is the layout of a strategy that no loaded plugin declares.
var nowhere = &Layout{slot: func(Layers) int64 { return 0 }}

// Layout is that of the candidate's strategy.
func (c Candidate) Layout() *Layout {
	if c.layout != nil {
		return c.layout
	}
	if l := standardLayout(c.Strategy); l != nil {
		return l
	}
	return nowhere
}

// Inputs is the standard strategy whose inputs the candidate's operator takes; "" where
// the strategy is not known.
func (c Candidate) Inputs() Strategy { return c.Layout().Inputs }
