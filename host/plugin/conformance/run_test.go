package conformance

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/internal/must"
)

func TestRunCase(t *testing.T) {
	parse := func(t *testing.T, text string) *manifest.Case {
		t.Helper()
		m, err := manifest.Parse("p", []byte(plugintest.Manifest+"cases:\n  - name: c\n    operator: Scale\n    "+text+"\n"))
		must.Succeed(t, err)
		return &m.Cases[0]
	}
	const exact = "\n    tolerance: {absolute: 0}"
	p := mustOpen(t)
	for _, test := range []struct{ name, text, want string }{
		{"formula", "inputs: {x: {shape: [4, 9], seed: 3, min: -5, max: 5}}\n    expect: {formula: {y: x + x}}" + exact, ""},
		{"infinities", "inputs: {x: {shape: [2], values: [.inf, -.inf]}}\n    expect: {values: {y: [.inf, -.inf]}}" + exact,
			""},
		{"scalar", "inputs: {x: {shape: [], values: [4]}}\n    expect: {formula: {y: 2 * x}}" + exact, ""},
		{"infinite where finite is expected",
			"inputs: {x: {shape: [1], values: [.inf]}}\n    expect: {values: {y: [1]}}" + exact,
			"output y[0] is +Inf, expected is 1 within 0 + 0 relative (1 threads)"},
		{"outside the tolerance", "inputs: {x: {shape: [1], values: [1]}}\n    expect: {values: {y: [2.1]}}\n    " +
			"tolerance: {absolute: 0.01, relative: 0.01}",
			"output y[0] is 2, expected is 2.1 within 0.01 + 0.01 relative (1 threads)"},
		{"within the tolerance", "inputs: {x: {shape: [1], values: [1]}}\n    expect: {values: {y: [2.1]}}\n    " +
			"tolerance: {absolute: 0.1, relative: 0.01}", ""},
		{"too few expected", "inputs: {x: {shape: [2], values: [1, 2]}}\n    expect: {values: {y: [2]}}" + exact,
			"output y has 2 elements (shape [2]), expected are 1 (1 threads)"},
		{"no such input", "inputs: {z: {shape: [1]}}\n    expect: {values: {y: [2]}}" + exact, "the operator has no input z"},
		{"input missing", "inputs: {}\n    expect: {values: {y: [2]}}" + exact, "the operator needs the input x"},
		{"no such output", "inputs: {x: {shape: [1]}}\n    outputs: [z]\n    expect: {values: {z: [2]}}" + exact,
			"the operator has no output z"},
		{"nothing expected", "inputs: {x: {shape: [1]}}\n    expect: {values: {}}" + exact,
			"the case says nothing of output y"},
		{"unknown name", "inputs: {x: {shape: [1]}}\n    expect: {formula: {y: x + z}}" + exact,
			"the formula of y: found the name z, needed an input of the case"},
		{"no query", "inputs: {x: {shape: [1]}}\n    expect: {reference: attention}" + exact,
			"the reference: found no input query, needed it"},
		{"refused attribute", "attributes: {on: 1}\n    inputs: {x: {shape: [1]}}\n    expect: {values: {y: [2]}}" + exact,
			"create of Scale failed: the fixture knows only the float attribute by (invalid argument)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			result, err := Run(context.Background(), p, parse(t, test.text))
			if err != nil || result.Name != "c" || result.Problem != test.want {
				t.Errorf("problem %q, %v; want %q", result.Problem, err, test.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, p, parse(t, "inputs: {x: {shape: [1]}}\n    expect: {formula: {y: 2 * x}}"+exact)); !errors.Is(
		err, context.Canceled) {
		t.Errorf("a cancelled context: %v", err)
	}
}

// TestRunCaseMeasures checks that errors within the tolerance are reported.
func TestRunCaseMeasures(t *testing.T) {
	c := &manifest.Case{Name: "c", Operator: "Scale",
		Inputs:    []manifest.CaseInput{{Name: "x", DType: "float32", Shape: []int64{2}, Values: manifest.Floats{1, 2}}},
		Expect:    manifest.Expect{Values: map[string]manifest.Floats{"y": {2.5, 4}}},
		Tolerance: manifest.Tolerance{Absolute: 1}}
	result, err := Run(context.Background(), mustOpen(t), c)
	if err != nil || result.Problem != "" || result.MaxAbsolute != 0.5 || result.MaxRelative != 0.2 {
		t.Errorf("%+v, %v; want 0.5 and 0.2", result, err)
	}
}

func TestSlots(t *testing.T) {
	parameters := []signature.Parameter{{Name: "a"}, {Name: "b", Optional: true}, {Name: "rest", Variadic: true}}
	at, count, err := slots([]string{"rest1", "a", "rest0"}, parameters, "input")
	if err != nil || count != 4 || at[0] != 3 || at[1] != 0 || at[2] != 2 {
		t.Errorf("%v of %d, %v; want [3 0 2] of 4", at, count, err)
	}
	if _, _, err := slots([]string{"rest"}, parameters, "input"); err == nil ||
		!strings.Contains(err.Error(), "the operator has no input rest") {
		t.Errorf("a variadic input without a number: %v", err)
	}
}

func TestCaseInputs(t *testing.T) {
	for _, d := range tensor.TypeNames {
		in := manifest.CaseInput{Name: "x", DType: d, Shape: []int64{1000}, Seed: 5, Min: 0, Max: 3}
		x := must.Value(tensorOf(&in))(t)
		again, _ := tensorOf(&in)
		low, high := math.Inf(1), math.Inf(-1)
		for i, v := range x.Floats() {
			low, high = min(low, v), max(high, v)
			if again.Floats()[i] != v {
				t.Fatalf("%s: a second tensor differs", d)
			}
		}
		wantHigh := 2.9
		if d == string(tensor.Bool) {
			wantHigh = 1
		}
		if low < 0 || low > 0.1 || high < wantHigh || high > 3 {
			t.Errorf("%s: values from %v to %v", d, low, high)
		}
	}
}
