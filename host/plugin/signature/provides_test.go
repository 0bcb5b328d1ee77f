package signature_test

import (
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/internal/must"
)

// as is an operator as a contract has it.
func as(c *capability.Contract) *signature.Operator {
	op := &signature.Operator{Name: "Mine"}
	parameters := func(list string) (out []signature.Parameter) {
		for _, p := range capability.Parameters(list) {
			x := signature.Parameter{Name: p.Name, Optional: p.Optional, Variadic: p.Variadic}
			for _, t := range p.Types {
				x.Types = append(x.Types, tensor.DType(t))
			}
			out = append(out, x)
		}
		return out
	}
	op.Inputs, op.Outputs = parameters(c.Inputs), parameters(c.Outputs)
	for _, a := range capability.Parameters(c.Attributes) {
		op.Attributes = append(op.Attributes, signature.Attribute{Name: a.Name, Kind: a.Types[0]})
	}
	return op
}

func TestFulfils(t *testing.T) {
	for _, name := range capability.Known() {
		c := capability.Find(name)
		must.Succeed(t, as(c).Fulfils(c), name)
	}
	linear := capability.Find(capability.LinearPanels)
	for _, c := range []struct {
		name string
		edit func(*signature.Operator)
		want string
	}{
		{"of float32 alone", func(op *signature.Operator) { op.Inputs = op.Inputs[:8] }, ""},
		{"with one more", func(op *signature.Operator) {
			op.Inputs = append(op.Inputs, signature.Parameter{Name: "more", Optional: true})
			op.Attributes = append(op.Attributes, signature.Attribute{Name: "more", Kind: "int"})
		}, ""},
		{"without residual", func(op *signature.Operator) { op.Inputs = op.Inputs[:3] },
			"it has 3 inputs, needed is residual as number 4"},
		{"another order", func(op *signature.Operator) {
			op.Inputs[0], op.Inputs[1] = op.Inputs[1], op.Inputs[0]
		}, "its input 1 is weight, needed is x"},
		{"needs a bias", func(op *signature.Operator) { op.Inputs[2].Optional = false },
			"its input bias is not optional, and the host may leave it out"},
		{"another type", func(op *signature.Operator) { op.Inputs[0].Types = []tensor.DType{tensor.Float16} },
			"its input x is not of float32, which the host may give"},
		{"needs more", func(op *signature.Operator) {
			op.Inputs = append(op.Inputs, signature.Parameter{Name: "more"})
		}, "it needs the input more, which the host has not"},
		{"without an output", func(op *signature.Operator) { op.Outputs = op.Outputs[:1] },
			"it has 1 outputs, needed is y1 as number 2"},
		{"without an attribute", func(op *signature.Operator) { op.Attributes = op.Attributes[1:] },
			`its attribute activation is "", needed is string`},
		{"of another kind", func(op *signature.Operator) { op.Attributes[0].Kind = "int" },
			`its attribute activation is "int", needed is string`},
		{"needs an attribute", func(op *signature.Operator) { op.Attributes[0].Required = true },
			"it needs the attribute activation, which the host may leave out"},
	} {
		op := as(linear)
		c.edit(op)
		err := op.Fulfils(linear)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: found %v, needed %q", c.name, err, c.want)
		}
	}
}
