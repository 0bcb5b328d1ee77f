package main

import (
	"math"
	"testing"
)

// TestWordErrorRate compares with what jiwer 4.0.0 gives.
func TestWordErrorRate(t *testing.T) {
	for _, c := range []struct {
		outputs, references []string
		want                float64
	}{
		{[]string{"The cat sat on the mat, purring."}, []string{"The cat sat on the mat, purring."}, 0.0},
		{[]string{"the cat sat on the mat", "There are 1,234.5 reasons; 12-month plans & more."},
			[]string{"the cat is on the mat", "There are 1,234.5 reasons, and 12-month plans & more!"}, 0.26666666666666666},
		{[]string{"alpha beta gamma delta"}, []string{"one two three four five"}, 1.0},
		{[]string{"", "half a line is here now"}, []string{"something was expected", "half a line is here, now"}, 4. / 9},
		{[]string{"something came", "and one more line of it"}, []string{"", "and one more line of it"}, 0.3333333333333333},
		{[]string{""}, []string{""}, 0.0},
		{[]string{"two words", "one"}, []string{"two words", "one"}, 0.0},
		{[]string{"the the the the the the the", "a a b b a a b b"}, []string{"the cat is on the mat", "a b a b a b a b"},
			9. / 14},
		{[]string{"one two three four five six seven eight nine ten"}, []string{"one two three four"}, 1.5},
	} {
		if got := wordErrorRate(c.outputs, c.references); !(math.Abs(got-c.want) < 1e-12) {
			t.Errorf("%q against %q: %g, jiwer gives %g", c.outputs, c.references, got, c.want)
		}
	}
}
