package manifest

import (
	"testing"

	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/internal/must"
)

func TestManifestOfFoldCases(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"inputs too", "inputs: {x: {shape: [1]}}\n    fold: {constants: {}}\n    expect: {refused: no}",
			"cases[0] has both fold and inputs; a fold has constants alone"},
		{"outputs too", "outputs: [y]\n    fold: {constants: {}}\n    expect: {refused: no}",
			"cases[0] has both fold and outputs; a fold has constants alone"},
		{"no constants", "fold: {}\n    expect: {refused: no}", "cases[0].fold.constants is missing; add it"},
		{"no tolerance", "fold: {constants: {}}\n    expect: {values: {sum: [0]}}", "cases[0].tolerance is missing; add it"},
		{"a type that folds do not see", "fold: {constants: {a: {shape: [1], dtype: float32}}}\n    expect: {refused: no}",
			`cases[0].fold.constants.a.dtype is "float32", needed one of float64, int64`},
		{"a formula", "fold: {constants: {}}\n    expect: {formula: {y: x}}\n    tolerance: {absolute: 0}",
			`unknown field "formula" in cases[0].expect; known fields: values, reference, refused`},
		{"both answers", "fold: {constants: {}}\n    expect: {refused: no, values: {sum: [0]}}",
			"cases[0].expect has 2 of values, reference and refused, needed exactly one"},
		{"an empty refusal", "fold: {constants: {}}\n    expect: {refused: ''}",
			"cases[0].expect.refused is empty; fill it in"},
		{"a refusal of a run", "inputs: {x: {shape: [1]}}\n    expect: {refused: no}\n    tolerance: {absolute: 0}",
			`unknown field "refused" in cases[0].expect; known fields: formula, reference, values`},
	} {
		_, err := Parse("p", []byte(plugintest.Manifest+"cases:\n  - name: c\n    operator: Scale\n    "+test.text+"\n"))
		must.Fail(t, err, test.want)
	}
}
