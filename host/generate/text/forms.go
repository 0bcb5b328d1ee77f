package text

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// unicodeForm is one of the four normal forms.
//
// Two things keep it from being norm.Form alone: norm puts a joiner into more
// than 30 marks in a row, and it knows newer characters than the release that
// ids are compared with, which leaves those alone.
type unicodeForm norm.Form

func (f unicodeForm) normalize(s string, t trace, b *budget) (string, trace, error) {
	form := norm.Form(f)
	if form.IsNormalString(s) {
		return s, t, nil
	}
	// No form is longer than 11 times the text: what has been made longer already is not made that much longer.
	if len(s) > formFree+formFactor*b.text {
		return "", trace{}, b.exceeded("normalizer",
			fmt.Sprintf("makes a text of %d bytes more than %d times as long before a Unicode form", b.text, formFactor))
	}
	var out string
	to := trace{fresh: t.fresh}
	if t.at != nil || needsCare(s) {
		out, to.at = f.slow(s, t.at)
	} else {
		out = form.String(s)
	}
	if err := b.grow("Unicode form", len(s), len(out)); err != nil {
		return "", trace{}, err
	}
	if t.fresh > 0 {
		head := s[:min(t.fresh, len(s))]
		to.fresh = min(len(form.String(head)), len(out))
	}
	return out, to, nil
}

// needsCare reports a run of marks that norm would cut, or a character that
// norm would change and the compared release does not.
func needsCare(s string) bool {
	table := unicodeTable()
	run := 0
	for i, r := range s {
		if r < 0x300 {
			run = 0
			continue
		}
		if r == 0x11930 { // the second half of the one pair that composes since Unicode 13 only
			return true
		}
		p := norm.NFKD.PropertiesString(s[i:])
		if (p.CCC() != 0 || p.Decomposition() != nil) && table.of(r)&inert != 0 {
			return true
		}
		// A decomposition may hold marks as well: count what it can add.
		if p.CCC() != 0 || p.Decomposition() != nil {
			if run++; run > 8 {
				return true
			}
		} else {
			run = 0
		}
	}
	return false
}

type orderedRune struct {
	r   rune
	ccc uint8
	// How many runes of the text it takes, but for one: of a rune that becomes several, the first takes it. So it moves
	// with a mark that is put in order, and with it where the runes after it stem from.
	more int
}

// slow follows the definition (Unicode Standard, section 3.11): decompose,
// order marks by class, compose.
func (f unicodeForm) slow(s string, at []place) (string, []place) {
	compatible := norm.Form(f) == norm.NFKC || norm.Form(f) == norm.NFKD
	table := unicodeTable()
	var runes []orderedRune
	for i, r := range s {
		if table.of(r)&inert != 0 {
			runes = append(runes, orderedRune{r, 0, 0})
			continue
		}
		p := norm.NFD.PropertiesString(s[i:])
		if compatible {
			p = norm.NFKD.PropertiesString(s[i:])
		}
		whole := p.Decomposition()
		if whole == nil {
			whole = []byte(string(r))
			if r >= 0xAC00 && r <= 0xD7A3 { // Hangul syllables decompose by arithmetic
				whole = norm.NFD.Bytes(whole)
			}
		}
		for more := 0; len(whole) > 0; more = -1 {
			d, n := utf8.DecodeRune(whole)
			runes = append(runes, orderedRune{d, norm.NFD.Properties(whole).CCC(), more})
			whole = whole[n:]
		}
	}
	for a := 0; a < len(runes); {
		b := a
		for b < len(runes) && runes[b].ccc != 0 {
			b++
		}
		slices.SortStableFunc(runes[a:b], func(x, y orderedRune) int { return int(x.ccc) - int(y.ccc) })
		a = b + 1
	}
	if norm.Form(f) == norm.NFC || norm.Form(f) == norm.NFKC {
		runes = compose(runes)
	}
	out := make([]byte, 0, len(s))
	for _, r := range runes {
		out = utf8.AppendRune(out, r.r)
	}
	return string(out), placesOf(runes, s, at)
}

// placesOf is where the bytes of runes stem from that a text s has become.
func placesOf(runes []orderedRune, s string, at []place) (places []place) {
	if at == nil {
		return nil
	}
	done := 0 // bytes of s that are taken
	for _, r := range runes {
		from := at[max(done-1, 0)] // of a rune that takes none
		if r.more >= 0 && done < len(s) {
			from = at[done]
		} else if done == 0 {
			from.end = from.start
		}
		for range r.more + 1 {
			done += firstRune(s[done:])
		}
		places = append(places, slices.Repeat([]place{from}, utf8.RuneLen(r.r))...)
	}
	return places
}

// compose joins a starter with the marks after it that are not blocked.
func compose(runes []orderedRune) []orderedRune {
	out := runes[:0]
	starter := -1
	for _, r := range runes {
		if starter >= 0 {
			blocked := len(out)-1 > starter && out[len(out)-1].ccc >= r.ccc
			if !blocked {
				if c, ok := composite(out[starter].r, r.r); ok {
					out[starter].r = c
					out[starter].more += r.more + 1
					continue
				}
			}
		}
		if r.ccc == 0 {
			starter = len(out)
		}
		out = append(out, r)
	}
	return out
}

// composite returns the primary composite of two runes.
func composite(a, b rune) (rune, bool) {
	var buffer [2 * utf8.UTFMax]byte
	joined := norm.NFC.Append(buffer[:0:0], []byte(string(a)+string(b))...)
	r, n := utf8.DecodeRune(joined)
	// A character that the compared release does not decompose, it does not compose.
	if n != len(joined) || isClass(r, inert) {
		return 0, false
	}
	return r, true
}
