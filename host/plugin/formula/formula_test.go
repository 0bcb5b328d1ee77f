package formula

import (
	"math"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

func TestFormula(t *testing.T) {
	values := map[string]float64{"x": 3, "y_1": -2}
	for text, want := range map[string]float64{
		"1 + 2 * 3":                       7,
		"(1 + 2) * 3":                     9,
		"8 - 4 - 2":                       2,
		"8 / 4 / 2":                       1,
		"2 ^ 3 ^ 2":                       512,
		"-x ^ 2":                          -9,
		"2 ^ -1":                          0.5,
		"--x":                             3,
		"x * y_1":                         -6,
		"1e-2 + .5E+1":                    5.01,
		"sqrt(abs(y_1) * 8)":              4,
		"max(x, y_1) + min(x, 1)":         4,
		"x / 2 * (1 + erf(x / sqrt(2)))":  1.5 * (1 + math.Erf(3/math.Sqrt2)),
		"tanh(sqrt(2 / pi) * (x + x^3))":  math.Tanh(math.Sqrt(2/math.Pi) * 30),
		"exp(log(x)) + sin(0) + cos(0)":   4,
		"x":                               3,
		"  ( ( x ) )  ":                   3,
		"1 + 2 * 3 ^ 2 - 4 / 2 * (1 - 3)": 23,
	} {
		f, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := f.Compute(func(name string) float64 { return values[name] }); math.Abs(got-want) > 1e-12*math.Abs(want) {
			t.Errorf("%s is %v, want %v", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"":          "found the end at byte 1, needed a number, an input, a function or a parenthesis",
		"1 +":       "found the end at byte 4, needed a number, an input, a function or a parenthesis",
		"(1":        "found the end at byte 3, needed a closing parenthesis",
		"1 2":       `found "2" at byte 3, needed an operator or the end`,
		"max(1)":    "found 1 arguments of max at byte 1, needed 2",
		"abs(1, 2)": "found 2 arguments of abs at byte 1, needed 1",
		"1.2.3":     `found "1.2.3" at byte 1, needed a number`,
		"x $ y":     `found "$" at byte 3, needed an operator or the end`,
		"gamma(2)": "found the function gamma at byte 1, needed one of abs, cos, erf, exp, log, max, min, " +
			"sin, sqrt, tanh",
		strings.Repeat("(", 1000): "found more than 50 levels, needed fewer",
	} {
		must.FailExactly(t, must.Error(Parse(text)), want)
	}
}
