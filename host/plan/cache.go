package plan

import (
	"fmt"
)

// Keep is what a decoder's attention keeps of the positions that it will attend to
// again.
type Keep int

// What can be kept. d is the width of what keys and values are projected from,
// hs and vs the sizes of a key's and a value's head.
const (
	// KeepPlain is the model as exported: keys and values a layer, once for each beam.
	KeepPlain Keep = iota
	// KeepKeysAndValues is keys and values a layer, positions that beams share once.
	KeepKeysAndValues
	// KeepLatent is, for cross attention, the encoder's output once for all layers; for
	// self attention the layer's inputs at the prompt's positions, and keys and values
	// of those that follow (EL-attention, https://arxiv.org/abs/2105.04779, section 3.2).
	KeepLatent
	// KeepKeys is keys alone (slim attention, https://arxiv.org/abs/2503.05840, section 2).
	KeepKeys
	// KeepInputs is the layer's inputs at all positions (the same, section 6).
	KeepInputs
	// KeepFirstKeys is, for cross attention, the keys of the first layer, from which the
	// other layers attend too (the same, section 7, the hybrid).
	KeepFirstKeys
	keeps
)

// keepNames are the names by which a user asks for them.
var keepNames = [keeps]string{"plain", "flash-decode", "el-attention", "slim-keys", "slim-inputs", "slim-hybrid"}

// String is the name by which a user asks for it.
func (k Keep) String() string {
	if k < 0 || k >= keeps {
		return fmt.Sprintf("Keep(%d)", int(k))
	}
	return keepNames[k]
}

// KeepNamed finds one by its name.
func KeepNamed(name string) (Keep, error) {
	if name == KeepKeys.Plugin() {
		return KeepKeys, nil
	}
	for k, n := range keepNames {
		if n == name {
			return Keep(k), nil
		}
	}
	return 0, fmt.Errorf("%q is no way of keeping a cache, needed is one of %v", name, keepNames[KeepKeysAndValues:])
}

// MarshalText is the name, for JSON.
func (k Keep) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a name.
func (k *Keep) UnmarshalText(text []byte) (err error) {
	*k, err = KeepNamed(string(text))
	return err
}

// operators attend over what is kept, by plugin.
var operators = [keeps]struct{ plugin, operator string }{
	KeepKeysAndValues: {"flash-decode", "CachedAttention"},
	KeepLatent:        {"el-attention", "ELAttention"},
	KeepKeys:          {"slim-attention", "KeyAttention"},
	KeepInputs:        {"slim-attention", "InputAttention"},
	KeepFirstKeys:     {"slim-attention", "InputAttention"}, // KeyAttention in the first layer
}

// Keeps are all that a host can keep, the usual first.
func Keeps() []Keep {
	return []Keep{KeepKeysAndValues, KeepLatent, KeepKeys, KeepInputs, KeepFirstKeys}
}

// Within is what a kind of attention ("self" or "cross") keeps where all layers are
// asked to keep k: the inputs of cross attention are the encoder's output, and layers of
// self attention have no inputs in common.
func (k Keep) Within(kind string) Keep {
	switch {
	case kind == "cross" && k == KeepInputs:
		return KeepLatent
	case kind == "self" && k == KeepFirstKeys:
		return KeepKeys
	}
	return k
}

// Plugin is the plugin whose operator attends over what is kept, Operator the
// operator; both are empty for KeepPlain.
func (k Keep) Plugin() string { return operators[k].plugin }

// Operator is the name of the operator.
func (k Keep) Operator() string { return operators[k].operator }

// Storage is the element type that rows are kept in.
type Storage string

// The types that rows can be kept in; the zero value is Float32. Keys and values
// together are always kept in float32.
const (
	Float32  Storage = "float32"
	Float16  Storage = "float16"
	BFloat16 Storage = "bfloat16"
)

// Bytes is the size of one number; "" is Float32.
func (s Storage) Bytes() int64 {
	if s == Float16 || s == BFloat16 {
		return 2
	}
	return 4
}

// Candidate is one way of serving all layers of a kind.
type Candidate struct {
	Keep    Keep
	Storage Storage
}

func (c Candidate) String() string {
	if c.half() {
		return c.Keep.String() + " in " + string(c.Storage)
	}
	return c.Keep.String()
}

// half reports rows of two bytes an element.
func (c Candidate) half() bool {
	return (c.Storage == Float16 || c.Storage == BFloat16) && c.Keep != KeepPlain && c.Keep != KeepKeysAndValues
}

// Layers are attention layers of a decoder that are alike.
type Layers struct {
	Type      string `json:"type"` // "self" or "cross"
	Layers    int64  `json:"layers"`
	Heads     int64  `json:"heads"`
	KVHeads   int64  `json:"kv_heads"`
	HeadSize  int64  `json:"head_size"`
	ValueSize int64  `json:"value_size"`
	Width     int64  `json:"width"`     // d: of what keys and values are projected from
	Positions string `json:"positions"` // as blocks.Attention.Positions
}

// KeyWidth is the floats of a position's keys, ValueWidth of its values.
func (l Layers) KeyWidth() int64 { return l.KVHeads * l.HeadSize }

// ValueWidth is the floats of a position's values.
func (l Layers) ValueWidth() int64 { return l.KVHeads * l.ValueSize }

func (l Layers) String() string {
	return fmt.Sprintf("%d layers of %s attention, %d heads of %d (%d of keys), width %d", l.Layers, l.Type, l.Heads, l.HeadSize, l.KVHeads, l.Width)
}

// maxWidth is the widest row that the operators over rows take.
const maxWidth = 16384

// Serves says why a candidate cannot serve layers, from their shape and positions
// alone, or "". That the weights allow it, too, is known when they are folded.
func (c Candidate) Serves(l Layers) string {
	rotary := l.Positions == "rotary" && l.Type == "self"
	switch c.Keep {
	case KeepPlain, KeepKeysAndValues:
		return ""
	case KeepLatent, KeepInputs:
		switch {
		case c.Keep == KeepInputs && l.Type == "cross":
			return "its inputs are the encoder's output: that is el-attention"
		case rotary:
			return "rotary positions lie between the projection of keys and their product with queries"
		case l.Width > maxWidth:
			return fmt.Sprintf("its inputs are %d wide, at most %d can be kept", l.Width, maxWidth)
		}
		return ""
	}
	switch e := l.KeyWidth(); {
	case c.Keep == KeepFirstKeys && l.Type != "cross":
		return "its layers have inputs of their own"
	case l.KVHeads != l.Heads:
		return fmt.Sprintf("%d query heads share %d heads of keys, from which values cannot be had", l.Heads, l.KVHeads)
	case e < l.Width:
		return fmt.Sprintf("its keys are %d wide and made from %d: values cannot be had from them", e, l.Width)
	case e > maxWidth:
		return fmt.Sprintf("its keys are %d wide, at most %d can be kept", e, maxWidth)
	}
	return ""
}

// Shape is one step of a decoder: Batch samples of Beams rows each.
type Shape struct {
	Keys  int64 `json:"keys"`  // positions that a sample's rows share: the prompt, or the encoder's output
	Own   int64 `json:"own"`   // positions generated since, of each row
	Beams int64 `json:"beams"` // rows of a sample
	Batch int64 `json:"batch"` // samples
	// Steps is how many steps a sample is expected to take: what is computed before
	// the first one is spread over them. 0 leaves it out.
	Steps int64 `json:"steps,omitempty"`
}
