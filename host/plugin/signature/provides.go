package signature

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Fulfils reports why the operator, as its library describes it, cannot be called as a contract says.
func (op *Operator) Fulfils(c *capability.Contract) error {
	if err := fulfils("input", op.Inputs, capability.Parameters(c.Inputs)); err != nil {
		return err
	}
	if err := fulfils("output", op.Outputs, capability.Parameters(c.Outputs)); err != nil {
		return err
	}
	for _, a := range capability.Parameters(c.Attributes) {
		if kind := op.Kind(a.Name); kind != a.Types[0] && (kind != "" || !a.Extra) {
			return fmt.Errorf("its attribute %s is %q, needed is %s", a.Name, kind, a.Types[0])
		}
	}
	for _, a := range op.Attributes {
		if a.Required {
			return fmt.Errorf("it needs the attribute %s, which the host may leave out", a.Name)
		}
	}
	return nil
}

// fulfils compares parameters with those of a contract, which come first and in that order.
func fulfils(what string, has []Parameter, needed []capability.Parameter) error {
	for i, n := range needed {
		if i >= len(has) {
			if n.Extra {
				return nil
			}
			return fmt.Errorf("it has %d %ss, needed is %s as number %d", len(has), what, n.Name, i+1)
		}
		p := has[i]
		switch {
		case p.Name != n.Name:
			return fmt.Errorf("its %s %d is %s, needed is %s", what, i+1, p.Name, n.Name)
		case p.Variadic != n.Variadic:
			return fmt.Errorf("its %s %s is variadic: %v, needed is %v", what, p.Name, p.Variadic, n.Variadic)
		case n.Optional && !p.Optional:
			return fmt.Errorf("its %s %s is not optional, and the host may leave it out", what, p.Name)
		}
		for _, t := range n.Types {
			if !slices.Contains(p.Types, tensor.DType(t)) {
				return fmt.Errorf("its %s %s is not of %s, which the host may give", what, p.Name, t)
			}
		}
	}
	if len(has) > len(needed) && !has[len(needed)].Optional && !has[len(needed)].Variadic {
		return fmt.Errorf("it needs the %s %s, which the host has not", what, has[len(needed)].Name)
	}
	return nil
}
