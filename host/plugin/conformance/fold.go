package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// runFold runs a case of a fold twice: what comes out must be what the case expects, and the same
// both times, because a host stores it.
func runFold(ctx context.Context, p *plugin.Plugin, c *manifest.Case, result *Result) error {
	var constants []tensor.Weight
	for i := range c.Fold.Constants {
		w, err := weightOf(&c.Fold.Constants[i])
		if err != nil {
			return err
		}
		constants = append(constants, w)
	}
	var first []tensor.Weight
	for i := range 2 {
		if err := ctx.Err(); err != nil {
			return err
		}
		found, err := p.Fold(c.Operator, constants, c.Attributes)
		var refused *diagnostic.Error
		switch {
		case errors.As(err, &refused) && refused.Kind == refusal.ErrFold && c.Expect.Refused != "":
			if !strings.Contains(refused.Found, c.Expect.Refused) {
				return caseProblem("it refused with %q, expected is %q in it", refused.Found, c.Expect.Refused)
			}
			continue
		case err != nil:
			return err
		case c.Expect.Refused != "":
			return caseProblem("it folded the constants, expected is that it refuses them: %s", c.Expect.Refused)
		}
		if i == 0 {
			first = found
			want := c.Expect.Values
			if c.Expect.Reference != "" {
				if want, err = expectedFold(p, c, constants); err != nil {
					return err
				}
			}
			if err := compareFold(c, want, found, result); err != nil {
				return err
			}
		} else if !slices.EqualFunc(first, found, equalWeights) {
			return caseProblem("it folded the same constants to something else the second time")
		}
	}
	return nil
}

// expectedFold computes the constants that a fold must emit.
func expectedFold(p *plugin.Plugin, c *manifest.Case, constants []tensor.Weight) (map[string]manifest.Floats, error) {
	op, ok := p.Manifest.Operator(c.Operator)
	if !ok || op.KVCache == nil {
		return nil, caseProblem("the reference: found no kv_cache.strategy of operator %s, needed it", c.Operator)
	}
	values, err := referenceFold(op.KVCache.Strategy, constants, c.Attributes)
	if err != nil {
		return nil, caseProblem("the reference: %v", err)
	}
	out := map[string]manifest.Floats{}
	for name, list := range values {
		out[name] = list
	}
	return out, nil
}

// compareFold holds the constants that a fold emitted against the expected ones.
func compareFold(c *manifest.Case, expected map[string]manifest.Floats, found []tensor.Weight, result *Result) error {
	for _, w := range found {
		want, ok := expected[w.Name]
		if !ok {
			return caseProblem("it emitted %s, of which the case says nothing", w.Name)
		}
		t, err := w.Tensor()
		if err != nil {
			return err
		}
		if err := compare(w.Name, t, want, c.Tolerance, result); err != nil {
			return err
		}
	}
	for name := range expected {
		if !slices.ContainsFunc(found, func(w tensor.Weight) bool { return w.Name == name }) {
			return caseProblem("it emitted no %s", name)
		}
	}
	return nil
}

// weightOf makes the constant that a case describes.
func weightOf(in *manifest.CaseInput) (tensor.Weight, error) {
	t, err := tensorOf(in)
	if err != nil {
		return tensor.Weight{}, err
	}
	w := tensor.Weight{Name: in.Name, Shape: in.Shape}
	for _, x := range t.Floats() {
		if t.DType == tensor.Int64 {
			w.Ints = append(w.Ints, int64(x))
		} else {
			w.Floats = append(w.Floats, x)
		}
	}
	return w, nil
}

// equalWeights compares bit for bit, but for the bits of what is no number.
func equalWeights(a, b tensor.Weight) bool {
	return a.Name == b.Name && slices.Equal(a.Shape, b.Shape) && slices.Equal(a.Ints, b.Ints) &&
		slices.EqualFunc(a.Floats, b.Floats, func(x, y float64) bool { return x == y || x != x && y != y })
}
