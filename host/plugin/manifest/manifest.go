// Package manifest reads plugin.yaml: what a plugin is, which libraries carry it, what each of its operators
// replaces, and the cases that it must pass. It runs nothing of a plugin's and opens none of its libraries.
package manifest

// FileName is the file that makes a folder a plugin.
const FileName = "plugin.yaml"

// SchemaVersion is the version of plugin.yaml that this package reads.
const SchemaVersion = 1

// Domain is the ONNX domain of the operators that plugins bring.
const Domain = "graft"

// Manifest is plugin.yaml: what a plugin is, which libraries carry it and what each of its operators
// stands in for. Read has checked everything that its fields promise.
type Manifest struct {
	SchemaVersion int        `json:"schema_version"`
	Name          string     `json:"name"`               // [a-z0-9-], at most 64 bytes
	Version       string     `json:"version"`            // semantic version
	ABI           ABIVersion `json:"abi"`                // of graft_plugin.h, as the plugin was built
	License       string     `json:"license"`            // SPDX expression
	Summary       string     `json:"summary"`            // one line
	Homepage      string     `json:"homepage,omitempty"` // URL
	Variants      []Variant  `json:"variants"`
	Operators     []Operator `json:"operators"`
	Cases         []Case     `json:"cases,omitempty"`

	path string // the file, for errors
	sum  string // the SHA-256 of its bytes
}

// SHA256 is that of the bytes that the manifest was read of, in hexadecimal.
func (m *Manifest) SHA256() string { return m.sum }

// Operator returns the operator of that name.
func (m *Manifest) Operator(name string) (*Operator, bool) {
	for i := range m.Operators {
		if m.Operators[i].Name == name {
			return &m.Operators[i], true
		}
	}
	return nil, false
}

// Devices are the kinds of device that a variant can be for.
var Devices = []string{"cpu", "cuda"}

// Variant is one library of the plugin: the same operators for one device on one platform.
type Variant struct {
	Device string `json:"device"` // cpu or cuda
	OS     string `json:"os"`     // as GOOS
	Arch   string `json:"arch"`   // as GOARCH
	File   string `json:"file"`   // a plain name inside the plugin's folder

	line int
}

// Operator is one operator and what it stands in for, if anything: one without Replaces is called by the
// host or named by models.
type Operator struct {
	Name     string   `json:"name"` // op_type in Domain
	Replaces Replaces `json:"replaces"`
	Where    Where    `json:"where,omitempty"`
	With     *With    `json:"with,omitempty"` // never nil when Replaces.Pattern is set
	Cost     Cost     `json:"cost"`
	// CostInPanels is of an operator of matmuls where the host has laid its weights out in panels, which it does for those
	// of its own that it knows.
	CostInPanels *Cost `json:"cost_in_panels,omitempty"`
	// SameBits says that results have the bits of what ONNX Runtime computes with the nodes that stand in place of the
	// operator, on the same machine. Such an operator may stand before what rounds to a few bits.
	SameBits bool `json:"same_bits,omitempty"`
	// KVCache is of an operator that attends for graft generate over the host's KV cache.
	KVCache *KVCache `json:"kv_cache,omitempty"`

	line int
}

// KVCache says how an operator attends over the host's KV cache, and what lies there.
type KVCache struct {
	// Strategy is one of Strategies, of which abi/README.md says all that follows but Store, or a
	// name of the plugin's own.
	Strategy string `json:"strategy"`
	// Inputs is the standard strategy whose inputs, attributes and fold the operator has.
	Inputs string `json:"inputs"`
	// Slot is a formula of heads, kv_heads, head_size, value_size and width (of the layer's input): how
	// many float32 numbers one layer stores of one position. What lies where is the plugin's own affair.
	Slot string `json:"slot,omitempty"`
	// Store is the plugin's operator that stores whole sequences, as an encoder makes them; "" where
	// the strategy is of self attention alone.
	Store string `json:"store,omitempty"`
	// Inexact says that results differ from the exported model's by more than rounding. Such an
	// operator is used only where it is named.
	Inexact bool `json:"inexact,omitempty"`

	line int
}

// Strategies are the KV-cache strategies that abi/README.md defines.
var Strategies = []string{"keys_values", "prompt_hidden_states", "keys", "hidden_states"}

