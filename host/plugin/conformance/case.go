package conformance

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// outputName is the name of an output, numbered where it is one of a variadic parameter's.
func outputName(op *signature.Operator, i int) string { return parameterName(op.Outputs, i) }

func parameterName(parameters []signature.Parameter, i int) string {
	if last := len(parameters) - 1; last >= 0 && i >= last && parameters[last].Variadic {
		return fmt.Sprintf("%s%d", parameters[last].Name, i-last)
	}
	return parameters[i].Name
}

// slots puts named things into the order of an operator's parameters; those of a variadic one are called
// by its name and a number from 0.
func slots(names []string, parameters []signature.Parameter, what string) ([]int, int, error) {
	at := make([]int, len(names))
	count := 0
	for _, p := range parameters {
		if !p.Variadic {
			count++
		}
	}
	fixed := count
	for n, name := range names {
		at[n] = -1
		for i := range fixed + len(names) {
			if i < fixed || fixed < len(parameters) {
				if parameterName(parameters, i) == name {
					at[n] = i
					count = max(count, i+1)
					break
				}
			}
		}
		if at[n] < 0 {
			return nil, 0, caseProblem("the operator has no %s %s", what, name)
		}
	}
	return at, count, nil
}

// Tensors makes the inputs in the operator's order; nil where one is absent.
func Tensors(c *manifest.Case, op *signature.Operator) ([]*tensor.Tensor, error) {
	names := make([]string, len(c.Inputs))
	for i := range c.Inputs {
		names[i] = c.Inputs[i].Name
	}
	at, count, err := slots(names, op.Inputs, "input")
	if err != nil {
		return nil, err
	}
	out := make([]*tensor.Tensor, count)
	for i := range c.Inputs {
		if out[at[i]], err = tensorOf(&c.Inputs[i]); err != nil {
			return nil, err
		}
	}
	for i := range out {
		if out[i] == nil && !op.Inputs[min(i, len(op.Inputs)-1)].Optional {
			return nil, caseProblem("the operator needs the input %s", parameterName(op.Inputs, i))
		}
	}
	return out, nil
}

// Constants are the inputs that a kernel is given when it is made; nil for the others.
func Constants(c *manifest.Case, op *signature.Operator, inputs []*tensor.Tensor) []*tensor.Tensor {
	list := make([]*tensor.Tensor, len(inputs))
	for i := range inputs {
		name := parameterName(op.Inputs, i)
		if slices.ContainsFunc(c.Inputs, func(in manifest.CaseInput) bool { return in.Name == name && in.Constant }) {
			list[i] = inputs[i]
		}
	}
	return list
}

// tensorOf makes the tensor that a case describes.
func tensorOf(in *manifest.CaseInput) (*tensor.Tensor, error) {
	t, err := tensor.New(tensor.DType(in.DType), in.Shape...)
	if err != nil {
		return nil, err
	}
	sequence := random(in.Seed)
	if in.Packed != "" {
		halves := packed(t, tensor.DType(in.Packed))
		for i := range halves.Elements() {
			halves.Set(i, sequence.uniform(in.Min, in.Max))
		}
		return t, nil
	}
	for i := range t.Elements() {
		switch {
		case in.Values != nil:
			t.Set(i, in.Values[i])
		case t.DType == tensor.Bool:
			t.Set(i, float64(sequence.next()&1))
		case strings.Contains(string(t.DType), "int"):
			t.Set(i, math.Floor(sequence.uniform(in.Min, in.Max+1)))
		default:
			t.Set(i, sequence.uniform(in.Min, in.Max))
		}
	}
	return t, nil
}

// packed sees the memory of a float32 tensor as numbers of another type, row-major.
func packed(t *tensor.Tensor, as tensor.DType) *tensor.Tensor {
	return &tensor.Tensor{DType: as, Shape: []int64{t.Elements() * t.DType.Size() / as.Size()}, Data: t.Data}
}

// Wanted says which outputs are asked for: those that the case names, else those that are not
// optional.
func Wanted(c *manifest.Case, op *signature.Operator) ([]bool, error) {
	at, count, err := slots(c.Outputs, op.Outputs, "output")
	if err != nil {
		return nil, err
	}
	wanted := make([]bool, count)
	for i := range wanted {
		wanted[i] = len(c.Outputs) == 0 && !op.Outputs[i].Optional
	}
	for _, i := range at {
		wanted[i] = true
	}
	for len(wanted) > 0 && !wanted[len(wanted)-1] {
		wanted = wanted[:len(wanted)-1]
	}
	for i := range wanted {
		if !wanted[i] && !op.Outputs[i].Optional {
			return nil, caseProblem("the operator always has the output %s; name it too", outputName(op, i))
		}
	}
	return wanted, nil
}

func shapesOf(tensors []*tensor.Tensor) []*tensor.Tensor {
	out := make([]*tensor.Tensor, len(tensors))
	for i, t := range tensors {
		if t != nil {
			out[i] = &tensor.Tensor{DType: t.DType, Shape: t.Shape}
		}
	}
	return out
}
