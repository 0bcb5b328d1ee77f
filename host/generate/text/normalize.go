package text

import (
	"strings"
	"unicode/utf8"
)

// A normalizer rewrites a text. fresh is how many leading bytes of s stem from
// the first character of the input (see piece); the result says the same of the
// rewritten text.
type normalizer interface {
	normalize(s string, fresh int, b *budget) (string, int, error)
}

type normalizers []normalizer

func (ns normalizers) normalize(s string, fresh int, b *budget) (string, int, error) {
	var err error
	for _, n := range ns {
		if s, fresh, err = n.normalize(s, fresh, b); err != nil {
			return "", 0, err
		}
	}
	return s, fresh, nil
}

// runeMap rewrites a text a rune at a time. to appends what r becomes and
// reports whether that differs from r.
type runeMap func(out []byte, r rune) (_ []byte, changed bool)

func (m runeMap) normalize(s string, fresh int, b *budget) (string, int, error) {
	var out []byte
	var buffer [32]byte
	changedAt := -1 // s[:changedAt] is copied to out, the rest of the loop appends
	newFresh := fresh
	for i, r := range s {
		if i == fresh && changedAt >= 0 {
			newFresh = len(out)
		}
		if changedAt < 0 {
			if _, changed := m(buffer[:0], r); !changed {
				continue
			}
			changedAt = i
			out = append(make([]byte, 0, len(s)+16), s[:i]...)
			if i == fresh {
				newFresh = i
			}
		}
		out, _ = m(out, r)
	}
	if changedAt < 0 {
		return s, fresh, nil
	}
	if fresh >= len(s) {
		newFresh = len(out)
	}
	return string(out), newFresh, b.grow("normalizer", len(s), len(out))
}

func lowercase(out []byte, r rune) ([]byte, bool) {
	if r < utf8.RuneSelf {
		if 'A' <= r && r <= 'Z' {
			return append(out, byte(r)+'a'-'A'), true
		}
		return append(out, byte(r)), false
	}
	to, ok := unicodeTable().lower[r]
	if !ok {
		return utf8.AppendRune(out, r), false
	}
	for _, r := range to {
		out = utf8.AppendRune(out, r)
	}
	return out, true
}

// without drops the runes of a class.
func without(c class) runeMap {
	return func(out []byte, r rune) ([]byte, bool) {
		if isClass(r, c) {
			return out, true
		}
		return utf8.AppendRune(out, r), false
	}
}

// cleanText drops control characters and turns whitespace into spaces.
func cleanText(out []byte, r rune) ([]byte, bool) {
	c := unicodeTable().of(r)
	switch {
	case c&control != 0:
		return out, true
	case c&space != 0 && r != ' ':
		return append(out, ' '), true
	}
	return utf8.AppendRune(out, r), false
}

// isolateHan puts spaces around Chinese characters. The ranges are those of
// BERT's own code, in which the fifth extension is misspelt (2B920).
func isolateHan(out []byte, r rune) ([]byte, bool) {
	switch {
	case r >= 0x4E00 && r <= 0x9FFF, r >= 0x3400 && r <= 0x4DBF, r >= 0x20000 && r <= 0x2A6DF,
		r >= 0x2A700 && r <= 0x2B73F,
		r >= 0x2B740 && r <= 0x2B81F, r >= 0x2B920 && r <= 0x2CEAF, r >= 0xF900 && r <= 0xFAFF, r >= 0x2F800 && r <= 0x2FA1F:
		out = append(out, ' ')
		return append(utf8.AppendRune(out, r), ' '), true
	}
	return utf8.AppendRune(out, r), false
}

// nmt is the cleaning of the NMT normaliser of sentencepiece.
func nmt(out []byte, r rune) ([]byte, bool) {
	switch {
	case r >= 1 && r <= 8, r == 0xB, r >= 0xE && r <= 0x1F, r == 0x7F, r == 0x8F, r == 0x9F:
		return out, true
	case r == 9, r == 0xA, r == 0xC, r == 0xD, r == 0x1680, r >= 0x200B && r <= 0x200F, r == 0x2028, r == 0x2029,
		r == 0x2581, r == 0xFEFF, r == 0xFFFD:
		return append(out, ' '), true
	}
	return utf8.AppendRune(out, r), false
}

func byteLevelRune(out []byte, r rune) ([]byte, bool) {
	var buffer [utf8.UTFMax]byte
	for _, b := range buffer[:utf8.EncodeRune(buffer[:], r)] {
		out = utf8.AppendRune(out, byteRunes[b])
	}
	return out, r <= ' ' || r > '~'
}

// strip removes whitespace at the ends.
type strip struct{ left, right bool }

func (n strip) normalize(s string, fresh int, _ *budget) (string, int, error) {
	if n.left {
		short := strings.TrimLeftFunc(s, isSpace)
		fresh = max(0, fresh-(len(s)-len(short)))
		s = short
	}
	if n.right {
		s = strings.TrimRightFunc(s, isSpace)
	}
	return s, min(fresh, len(s)), nil
}

// prepend puts a text before what is not empty.
type prepend string

func (n prepend) normalize(s string, fresh int, b *budget) (string, int, error) {
	if s == "" {
		return s, 0, nil
	}
	if err := b.grow("Prepend", 0, len(n)); err != nil {
		return "", 0, err
	}
	if fresh > 0 {
		fresh += len(n)
	}
	return string(n) + s, fresh, nil
}

// replace puts content in the place of every match.
type replace struct {
	pattern pattern
	content string
}

func (n replace) normalize(s string, fresh int, b *budget) (string, int, error) {
	var out []byte
	done, newFresh := 0, fresh
	err := n.pattern.each(s, b, func(start, end int) error {
		if err := b.grow("Replace", end-start, len(n.content)); err != nil {
			return err
		}
		out = append(out, s[done:start]...)
		out = append(out, n.content...)
		// What is put in stems from where the last byte it replaces does.
		if end <= fresh {
			newFresh += len(n.content) - (end - start)
		} else if start < fresh {
			newFresh -= fresh - start
		}
		done = end
		return nil
	})
	if err != nil {
		return "", 0, err
	}
	if done == 0 && len(out) == 0 {
		return s, fresh, nil
	}
	out = append(out, s[done:]...)
	return string(out), min(newFresh, len(out)), nil
}
