package signature

import (
	"fmt"
	"math"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/pattern"
)

// Find returns the operator of a name among those of a library; nil for none.
func Find(list []Operator, name string) *Operator {
	if i := slices.IndexFunc(list, func(op Operator) bool { return op.Name == name }); i >= 0 {
		return &list[i]
	}
	return nil
}

// Attribute returns an attribute's value as the operator takes it: whole numbers as others where it has those.
func (op *Operator) Attribute(name string, value any) (any, error) {
	var names []string
	for _, a := range op.Attributes {
		if a.Name == name {
			if as, ok := As(a.Kind, value); ok {
				return as, nil
			}
			return nil, fmt.Errorf("attribute %s of %s is %v, needed is %s", name, op.Name, value, a.Kind)
		}
		names = append(names, a.Name)
	}
	hint := ""
	if near := diagnostic.Nearest(name, names); near != "" {
		hint = ", did you mean " + near + "?"
	}
	return nil, fmt.Errorf("%s has no attribute %s%s", op.Name, name, hint)
}

// As gives an attribute's value the Go type of a kind; false where that would change it.
func As(kind string, value any) (as any, ok bool) {
	switch v := value.(type) {
	case int64:
		if kind == "float" {
			return float64(v), true
		}
		ok = kind == "int"
	case float64:
		ok = kind == "float"
	case string:
		ok = kind == "string"
	case []int64:
		if kind == "floats" {
			list := make([]float64, len(v))
			for i, x := range v {
				list[i] = float64(x)
			}
			return list, true
		}
		ok = kind == "ints"
	case []float64:
		ok = kind == "floats"
	case []string:
		ok = kind == "strings"
	}
	return value, ok
}

// Accept reports why the operator cannot be called as a node of a replacement calls it: attributes that it has not, of
// another kind or missing, and numbers of inputs and outputs. Captured values are not known yet and not looked at.
func (op *Operator) Accept(n manifest.WithNode) error {
	for _, a := range n.Attributes {
		value := a.Value
		if _, captured := value.(manifest.Capture); captured {
			value = nil
		}
		if _, err := op.Attribute(a.Name, value); err != nil && (value != nil || op.attribute(a.Name) == nil) {
			return err
		}
	}
	for _, a := range op.Attributes {
		if a.Required && !slices.ContainsFunc(n.Attributes, func(b manifest.Attribute) bool { return a.Name == b.Name }) {
			return fmt.Errorf("%s needs the attribute %s", op.Name, a.Name)
		}
	}
	if err := accept(op.Name, "input", op.Inputs, n.In); err != nil {
		return err
	}
	return accept(op.Name, "output", op.Outputs, n.Out)
}

// Has reports whether the operator has an attribute of that name.
func (op *Operator) Has(name string) bool { return op.attribute(name) != nil }

// Kind is that of an attribute; "" where the operator, which may be nil, has none of that name.
func (op *Operator) Kind(name string) string {
	if op == nil || !op.Has(name) {
		return ""
	}
	return op.attribute(name).Kind
}

func (op *Operator) attribute(name string) *Attribute {
	if i := slices.IndexFunc(op.Attributes, func(a Attribute) bool { return a.Name == name }); i >= 0 {
		return &op.Attributes[i]
	}
	return nil
}

// accept compares the values of a node with an operator's parameters.
func accept(operator, what string, has []Parameter, given []string) error {
	least, most := 0, len(has)
	for i, p := range has {
		switch {
		case p.Variadic:
			least, most = i+p.MinCount, math.MaxInt
		case !p.Optional:
			least = i + 1
			if i < len(given) && given[i] == "" && what == "input" {
				return fmt.Errorf("%s needs the input %s", operator, p.Name)
			}
		}
	}
	if len(given) < least || len(given) > most {
		return fmt.Errorf("%s is given %d %ss, needed are %s", operator, len(given), what, span(least, most))
	}
	return nil
}

func span(least, most int) string {
	switch {
	case least == most:
		return fmt.Sprint(least)
	case most == math.MaxInt:
		return fmt.Sprintf("at least %d", least)
	}
	return fmt.Sprintf("%d to %d", least, most)
}

// AcceptONNX is Accept for a node of ONNX's own, of a pattern or a replacement, in any version that is known.
func AcceptONNX(n manifest.WithNode) error {
	s := onnx.SchemaOf(n.Op, onnx.Newest)
	if s == nil {
		hint := ""
		if near := diagnostic.Nearest(n.Op, onnx.OperatorNames()); near != "" {
			hint = ", did you mean " + near + "?"
		}
		return fmt.Errorf("ONNX has no operator %s%s", n.Op, hint)
	}
	for _, a := range n.Attributes {
		kind := onnx.AttributeKind(n.Op, a.Name)
		if kind == "" {
			return fmt.Errorf("ONNX's %s has no attribute %s", n.Op, a.Name)
		}
		switch a.Value.(type) {
		case manifest.Capture, pattern.Any:
			continue
		}
		if _, ok := As(kind, a.Value); !ok {
			return fmt.Errorf("attribute %s of %s is %v, needed is %s", a.Name, n.Op, a.Value, kind)
		}
	}
	if len(n.In) > s.MaxInputs || len(n.Out) > s.MaxOutputs {
		return fmt.Errorf("%s is given %d inputs and %d outputs, needed are at most %d and %d", n.Op, len(n.In), len(n.Out),
			s.MaxInputs, s.MaxOutputs)
	}
	return nil
}
