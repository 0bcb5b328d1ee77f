// Package manifest reads plugin.yaml: what a plugin is, which libraries carry it, what each of its operators
// replaces, and the cases that it must pass. It runs nothing of a plugin's and opens none of its libraries.
package manifest

import (
	"encoding/json"

	"github.com/opgraft/graft/host/plugin/pattern"
)

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
	With     Withs    `json:"with,omitempty"` // never empty when Replaces.Pattern is set
	Cost     Cost     `json:"cost"`
	// CostInPanels is of an operator of matmuls where the host has laid its weights out in panels, which it does for those
	// of its own that it knows.
	CostInPanels *Cost `json:"cost_in_panels,omitempty"`
	// IntegerTimes are of an operator of linear-panels/1, by form and CPU.
	IntegerTimes []IntegerTimes `json:"integer_times,omitempty"`
	// SameBits says that results have the bits of what ONNX Runtime computes with the nodes that stand in place of the
	// operator, on the same machine. Such an operator may stand before what rounds to a few bits.
	SameBits bool `json:"same_bits,omitempty"`
	// KVCache is of an operator that attends for graft generate over the host's KV cache.
	KVCache *KVCache `json:"kv_cache,omitempty"`
	// Provides are capabilities of host/plugin/capability: what the host may ask the operator of that name for.
	Provides []string `json:"provides,omitempty"`

	// Tests are files of graphs that the pattern must match, and must not.
	Tests *Tests `json:"tests,omitempty"`

	forms []Replacement
	line  int
}

// Tests are graphs in the plugin's folder, with slashes: ONNX's text format (.onnxtxt), or .onnx.
type Tests struct {
	Match   []string `json:"match,omitempty"`
	NoMatch []string `json:"no_match,omitempty"`
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

// With is what stands in place of a pattern, in those of its forms that it is for.
type With struct {
	// If and Unless name values of the pattern: it is for forms that have all of the former and none of the latter.
	If     []string   `json:"if,omitempty"`
	Unless []string   `json:"unless,omitempty"`
	Nodes  []WithNode `json:"nodes"` // in topological order, of one form in that of the file
	// Fold names the constants that the plugin's fold function computes when the plan is applied, in the
	// order of its outputs. Its inputs are the pattern's Any constants in the order of the file.
	Fold []string `json:"fold,omitempty"`

	line int
}

// Withs are what stands in place of a pattern: the first that is for a form.
type Withs []With

// MarshalJSON is a mapping for one that is for all forms, else a list, as the file has it.
func (w Withs) MarshalJSON() ([]byte, error) {
	if len(w) == 1 && w[0].If == nil && w[0].Unless == nil {
		return json.Marshal(w[0])
	}
	return json.Marshal([]With(w))
}

// Replacement is a form of an operator's pattern with what stands in its place: nodes that name values of that form.
type Replacement struct {
	Form *pattern.Form
	With With
}

// Forms are what an operator's pattern stands for, in the order in which they are looked for; those that nothing
// stands in place of are left out. There are none without a pattern.
func (op *Operator) Forms() []Replacement { return op.forms }

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
