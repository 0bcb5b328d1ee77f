package text

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestExpressionsEqualOniguruma: texts are split where Oniguruma splits them, by expressions of known models and by
// random ones, or the expression is refused. models/text/expressions.py made the cases.
func TestExpressionsEqualOniguruma(t *testing.T) {
	var golden struct {
		Texts []string
		Cases []struct {
			Expression string
			Parts      [][]string
		}
	}
	must.Succeed(t, json.Unmarshal(unpack(t, "testdata/expressions.json.gz"), &golden))
	equal, refused, different := 0, map[string]int{}, 0
	for _, c := range golden.Cases {
		p, err := newPattern(c.Expression)
		if err != nil {
			_, why, _ := strings.Cut(err.Error(), "found ")
			why, _, _ = strings.Cut(why, " at byte")
			refused[why]++
			continue
		}
		bad := false
		for i, s := range golden.Texts {
			var parts []string
			b := newBudget(len(s))
			err := splitter{p, isolated, false}.into(b, func(p piece) error {
				parts = append(parts, p.s)
				return nil
			})(piece{s: s, id: -1})
			if err != nil || !slices.Equal(parts, c.Parts[i]) {
				if bad = true; different < 10 {
					t.Errorf("%s splits %q into %q (%v), want %q", c.Expression, s, parts, err, c.Parts[i])
				}
				break
			}
		}
		if bad {
			different++
		} else {
			equal++
		}
	}
	t.Logf("of %d expressions %d are equal, %d differ, refused are %v", len(golden.Cases), equal, different, refused)
	if equal < 250 {
		t.Errorf("%d expressions are read, 250 are wanted", equal)
	}
}
