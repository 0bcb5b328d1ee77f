package plugin

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/diagnostic"
)

// runFold runs a case of a fold twice: what comes out must be what the case expects, and the same
// both times, because a host keeps it.
func (p *Plugin) runFold(ctx context.Context, c *Case, result *CaseResult) error {
	var constants []Weight
	for i := range c.Fold.Constants {
		w, err := c.Fold.Constants[i].weight()
		if err != nil {
			return err
		}
		constants = append(constants, w)
	}
	var first []Weight
	for i := range 2 {
		if err := ctx.Err(); err != nil {
			return err
		}
		found, err := p.Fold(c.Operator, constants, c.Attributes)
		var refused *diagnostic.Error
		switch {
		case errors.As(err, &refused) && refused.Kind == ErrRefused && c.Expect.Refused != "":
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
			if err := c.compareFold(found, result); err != nil {
				return err
			}
		} else if !slices.EqualFunc(first, found, equalWeights) {
			return caseProblem("it folded the same constants to something else the second time")
		}
	}
	return nil
}

// compareFold holds the constants that a fold emitted against the expected ones.
func (c *Case) compareFold(found []Weight, result *CaseResult) error {
	for _, w := range found {
		want, ok := c.Expect.Values[w.Name]
		if !ok {
			return caseProblem("it emitted %s, of which the case says nothing", w.Name)
		}
		t, err := w.tensor()
		if err != nil {
			return err
		}
		if err := compare(w.Name, t, want, c.Tolerance, result); err != nil {
			return err
		}
	}
	for name := range c.Expect.Values {
		if !slices.ContainsFunc(found, func(w Weight) bool { return w.Name == name }) {
			return caseProblem("it emitted no %s", name)
		}
	}
	return nil
}

// weight makes the constant that a case describes.
func (in *CaseInput) weight() (Weight, error) {
	t, err := in.tensor()
	if err != nil {
		return Weight{}, err
	}
	w := Weight{Name: in.Name, Shape: in.Shape}
	for _, x := range t.floats() {
		if t.DType == Int64 {
			w.Ints = append(w.Ints, int64(x))
		} else {
			w.Floats = append(w.Floats, x)
		}
	}
	return w, nil
}

// equalWeights compares bit for bit, but for the bits of what is no number.
func equalWeights(a, b Weight) bool {
	return a.Name == b.Name && slices.Equal(a.Shape, b.Shape) && slices.Equal(a.Ints, b.Ints) &&
		slices.EqualFunc(a.Floats, b.Floats, func(x, y float64) bool { return x == y || x != x && y != y })
}
