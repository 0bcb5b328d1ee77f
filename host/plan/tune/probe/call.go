package probe

import (
	"fmt"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// call is how the operator of a candidate is called.
type call struct {
	operator   string
	attributes []manifest.Attribute
	area       int64 // floats of a layer's area in a block
	one        bool  // all layers share one area
	rows       int64 // width of a row; 0 for keys and values
	// Floats of one layer's weights, and the shapes of its parts.
	weights              int64
	keyShape, valueShape []int64 // nil where there is none
}

func callOf(l plan.Layers, c plan.Candidate, implementations plan.Implementations) (*call, error) {
	if why := c.Lacks(l); why != "" || c.Inputs() == plan.Exported {
		return nil, fmt.Errorf("nothing to run for %s: %s", l, why)
	}
	f := &call{operator: implementations.Of(c.Strategy).Operator}
	set := func(name string, value any) {
		f.attributes = append(f.attributes, manifest.Attribute{Name: name, Value: value})
	}
	set("num_heads", l.Heads)
	set("head_size", l.HeadSize)
	set("value_size", l.ValueSize)
	inputs := c.Inputs()
	if inputs != plan.Keys {
		set("kv_num_heads", l.KVHeads)
	}
	f.area = c.Area(l)
	switch inputs {
	case plan.KeysValues:
		if c.Rounds() {
			set("storage", string(c.Storage))
		}
		return f, nil
	case plan.Keys, plan.FirstLayerKeys:
		f.rows = l.KeyWidth()
	default:
		f.rows = l.Width
	}
	set("storage", string(c.Storage.Whole()))
	if inputs == plan.PromptHiddenStates && c.Rounds() {
		set("kv_storage", string(c.Storage))
	}
	f.one = l.Type == "cross" && inputs != plan.Keys
	panels := abi.Panels(l.ValueSize)
	if inputs == plan.Keys {
		f.valueShape = []int64{l.Heads, panels, f.rows, abi.PanelColumns}
	} else {
		set("width", f.rows)
		f.keyShape = []int64{l.KVHeads, abi.Panels(f.rows), l.HeadSize, abi.PanelColumns}
		f.valueShape = []int64{l.KVHeads, panels, f.rows, abi.PanelColumns}
	}
	f.weights = elements(f.keyShape) + elements(f.valueShape)
	return f, nil
}

// elements is the number of floats of a shape; 0 of none.
func elements(shape []int64) int64 {
	if shape == nil {
		return 0
	}
	n := int64(1)
	for _, size := range shape {
		n *= size
	}
	return n
}

// positions is how many positions a shape takes in the first pool, and in a second
// one of keys and values where there is one.
func positions(l plan.Layers, c plan.Candidate, s plan.Shape) (first, second int64) {
	own := s.Own * s.Beams * s.Batch
	if l.Type == "cross" {
		own = 0
	}
	if c.Inputs() == plan.PromptHiddenStates {
		return s.Keys * s.Batch, own
	}
	return s.Keys*s.Batch + own, 0
}

// Needs is about how many bytes New takes.
func Needs(l plan.Layers, c plan.Candidate, layers int64, largest plan.Shape) int64 {
	f, err := callOf(l, c, plan.Implementations{})
	if err != nil {
		return 0
	}
	first, second := positions(l, c, largest)
	areas := layers
	if f.one {
		areas = 1
	}
	return 4 * ((first*f.area*areas+second*c.BesideArea(l)*layers)/abi.CacheBlockSize + f.weights*layers)
}
