package conformance

import (
	"fmt"
	"math"

	"github.com/opgraft/graft/host/plugin/formula"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// compare holds an output against the expected numbers.
func compare(name string, y *tensor.Tensor, want []float64, bound manifest.Tolerance, result *Result) error {
	got := y.Floats()
	if len(got) != len(want) {
		return caseProblem("output %s has %d elements (shape %v), expected are %d", name, len(got), y.Shape, len(want))
	}
	for i, w := range want {
		g := got[i]
		if g == w || math.IsNaN(g) && math.IsNaN(w) {
			continue
		}
		difference := math.Abs(g - w)
		if !(difference <= bound.Absolute+bound.Relative*math.Abs(w)) || math.IsInf(g, 0) || math.IsInf(w, 0) {
			return caseProblem("output %s%v is %v, expected is %v within %v + %v relative", name, position(int64(i), y.Shape), g,
				w, bound.Absolute, bound.Relative)
		}
		result.MaxAbsolute = max(result.MaxAbsolute, difference)
		if w != 0 {
			result.MaxRelative = max(result.MaxRelative, difference/math.Abs(w))
		}
	}
	return nil
}

// position is the index of an element along each axis.
func position(i int64, shape []int64) []int64 {
	at := make([]int64, len(shape))
	for axis := len(shape) - 1; axis >= 0; axis-- {
		at[axis] = i % shape[axis]
		i /= shape[axis]
	}
	return at
}

// expectation computes the right answer in float64, by output name.
func expectation(c *manifest.Case, op *signature.Operator, inputs, shapes []*tensor.Tensor) (map[string][]float64,
	error) {
	byName := map[string]*tensor.Tensor{}
	for i, x := range inputs {
		if x != nil {
			byName[parameterName(op.Inputs, i)] = x
		}
	}
	asked := map[string]int64{}
	for i, s := range shapes {
		if s != nil {
			asked[outputName(op, i)] = s.Elements()
		}
	}
	var expected map[string][]float64
	switch {
	case c.Expect.Reference != "":
		var err error
		if expected, err = references[c.Expect.Reference](byName, c.Attributes); err != nil {
			return nil, caseProblem("the reference: %v", err)
		}
	case c.Expect.Formula != nil:
		expected = map[string][]float64{}
		for name, text := range c.Expect.Formula {
			values, err := evaluate(text, byName, asked[name])
			if err != nil {
				return nil, caseProblem("the formula of %s: %v", name, err)
			}
			expected[name] = values
		}
	default:
		expected = map[string][]float64{}
		for name, values := range c.Expect.Values {
			expected[name] = values
		}
	}
	for name := range expected {
		if _, ok := asked[name]; !ok && c.Expect.Reference == "" {
			return nil, caseProblem("the case expects an output %s, which it does not ask for", name)
		}
	}
	for name := range asked {
		if _, ok := expected[name]; !ok {
			return nil, caseProblem("the case says nothing of output %s", name)
		}
	}
	return expected, nil
}

// evaluate computes an expression for every element of an output of n elements.
func evaluate(text string, inputs map[string]*tensor.Tensor, n int64) ([]float64, error) {
	f, err := formula.Parse(text)
	if err != nil {
		return nil, err
	}
	values := map[string][]float64{}
	for _, name := range f.Inputs {
		x, ok := inputs[name]
		if !ok {
			return nil, fmt.Errorf("found the name %s, needed an input of the case", name)
		}
		values[name] = x.Floats()
		if have := int64(len(values[name])); have != n && have != 1 {
			return nil, fmt.Errorf("found %d elements of %s, needed %d as the output has, or 1", have, name, n)
		}
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = f.Compute(func(name string) float64 {
			v := values[name]
			if len(v) == 1 {
				return v[0]
			}
			return v[i]
		})
	}
	return out, nil
}
