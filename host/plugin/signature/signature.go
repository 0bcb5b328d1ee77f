// Package signature holds what an operator takes and gives, as a library describes it.
package signature

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/plugin/tensor"
)

// Same reports how two variants' descriptions of an operator differ in what a model's node may say:
// inputs, outputs and attributes. Types and where tensors lie may differ. ONNX Runtime makes one schema of
// operators with one name, and refuses all of them when their inputs and outputs differ; an attribute that
// one of them does not know would pass unread.
func Same(a, b *Operator) error {
	if err := sameParameters("input", a.Inputs, b.Inputs); err != nil {
		return err
	}
	if err := sameParameters("output", a.Outputs, b.Outputs); err != nil {
		return err
	}
	for _, side := range []struct{ of, in []Attribute }{{a.Attributes, b.Attributes}, {b.Attributes, a.Attributes}} {
		for _, x := range side.of {
			// As text: a default may be NaN, which equals nothing.
			if !slices.ContainsFunc(side.in, func(y Attribute) bool { return fmt.Sprint(x) == fmt.Sprint(y) }) {
				return fmt.Errorf("attribute %s differs", x.Name)
			}
		}
	}
	return nil
}

func sameParameters(what string, a, b []Parameter) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d %ss in one, %d in the other", len(a), what, len(b))
	}
	for i, x := range a {
		y := b[i]
		if x.Name != y.Name || x.Optional != y.Optional || x.Variadic != y.Variadic || x.MinCount != y.MinCount {
			return fmt.Errorf("%s %d, %s, differs", what, i, x.Name)
		}
	}
	return nil
}

// Takes reports whether some input of the operator may hold tensors of a type.
func (op *Operator) Takes(t tensor.DType) bool {
	return slices.ContainsFunc(op.Inputs, func(p Parameter) bool { return slices.Contains(p.Types, t) })
}

// Operator is one operator: its inputs, outputs and attributes.
type Operator struct {
	Name         string      `json:"name"`
	Summary      string      `json:"summary"`
	SinceVersion int         `json:"since_version"`
	Inputs       []Parameter `json:"inputs"`
	Outputs      []Parameter `json:"outputs"`
	Attributes   []Attribute `json:"attributes"`
}

// Parameter is an input or an output.
type Parameter struct {
	Name         string         `json:"name"`
	Types        []tensor.DType `json:"types"`         // what it may hold
	TypeVariable int            `json:"type_variable"` // those with the same one, 0 or above, hold the same type
	Optional     bool           `json:"optional,omitempty"`
	Variadic     bool           `json:"variadic,omitempty"`
	MinCount     int            `json:"min_count,omitempty"` // variadic: the fewest tensors
	Strided      bool           `json:"strided,omitempty"`   // strides are honoured
	HostMemory   bool           `json:"host_memory,omitempty"`
}

// Attribute is an attribute's kind and default.
type Attribute struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"` // int, float, string, ints, floats
	Required bool   `json:"required,omitempty"`
	Default  any    `json:"default,omitempty"` // as Attribute.Value; nil when required
}
