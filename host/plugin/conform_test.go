package plugin

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
)

func TestRunCase(t *testing.T) {
	parse := func(t *testing.T, text string) *Case {
		t.Helper()
		m, err := ParseManifest("p", []byte(toyManifest+"cases:\n  - name: c\n    operator: Scale\n    "+text+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		return &m.Cases[0]
	}
	const exact = "\n    tolerance: {absolute: 0}"
	p := mustOpen(t)
	for _, test := range []struct{ name, text, want string }{
		{"formula", "inputs: {x: {shape: [4, 9], seed: 3, min: -5, max: 5}}\n    expect: {formula: {y: x + x}}" + exact, ""},
		{"infinities", "inputs: {x: {shape: [2], values: [.inf, -.inf]}}\n    expect: {values: {y: [.inf, -.inf]}}" + exact, ""},
		{"scalar", "inputs: {x: {shape: [], values: [4]}}\n    expect: {formula: {y: 2 * x}}" + exact, ""},
		{"infinite where finite is expected", "inputs: {x: {shape: [1], values: [.inf]}}\n    expect: {values: {y: [1]}}" + exact, "output y[0] is +Inf, expected is 1 within 0 + 0 relative (1 threads)"},
		{"outside the tolerance", "inputs: {x: {shape: [1], values: [1]}}\n    expect: {values: {y: [2.1]}}\n    tolerance: {absolute: 0.01, relative: 0.01}", "output y[0] is 2, expected is 2.1 within 0.01 + 0.01 relative (1 threads)"},
		{"within the tolerance", "inputs: {x: {shape: [1], values: [1]}}\n    expect: {values: {y: [2.1]}}\n    tolerance: {absolute: 0.1, relative: 0.01}", ""},
		{"too few expected", "inputs: {x: {shape: [2], values: [1, 2]}}\n    expect: {values: {y: [2]}}" + exact, "output y has 2 elements (shape [2]), expected are 1 (1 threads)"},
		{"no such input", "inputs: {z: {shape: [1]}}\n    expect: {values: {y: [2]}}" + exact, "the operator has no input z"},
		{"input missing", "inputs: {}\n    expect: {values: {y: [2]}}" + exact, "the operator needs the input x"},
		{"no such output", "inputs: {x: {shape: [1]}}\n    outputs: [z]\n    expect: {values: {z: [2]}}" + exact, "the operator has no output z"},
		{"nothing expected", "inputs: {x: {shape: [1]}}\n    expect: {values: {}}" + exact, "the case says nothing of output y"},
		{"unknown name", "inputs: {x: {shape: [1]}}\n    expect: {formula: {y: x + z}}" + exact, "the formula of y: found the name z, needed an input of the case"},
		{"no query", "inputs: {x: {shape: [1]}}\n    expect: {reference: attention}" + exact, "the reference: found no input query, needed it"},
		{"refused attribute", "attributes: {on: 1}\n    inputs: {x: {shape: [1]}}\n    expect: {values: {y: [2]}}" + exact,
			"create of Scale failed: the fixture knows only the float attribute by (invalid argument)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			result, err := p.RunCase(context.Background(), parse(t, test.text))
			if err != nil || result.Name != "c" || result.Problem != test.want {
				t.Errorf("problem %q, %v; want %q", result.Problem, err, test.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.RunCase(ctx, parse(t, "inputs: {x: {shape: [1]}}\n    expect: {formula: {y: 2 * x}}"+exact)); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context: %v", err)
	}
}

// TestRunCaseMeasures checks that errors within the tolerance are reported.
func TestRunCaseMeasures(t *testing.T) {
	c := &Case{Name: "c", Operator: "Scale", Inputs: []CaseInput{{Name: "x", DType: "float32", Shape: []int64{2}, Values: Floats{1, 2}}},
		Expect: Expect{Values: map[string]Floats{"y": {2.5, 4}}}, Tolerance: Tolerance{Absolute: 1}}
	result, err := mustOpen(t).RunCase(context.Background(), c)
	if err != nil || result.Problem != "" || result.MaxAbsolute != 0.5 || result.MaxRelative != 0.2 {
		t.Errorf("%+v, %v; want 0.5 and 0.2", result, err)
	}
}

func TestSlots(t *testing.T) {
	parameters := []Parameter{{Name: "a"}, {Name: "b", Optional: true}, {Name: "rest", Variadic: true}}
	at, count, err := slots([]string{"rest1", "a", "rest0"}, parameters, "input")
	if err != nil || count != 4 || at[0] != 3 || at[1] != 0 || at[2] != 2 {
		t.Errorf("%v of %d, %v; want [3 0 2] of 4", at, count, err)
	}
	if _, _, err := slots([]string{"rest"}, parameters, "input"); err == nil || !strings.Contains(err.Error(), "the operator has no input rest") {
		t.Errorf("a variadic input without a number: %v", err)
	}
}

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
		f, err := parseFormula(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := f.compute(func(name string) float64 { return values[name] }); math.Abs(got-want) > 1e-12*math.Abs(want) {
			t.Errorf("%s is %v, want %v", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"":                        "found the end at byte 1, needed a number, an input, a function or a parenthesis",
		"1 +":                     "found the end at byte 4, needed a number, an input, a function or a parenthesis",
		"(1":                      "found the end at byte 3, needed a closing parenthesis",
		"1 2":                     `found "2" at byte 3, needed an operator or the end`,
		"max(1)":                  "found 1 arguments of max at byte 1, needed 2",
		"abs(1, 2)":               "found 2 arguments of abs at byte 1, needed 1",
		"1.2.3":                   `found "1.2.3" at byte 1, needed a number`,
		"x $ y":                   `found "$" at byte 3, needed an operator or the end`,
		"gamma(2)":                "found the function gamma at byte 1, needed one of abs, cos, erf, exp, log, max, min, sin, sqrt, tanh",
		strings.Repeat("(", 1000): "found more than 50 levels, needed fewer",
	} {
		if _, err := parseFormula(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", clip(text), err, want)
		}
	}
}

func TestHalves(t *testing.T) {
	for bits := range 1 << 16 {
		if v := halfToFloat(uint16(bits)); math.IsNaN(v) {
			if back := floatToHalf(v); back&0x7c00 != 0x7c00 || back&0x3ff == 0 {
				t.Fatalf("NaN %#x becomes %#x", bits, back)
			}
		} else if back := floatToHalf(v); back != uint16(bits) {
			t.Fatalf("half %#x is %v, back it is %#x", bits, v, back)
		}
		if v := bfloatToFloat(uint16(bits)); math.IsNaN(v) {
			if back := floatToBFloat(v); back&0x7f80 != 0x7f80 || back&0x7f == 0 {
				t.Fatalf("NaN %#x becomes %#x", bits, back)
			}
		} else if back := floatToBFloat(v); back != uint16(bits) {
			t.Fatalf("bfloat16 %#x is %v, back it is %#x", bits, v, back)
		}
	}
	for _, test := range []struct {
		value        float64
		half, bfloat uint16
	}{
		{1 + 1.0/2048, 0x3c00, 0x3f80},    // a tie in half, to even
		{1 + 3.0/2048, 0x3c02, 0x3f80},    // a tie, to even upwards
		{1 + 1.0/256, 0x3c04, 0x3f80},     // a tie in bfloat16
		{1 + 3.0/256, 0x3c0c, 0x3f82},     // a tie, to even upwards
		{65519, 0x7bff, 0x4780},           // the largest half
		{65520, 0x7c00, 0x4780},           // beyond it
		{math.Ldexp(1, -25), 0, 0x3300},   // half of the smallest half, to even
		{math.Ldexp(1.5, -25), 1, 0x3340}, // above that
		{2047.0 / 2048, 0x3bff, 0x3f80},   // below 1
		{math.Ldexp(-1, -24), 0x8001, 0xb380},
	} {
		if half, bfloat := floatToHalf(test.value), floatToBFloat(test.value); half != test.half || bfloat != test.bfloat {
			t.Errorf("%v is %#x and %#x, want %#x and %#x", test.value, half, bfloat, test.half, test.bfloat)
		}
	}
}

func TestCaseInputs(t *testing.T) {
	for _, d := range dtypes {
		in := CaseInput{Name: "x", DType: string(d.name), Shape: []int64{1000}, Seed: 5, Min: 0, Max: 3}
		x, err := in.tensor()
		if err != nil {
			t.Fatal(err)
		}
		again, _ := in.tensor()
		low, high := math.Inf(1), math.Inf(-1)
		for i, v := range x.floats() {
			low, high = min(low, v), max(high, v)
			if again.floats()[i] != v {
				t.Fatalf("%s: a second draw differs", d.name)
			}
		}
		wantHigh := 2.9
		if d.name == Bool {
			wantHigh = 1
		}
		if low < 0 || low > 0.1 || high < wantHigh || high > 3 {
			t.Errorf("%s: values from %v to %v", d.name, low, high)
		}
	}
}
