package folder

import (
	"math/rand/v2"
	"testing"
	"unicode"

	"github.com/opgraft/graft/internal/must"
	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// TestLower compares with a library that knows every language: all characters alone and beside a sigma, and words of
// many sigmas.
func TestLower(t *testing.T) {
	want := cases.Lower(language.Und)
	check := func(s string) {
		t.Helper()
		must.Equal(t, lower(s), want.String(s))
	}
	for r := rune(0); r <= unicode.MaxRune && !t.Failed(); r++ {
		if !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z, unicode.Cf) ||
			unicode.In(r, unicode.Han, unicode.Hangul) {
			continue // none, or one of many that have no case
		}
		check(string(r))
		check("ΑΣ" + string(r) + "Α")
		check("Α" + string(r) + "Σ" + string(r))
	}
	// The library takes a modifier letter for cased and Python for ignored, where nothing cased comes before.
	must.Equal(t, lower("ʰΣ"), "ʰσ")
	pieces := []rune("ΣΣΣΑσsİ .'\u0301\u00ad1·Ⓐª")
	for range 100_000 {
		s := make([]rune, rand.IntN(8))
		for i := range s {
			s[i] = pieces[rand.IntN(len(pieces))]
		}
		check(string(s))
		if t.Failed() {
			return
		}
	}
}
