package conformance

import (
	"context"
	"testing"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/internal/must"
)

func TestRunCaseOfFold(t *testing.T) {
	p := mustOpen(t)
	const tolerance = "\n    tolerance: {absolute: 0}"
	for _, test := range []struct{ name, text, want string }{
		{"values", "fold: {constants: {a: {shape: [2], values: [1, 0.1]}}}\n    expect: {values: {a: [2, 0.2], sum: [1.1]}}" +
			tolerance, ""},
		{"random", "fold: {constants: {a: {shape: [3], seed: 4, min: 2, max: 2}}}\n    expect: {values: {a: [4, 4, 4], " +
			"sum: [6]}}" + tolerance, ""},
		{"a wrong value", "fold: {constants: {a: {shape: [1], values: [1]}}}\n    expect: {values: {a: [3], sum: [1]}}" +
			tolerance,
			"output a[0] is 2, expected is 3 within 0 + 0 relative"},
		{"another count", "fold: {constants: {a: {shape: [1], values: [1]}}}\n    expect: {values: {a: [2, 2], sum: [1]}}" +
			tolerance,
			"output a has 1 elements (shape [1]), expected are 2"},
		{"a constant more than expected",
			"fold: {constants: {a: {shape: [1], values: [1]}}}\n    expect: {values: {a: [2]}}" + tolerance,
			"it emitted sum, of which the case says nothing"},
		{"a constant less", "fold: {constants: {}}\n    expect: {values: {sum: [0], b: [1]}}" + tolerance, "it emitted no b"},
		{"refused", "fold: {constants: {a: {shape: [1], dtype: int64, values: [1]}}}\n    expect: {refused: folds only " +
			"float vectors}", ""},
		{"refused with another text", "fold: {constants: {a: {shape: [1, 1], values: [1]}}}\n    expect: {refused: singular}",
			`it refused with "fold of Scale failed: the fixture folds only float vectors (refused)", expected is "singular" in it`},
		{"refused and should not be",
			"fold: {constants: {a: {shape: [1, 1], values: [1]}}}\n    expect: {values: {a: [2]}}" + tolerance,
			"fold of Scale failed: the fixture folds only float vectors (refused)"},
		{"folded and should not be", "fold: {constants: {a: {shape: [1], values: [1]}}}\n    expect: {refused: singular}",
			"it folded the constants, expected is that it refuses them: singular"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := must.Value(manifest.Parse("p",
				[]byte(plugintest.Manifest+"cases:\n  - name: c\n    operator: Scale\n    "+test.text+"\n")))(t)
			result, err := Run(context.Background(), p, &m.Cases[0])
			must.Succeed(t, err)
			must.Equal(t, result.Problem, test.want)
		})
	}
}