// Replaces is either a kind of block that the host recognises or a pattern of ONNX nodes; with neither,
// nothing is replaced.
type Replaces struct {
	Block   string   `json:"block,omitempty"` // attention
	Pattern *Pattern `json:"pattern,omitempty"`
}

// Pattern is a small graph of ONNX nodes to look for. Every value is an input, a constant or the output
// of exactly one node; the graph has no cycle and is in one piece; each node leads to an output.
//
// Add and Mul match with their operands in either order. A match is valid only when no value inside it,
// other than Outputs, is used outside it.
type Pattern struct {
	Inputs    []string      `json:"inputs"`
	Outputs   []string      `json:"outputs"`
	Nodes     []PatternNode `json:"nodes"`     // in topological order
	Constants []Constant    `json:"constants"` // in the order of the file
	Shapes    []Shape       `json:"shapes,omitempty"`
}

// Shape is what a value of a pattern must be known to have: a match is none where it is not.
type Shape struct {
	Value string `json:"value"`
	// Dims are lengths: numbers, or names that stand for one length each. "..." in the first place stands for any
	// number of lengths before the others, the same ones in all shapes of the pattern.
	Dims []string `json:"dims"`
}

// Rest is what stands for any number of lengths in Shape.Dims.
const Rest = "..."

// Constant returns the constant of that name.
func (p *Pattern) Constant(name string) (*Constant, bool) {
	for i := range p.Constants {
		if p.Constants[i].Name == name {
			return &p.Constants[i], true
		}
	}
	return nil, false
}

// PatternNode matches one ONNX node.
type PatternNode struct {
	Op     string   `json:"op"`
	Domain string   `json:"domain,omitempty"` // "" is ai.onnx
	In     []string `json:"in"`               // value names; "" where the optional input must be absent
	Out    []string `json:"out"`              // value names; "" where the output is not looked at
	// Attributes must be equal on the node, which has ONNX's default of those that it leaves out. Those not
	// named must have their default. A value "?name" captures what the node has, for use in With; Any
	// stands for whatever it has.
	Attributes []Attribute `json:"attributes,omitempty"`

	line int
}

// Attribute is a named value: int64, float64, string, []int64, []float64 or []string; in patterns and
// replacements also a Capture, in patterns also Any.
type Attribute struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
}

// Capture is the name, without its question mark, of an attribute value that a pattern captured.
type Capture string

// Any is the value, "any" in the file, of a pattern's attribute that may have any value or be absent.
type Any struct{}

// MarshalText is as the file has it.
func (Any) MarshalText() ([]byte, error) { return []byte("any"), nil }

// Constant matches an initializer (or a Constant node): either one number, or any tensor, which With
// hands to the plugin's fold function.
type Constant struct {
	Name string `json:"name"`
	// Value is what every element must be equal to within Tolerance, relative to Value where that is not
	// zero; nil for any tensor.
	Value     *float64 `json:"value,omitempty"`
	Tolerance float64  `json:"tolerance,omitempty"`
	Any       bool     `json:"any,omitempty"`
	Rank      int      `json:"rank,omitempty"` // with Any: the number of dimensions; -1 for any number

	line int
}

// With is what stands in place of a pattern.
type With struct {
	Nodes []WithNode `json:"nodes"` // in topological order
	// Fold names the constants that the plugin's fold function computes when the plan is applied, in the
	// order of its outputs. Its inputs are the pattern's Any constants in the order of the file.
	Fold []string `json:"fold,omitempty"`
}

// WithNode is one node of a replacement. Its inputs are the pattern's inputs and constants, folded
// constants, and outputs of other replacement nodes; together the nodes define the pattern's outputs.
type WithNode struct {
	Op         string      `json:"op"`
	Domain     string      `json:"domain,omitempty"`
	In         []string    `json:"in"`
	Out        []string    `json:"out"`
	Attributes []Attribute `json:"attributes,omitempty"`

	line int
}

// Cost says how much of the machine an operator uses when it is limited by one thing alone.
type Cost struct {
	Bandwidth  float64 `json:"bandwidth"`   // share of memory bandwidth reached, in (0, 1]
	FLOPS      float64 `json:"flops"`       // share of peak arithmetic reached, in (0, 1]
	OverheadUS float64 `json:"overhead_us"` // fixed cost of a call, microseconds
}
