package text

import (
	"fmt"
	"strings"
	"unicode"
)

// withCategories rewrites \p{L} and its like, \d and \w so that regexp2, which
// asks the Go release's tables, sees the characters that Oniguruma's release
// knows: newer ones are added, and \w, which the two define differently, is
// written out.
func withCategories(expression string) string {
	var out strings.Builder
	inSet := false
	for i := 0; i < len(expression); i++ {
		b := expression[i]
		switch {
		case b == '[':
			inSet = true
		case b == ']':
			inSet = false
		}
		if b != '\\' || i+1 == len(expression) {
			out.WriteByte(b)
			continue
		}
		escape, name, negated := category(expression[i:])
		if name == "" {
			escape = expression[i : i+2]
			out.WriteString(escape)
			i++
			continue
		}
		i += len(escape) - 1
		all := unicodeTable().named[name]
		if name == "w" && inSet {
			all = outside(all, numbersOutsideOfSets)
		}
		set := ranges(all)
		if known := unicode.Categories[name]; known != nil { // not \w
			set = `\p{` + name + `}` + ranges(beyond(all, known))
		}
		switch {
		case inSet && negated:
			out.WriteString(ranges(outside([]runeRange{{0, unicode.MaxRune + 1}}, all)))
		case inSet:
			out.WriteString(set)
		case negated:
			out.WriteString("[^" + set + "]")
		default:
			out.WriteString("[" + set + "]")
		}
	}
	return out.String()
}

// category reads \p{X}, \P{X}, \p{^X}, \d, \D, \w or \W at the start of s; the
// name is "" for any other escape, and for a category that is not in the table.
func category(s string) (escape, name string, negated bool) {
	switch s[1] {
	case 'd', 'D':
		return s[:2], "Nd", s[1] == 'D'
	case 'w', 'W':
		return s[:2], "w", s[1] == 'W'
	case 'p', 'P':
		inner, _, ok := strings.Cut(s[2:], "}")
		if !ok || !strings.HasPrefix(inner, "{") {
			return "", "", false
		}
		escape = s[:len(inner)+3]
		name, negated = inner[1:], s[1] == 'P'
		if rest, ok := strings.CutPrefix(name, "^"); ok {
			name, negated = rest, !negated
		}
		if _, ok := unicodeTable().named[name]; ok && name != "w" {
			return escape, name, negated
		}
	}
	return "", "", false
}

// numbersOutsideOfSets are the characters that \w of Oniguruma takes alone and leaves inside of brackets: ² ³ ¹ ¼ ½ ¾.
var numbersOutsideOfSets = []runeRange{{0xb2, 0xb4}, {0xb9, 0xba}, {0xbc, 0xbf}}

// outside returns what of a set is not in another; both are in order.
func outside(set, other []runeRange) (out []runeRange) {
	for _, s := range set {
		for _, o := range other {
			if o.after <= s.first || o.first >= s.after {
				continue
			}
			if o.first > s.first {
				out = append(out, runeRange{s.first, o.first})
			}
			s.first = max(s.first, min(o.after, s.after))
		}
		if s.first < s.after {
			out = append(out, s)
		}
	}
	return out
}

// beyond returns what of a set is not in Go's table.
func beyond(set []runeRange, table *unicode.RangeTable) (out []runeRange) {
	for _, s := range set {
		for r := s.first; r < s.after; r++ {
			if unicode.Is(table, r) {
				continue
			}
			if last := len(out) - 1; last >= 0 && out[last].after == r {
				out[last].after++
			} else {
				out = append(out, runeRange{r, r + 1})
			}
		}
	}
	return out
}

// ranges writes a set as the inside of a bracket expression.
func ranges(set []runeRange) string {
	var out strings.Builder
	put := func(r rune) {
		if r <= 0xFFFF {
			fmt.Fprintf(&out, `\u%04X`, r)
		} else {
			out.WriteRune(r)
		}
	}
	for _, s := range set {
		put(s.first)
		if s.after-s.first > 1 {
			out.WriteByte('-')
			put(s.after - 1)
		}
	}
	return out.String()
}
