package folder

import (
	"strings"
	"unicode"
)

// lower is a text in lower case, as Python's str.lower makes it: each character alone, but for two of Unicode's
// SpecialCasing that hold in every language: İ becomes two characters, and a sigma that ends a word is ς. (A package
// of cases knows these too, and its tables of languages would be in every program that only enables graft.)
func lower(s string) string {
	if !strings.ContainsAny(s, "İΣ") {
		return strings.ToLower(s)
	}
	in := []rune(s)
	var out strings.Builder
	for i, r := range in {
		switch {
		case r == 'İ':
			out.WriteString("i̇")
		case r == 'Σ' && endsWord(in, i):
			out.WriteRune('ς')
		default:
			out.WriteRune(unicode.ToLower(r))
		}
	}
	return out.String()
}

// endsWord is Unicode's Final_Sigma (The Unicode Standard, table 3-17): a cased character comes before, and none
// after; such as are ignored for case may lie between.
func endsWord(in []rune, at int) bool {
	before, after := at-1, at+1
	for before >= 0 && ignoredForCase(in[before]) {
		before--
	}
	for after < len(in) && ignoredForCase(in[after]) {
		after++
	}
	return before >= 0 && cased(in[before]) && (after == len(in) || !cased(in[after]))
}

// cased is Unicode's property Cased.
func cased(r rune) bool {
	return unicode.In(r, unicode.Lu, unicode.Ll, unicode.Lt, unicode.Other_Uppercase, unicode.Other_Lowercase)
}

// ignoredForCase is Unicode's property Case_Ignorable: marks, formats, modifiers, and what may stand inside of a word
// (Word_Break is MidLetter, MidNumLet or Single_Quote).
func ignoredForCase(r rune) bool {
	return strings.ContainsRune("'.:·\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a", r) ||
		unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk)
}
