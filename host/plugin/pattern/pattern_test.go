package pattern

import (
	"github.com/opgraft/graft/internal/must"
	"testing"
)

func TestConstantMatches(t *testing.T) {
	number := func(v float64) *float64 { return &v }
	for _, test := range []struct {
		c       Constant
		element float64
		want    bool
	}{
		{Constant{Value: number(2), Tolerance: 1e-3}, 2.001, true},
		{Constant{Value: number(2), Tolerance: 1e-3}, 2.003, false},
		{Constant{Value: number(-2), Tolerance: 1e-3}, -2.001, true},
		{Constant{Value: number(0), Tolerance: 1e-3}, 0.0005, true},
		{Constant{Value: number(0), Tolerance: 0}, 1e-300, false},
		{Constant{Min: number(1), Max: number(2)}, 1, true},
		{Constant{Min: number(1), Max: number(2)}, 2.1, false},
		{Constant{Max: number(2)}, -1e9, true},
		{Constant{Capture: "eps"}, 17, true},
	} {
		must.Equal(t, test.c.Matches(test.element), test.want, test.c, test.element)
	}
}
