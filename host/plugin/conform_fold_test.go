package plugin

import (
	"context"
	"strings"
	"testing"
)

func TestRunCaseOfFold(t *testing.T) {
	p := mustOpen(t)
	const tolerance = "\n    tolerance: {absolute: 0}"
	for _, test := range []struct{ name, text, want string }{
		{"values", "fold: {constants: {a: {shape: [2], values: [1, 0.1]}}}\n    expect: {values: {a: [2, 0.2], sum: [1.1]}}" + tolerance, ""},
		{"drawn", "fold: {constants: {a: {shape: [3], seed: 4, min: 2, max: 2}}}\n    expect: {values: {a: [4, 4, 4], sum: [6]}}" + tolerance, ""},
		{"a wrong value", "fold: {constants: {a: {shape: [1], values: [1]}}}\n    expect: {values: {a: [3], sum: [1]}}" + tolerance,
			"output a[0] is 2, expected is 3 within 0 + 0 relative"},
		{"another count", "fold: {constants: {a: {shape: [1], values: [1]}}}\n    expect: {values: {a: [2, 2], sum: [1]}}" + tolerance,
			"output a has 1 elements (shape [1]), expected are 2"},
		{"a constant more than expected", "fold: {constants: {a: {shape: [1], values: [1]}}}\n    expect: {values: {a: [2]}}" + tolerance,
			"it emitted sum, of which the case says nothing"},
		{"a constant less", "fold: {constants: {}}\n    expect: {values: {sum: [0], b: [1]}}" + tolerance, "it emitted no b"},
		{"refused", "fold: {constants: {a: {shape: [1], dtype: int64, values: [1]}}}\n    expect: {refused: folds only float vectors}", ""},
		{"refused with another text", "fold: {constants: {a: {shape: [1, 1], values: [1]}}}\n    expect: {refused: singular}",
			`it refused with "fold of Scale failed: the fixture folds only float vectors (refused)", expected is "singular" in it`},
		{"refused and should not be", "fold: {constants: {a: {shape: [1, 1], values: [1]}}}\n    expect: {values: {a: [2]}}" + tolerance,
			"fold of Scale failed: the fixture folds only float vectors (refused)"},
		{"folded and should not be", "fold: {constants: {a: {shape: [1], values: [1]}}}\n    expect: {refused: singular}",
			"it folded the constants, expected is that it refuses them: singular"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := ParseManifest("p", []byte(toyManifest+"cases:\n  - name: c\n    operator: Scale\n    "+test.text+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			result, err := p.RunCase(context.Background(), &m.Cases[0])
			if err != nil || result.Problem != test.want {
				t.Errorf("problem %q, %v; want %q", result.Problem, err, test.want)
			}
		})
	}
}

func TestManifestOfFoldCases(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"inputs too", "inputs: {x: {shape: [1]}}\n    fold: {constants: {}}\n    expect: {refused: no}", "cases[0] has both fold and inputs; a fold has constants alone"},
		{"outputs too", "outputs: [y]\n    fold: {constants: {}}\n    expect: {refused: no}", "cases[0] has both fold and outputs; a fold has constants alone"},
		{"no constants", "fold: {}\n    expect: {refused: no}", "cases[0].fold.constants is missing; add it"},
		{"no tolerance", "fold: {constants: {}}\n    expect: {values: {sum: [0]}}", "cases[0].tolerance is missing; add it"},
		{"a type that folds do not see", "fold: {constants: {a: {shape: [1], dtype: float32}}}\n    expect: {refused: no}",
			`cases[0].fold.constants.a.dtype is "float32", needed one of float64, int64`},
		{"a formula", "fold: {constants: {}}\n    expect: {formula: {y: x}}\n    tolerance: {absolute: 0}",
			`unknown field "formula" in cases[0].expect; known fields: values, refused`},
		{"both answers", "fold: {constants: {}}\n    expect: {refused: no, values: {sum: [0]}}", "cases[0].expect has 2 of values and refused, needed exactly one"},
		{"an empty refusal", "fold: {constants: {}}\n    expect: {refused: ''}", "cases[0].expect.refused is empty; fill it in"},
		{"a refusal of a run", "inputs: {x: {shape: [1]}}\n    expect: {refused: no}\n    tolerance: {absolute: 0}",
			`unknown field "refused" in cases[0].expect; known fields: formula, reference, values`},
	} {
		_, err := ParseManifest("p", []byte(toyManifest+"cases:\n  - name: c\n    operator: Scale\n    "+test.text+"\n"))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
}
