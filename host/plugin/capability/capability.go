// Package capability is the table of what the host asks plugins for. A manifest says under provides which of it an
// operator does; the host takes the cheapest operator that provides what it needs, whoever wrote it.
package capability

import "strings"

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

// Contract is the signature of an operator that provides a capability. What it promises to compute, and how exactly,
// stands in abi/README.md.
type Contract struct {
	Name string
	// Leads is the capability of which the host takes the cheapest provider, and this one of the same plugin; it is
	// Name itself for one that the host asks for by itself.
	Leads string
	// Many lets any number of plugins provide it at once: the host recognises their operators, and places none itself.
	Many bool
	// Needs are capabilities that other operators of the manifest have to provide.
	Needs []string
	// Inputs and Outputs are in their places: "x float32, [bias float32]". A node may leave out what is in [brackets],
	// and an operator need not have what is in [[double ones]]. Types are all those that it must take.
	Inputs, Outputs string
	Attributes      string // which the host may set, with their kinds; a node that leaves one out means its default
}

// Parameter is an input, an output or an attribute of a contract.
type Parameter struct {
	Name     string
	Types    []string // of an attribute its kind
	Optional bool
	Variadic bool
	Extra    bool // an operator may not have it
}

// Parameters reads one of a contract's lists.
func Parameters(list string) (all []Parameter) {
	if list == "" {
		return nil
	}
	for text := range strings.SplitSeq(list, ", ") {
		name, types, _ := strings.Cut(strings.Trim(text, "[]"), " ")
		p := Parameter{Name: name, Optional: text[0] == '[', Extra: strings.HasPrefix(text, "[[")}
		types, p.Variadic = strings.CutSuffix(types, "...")
		if types == "any" {
			types = "float32/float16/bfloat16/float64/int64/int32/int16/int8/uint64/uint32/uint16/uint8/bool"
		}
		p.Types = strings.Split(types, "/")
		all = append(all, p)
	}
	return all
}

// Find is the contract of a capability; nil for one that is not known.
func Find(name string) *Contract {
	for i := range contracts {
		if contracts[i].Name == name {
			return &contracts[i]
		}
	}
	return nil
}

// Known are the names of all capabilities.
func Known() (names []string) {
	for _, c := range contracts {
		names = append(names, c.Name)
	}
	return names
}
