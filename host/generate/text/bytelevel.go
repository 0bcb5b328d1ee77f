package text

import "unicode/utf8"

// byteRunes gives every byte a printable rune: itself where it is printable
// Latin-1, the runes from U+0100 on for the others, in order. runeBytes is the
// way back.
var byteRunes, runeBytes = func() (to [256]rune, from map[rune]byte) {
	from = make(map[rune]byte, 256)
	next := rune(256)
	for b := range to {
		switch {
		case b >= '!' && b <= '~', b >= 0xA1 && b <= 0xAC, b >= 0xAE:
			to[b] = rune(b)
		default:
			to[b] = next
			next++
		}
		from[to[b]] = byte(b)
	}
	return to, from
}()

// mapBytes writes every byte of s as its rune.
func mapBytes(s string) string {
	out := make([]byte, 0, 2*len(s))
	for i := range len(s) {
		out = utf8.AppendRune(out, byteRunes[s[i]])
	}
	return string(out)
}

// unmapBytes appends the bytes that the runes of s stand for; if one stands for
// none, s itself.
func unmapBytes(out []byte, s string) []byte {
	start := len(out)
	for _, r := range s {
		b, ok := runeBytes[r]
		if !ok {
			return append(out[:start], s...)
		}
		out = append(out, b)
	}
	return out
}

// lossy appends s, with each ill-formed sequence as one U+FFFD: a sequence is as
// long as it could still have become a rune (Unicode Standard, section 3.9,
// maximal subparts).
func lossy(out, s []byte) []byte {
	for len(s) > 0 {
		if r, n := utf8.DecodeRune(s); r != utf8.RuneError || n > 1 {
			out = append(out, s[:n]...)
			s = s[n:]
			continue
		}
		n := 1
		for n < len(s) && !utf8.FullRune(s[:n]) {
			n++
		}
		// s[:n] is full, or all there is. Full and ill-formed: the last byte does not belong to it.
		if n > 1 && utf8.FullRune(s[:n]) {
			n--
		}
		out = utf8.AppendRune(out, utf8.RuneError)
		s = s[n:]
	}
	return out
}

// complete returns how many leading bytes of s are whole: all but a sequence at
// the end that may yet become a rune.
func complete(s []byte) int {
	for back := 1; back <= 3 && back <= len(s); back++ {
		if b := s[len(s)-back]; utf8.RuneStart(b) {
			if b >= utf8.RuneSelf && !utf8.FullRune(s[len(s)-back:]) {
				return len(s) - back
			}
			break
		}
	}
	return len(s)
}
