// Package capability is the table of what the host asks plugins for. A manifest says under provides which of it an
// operator does; the host takes the cheapest operator that provides what it needs, whoever wrote it.
package capability

import "slices"

// Names of capabilities, each with its version: another version is another contract.
const (
	LinearPanels      = "linear-panels/1"
	PackPanels        = "pack-panels/1"
	IntegerLinear     = "integer-linear/1"
	NodewiseAttention = "nodewise-attention/1"
	PackedRows        = "packed-rows/1"
	PackedAttention   = "packed-attention/1"
	PaddedRows        = "padded-rows/1"
	SelectTokens      = "select-tokens/1"
	GELU              = "gelu/1"
)

// Contract is what an operator promises that provides a capability. What no signature can say stands in Promise and
// in Error, in words.
type Contract struct {
	Name string
	// Leads is the capability of which the host takes the cheapest provider, and this one of the same plugin; it is
	// Name itself for one that the host asks for by itself.
	Leads string
	// Many lets any number of plugins provide it at once: the host recognises their operators, and places none itself.
	Many bool
	// Needs are capabilities that other operators of the manifest have to provide.
	Needs      []string
	Promise    string
	Error      string // how far results may be from exact ones
	Inputs     []Parameter
	Outputs    []Parameter
	Attributes []Attribute
}

// Parameter is an input or output, in its place.
type Parameter struct {
	Name     string
	Types    []string // all of which it must take
	Optional bool     // a node may leave it out
	Variadic bool
	Extra    bool // an operator may not have it
}

// Attribute is one that the host may set; a node that leaves it out means its default.
type Attribute struct {
	Name, Kind string
	Extra      bool // an operator may not have it
}

// Find is the contract of a capability; nil for one that is not known.
func Find(name string) *Contract {
	if i := slices.IndexFunc(contracts, func(c Contract) bool { return c.Name == name }); i >= 0 {
		return &contracts[i]
	}
	return nil
}

// All are the contracts of all capabilities.
func All() []Contract { return slices.Clone(contracts) }

// Known are the names of all capabilities.
func Known() (names []string) {
	for _, c := range contracts {
		names = append(names, c.Name)
	}
	return names
}
