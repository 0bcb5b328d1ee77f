package plan

import (
	"cmp"
	"fmt"
)

// Strategy is the name of a KV-cache strategy: what a decoder's attention stores of the
// positions that it will attend to again. "" stands for none that was decided on.
type Strategy string

// The strategies that graft's own plugins implement, and the one that needs none.
const (
	// Exported is the model as exported: keys and values a layer, once for each beam.
	Exported Strategy = "exported"
	// KeysValues is keys and values a layer, positions that beams share once.
	KeysValues Strategy = "keys_values"
	// PromptHiddenStates is, for cross attention, the encoder's output once for all layers;
	// for self attention the layer's inputs at the prompt's positions, and keys and values
	// of those that follow (EL-attention, https://arxiv.org/abs/2105.04779, section 3.2).
	PromptHiddenStates Strategy = "prompt_hidden_states"
	// Keys is keys alone (slim attention, https://arxiv.org/abs/2503.05840, section 2).
	Keys Strategy = "keys"
	// HiddenStates is the layer's inputs at all positions (slim attention, section 6).
	HiddenStates Strategy = "hidden_states"
	// FirstLayerKeys is, for cross attention, the keys of the first layer, from which the
	// other layers attend too (slim attention, section 7, the hybrid).
	FirstLayerKeys Strategy = "first_layer_keys"
)

// LayerStrategy is the KV-cache strategy of one layer of attention, and why not what was asked for.
type LayerStrategy struct {
	Node     string   `json:"node"`
	Type     string   `json:"type"` // "self" or "cross"
	Strategy Strategy `json:"strategy"`
	Plugin   string   `json:"plugin"`
	Reason   string   `json:"reason,omitempty"`
}

// StandardStrategies are those that abi/README.md defines, the default first.
func StandardStrategies() []Strategy {
	list := make([]Strategy, len(standard))
	for i, l := range standard {
		list[i] = l.Strategy
	}
	return list
}

// Within is the strategy of a kind of attention ("self" or "cross") where s is wanted for
// all layers: the inputs of cross attention are the encoder's output, and layers of
// self attention have no inputs in common.
func (s Strategy) Within(kind string) Strategy {
	switch {
	case kind == "cross" && s == HiddenStates:
		return PromptHiddenStates
	case kind == "self" && s == FirstLayerKeys:
		return Keys
	}
	return s
}

// Storage is the element type that a cache has.
type Storage string

// The types that caches can have; the zero value is Float32. All others round what they store. Numbers of Int8 have
// scales: of keys and values one a head and token, of rows one for each abi.CacheScaleGroup.
const (
	Float32  Storage = "float32"
	Float16  Storage = "float16"
	BFloat16 Storage = "bfloat16"
	Int8     Storage = "int8"
)

// ParseStorage reads a type of a cache by its name, or by the short ones of halves: bf16 and fp16.
func ParseStorage(text string) (Storage, error) {
	switch s := Storage(text); s {
	case "bf16":
		return BFloat16, nil
	case "fp16":
		return Float16, nil
	case Float32, Float16, BFloat16, Int8:
		return s, nil
	}
	return "", fmt.Errorf("%q is no type of a cache, needed is float32, bf16, fp16 or int8", text)
}

// Whole is s with its default written out.
func (s Storage) Whole() Storage { return cmp.Or(s, Float32) }

// Rounds says whether numbers are not stored as they are computed.
func (s Storage) Rounds() bool { return s.Whole() != Float32 }

// bytes is the size of one number.
func (s Storage) bytes() int64 {
	switch s {
	case Float16, BFloat16:
		return 2
	case Int8:
		return 1
	}
	return 4
}

// Candidate is a strategy for all layers of a kind. One of a strategy that is not standard
// is made by Implementations.Candidate, which knows it.
type Candidate struct {
	Strategy Strategy
	Storage  Storage

	layout *Layout // of a strategy that is not standard
}

func (c Candidate) String() string {
	if s := c.stored(); s != Float32 {
		return string(c.Strategy) + " in " + string(s)
	}
	return string(c.Strategy)
}

// Rounds says whether the candidate stores numbers otherwise than they are computed.
func (c Candidate) Rounds() bool { return c.stored() != Float32 }

// stored is the type that the candidate stores: float32 where the layout has no other.
func (c Candidate) stored() Storage {
	if c.Layout().typed {
		return c.Storage.Whole()
	}
	return Float32
}

// Layers are attention layers of a decoder that are alike.
type Layers struct {
	Type      string `json:"type"` // "self" or "cross"
	Layers    int64  `json:"layers"`
	Heads     int64  `json:"heads"`
	KVHeads   int64  `json:"kv_heads"`
	HeadSize  int64  `json:"head_size"`
	ValueSize int64  `json:"value_size"`
	Width     int64  `json:"width"`           // d: of what keys and values are projected from
	Positions string `json:"positions"`       // as blocks.Attention.Positions
	Sinks     bool   `json:"sinks,omitempty"` // as blocks.Attention.Sinks, of any of them
}

// KeyWidth is the floats of a position's keys, ValueWidth of its values.
func (l Layers) KeyWidth() int64 { return l.KVHeads * l.HeadSize }

// ValueWidth is the floats of a position's values.
func (l Layers) ValueWidth() int64 { return l.KVHeads * l.ValueSize }

func (l Layers) String() string {
	return fmt.Sprintf("%d layers of %s attention, %d heads of %d (%d of keys), width %d", l.Layers, l.Type, l.Heads,
		l.HeadSize, l.KVHeads, l.Width)
}

// maxWidth is the widest row that the operators over rows take.
const maxWidth = 16384

// Lacks says why a candidate cannot run layers, from their shape and positions
// alone, or "". That the weights allow it, too, is known when they are folded.
func (c Candidate) Lacks(l Layers) string {
	rotary := l.Positions == "rotary" && l.Type == "self"
	inputs := c.Inputs()
	switch inputs {
	case "":
		return "no plugin that is loaded declares it"
	case Exported, KeysValues:
		return ""
	case PromptHiddenStates, HiddenStates:
		switch {
		case inputs == HiddenStates && l.Type == "cross":
			return "its inputs are the encoder's output: that is prompt_hidden_states"
		case rotary:
			return "rotary positions lie between the projection of keys and their matmul with queries"
		case l.Width > maxWidth:
			return fmt.Sprintf("its inputs are %d wide, at most %d can be stored", l.Width, maxWidth)
		}
		return ""
	}
	switch e := l.KeyWidth(); {
	case inputs == FirstLayerKeys && l.Type != "cross":
		return "its layers have inputs of their own"
	case l.KVHeads != l.Heads:
		return fmt.Sprintf("%d query heads share %d heads of keys, from which values cannot be had", l.Heads, l.KVHeads)
	case e < l.Width:
		return fmt.Sprintf("its keys are %d wide and made from %d: values cannot be had from them", e, l.Width)
	case e > maxWidth:
		return fmt.Sprintf("its keys are %d wide, at most %d can be stored", e, maxWidth)
	}
	return ""
}

// Shape is one step of a decoder: Batch requests of Beams rows each.
type Shape struct {
	Keys  int64 `json:"keys"`  // positions that a request's rows share: the prompt, or the encoder's output
	Own   int64 `json:"own"`   // positions generated since, of each row
	Beams int64 `json:"beams"` // rows of a request
	Batch int64 `json:"batch"` // requests
	// Steps is how many steps a request is expected to take: what is computed before
	// the first one is spread over them. 0 leaves it out.
	Steps int64 `json:"steps,omitempty"`
}
