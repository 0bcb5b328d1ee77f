package plugin

import (
	"fmt"
	"slices"
)

// SameFace reports how two variants' descriptions of an operator differ in what a model's node may say:
// inputs, outputs and attributes. Types and where tensors lie may differ. ONNX Runtime makes one schema of
// operators with one name, and refuses all of them when their inputs and outputs differ; an attribute that
// one of them does not know would pass unread.
func SameFace(a, b *OperatorInfo) error {
	if err := sameParameters("input", a.Inputs, b.Inputs); err != nil {
		return err
	}
	if err := sameParameters("output", a.Outputs, b.Outputs); err != nil {
		return err
	}
	for _, side := range []struct{ of, in []AttributeInfo }{{a.Attributes, b.Attributes}, {b.Attributes, a.Attributes}} {
		for _, x := range side.of {
			// As text: a default may be NaN, which equals nothing.
			if !slices.ContainsFunc(side.in, func(y AttributeInfo) bool { return fmt.Sprint(x) == fmt.Sprint(y) }) {
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
func (op *OperatorInfo) Takes(t DType) bool {
	return slices.ContainsFunc(op.Inputs, func(p Parameter) bool { return slices.Contains(p.Types, t) })
}

// Emits lists the operators of graft's domain that stand in a model where this one replaces something.
func (op *Operator) Emits() []string {
	if op.With == nil {
		return []string{op.Name}
	}
	var names []string
	for _, n := range op.With.Nodes {
		if n.Domain == Domain && !slices.Contains(names, n.Op) {
			names = append(names, n.Op)
		}
	}
	return names
}
