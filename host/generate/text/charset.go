package text

import (
	"fmt"
	"strings"
	"unicode"
)

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
