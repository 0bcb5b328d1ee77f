package text

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// A normalizer rewrites a text, and says where the rewritten text stems from.
type normalizer interface {
	normalize(s string, t trace, b *budget) (string, trace, error)
}

type normalizers []normalizer

func (ns normalizers) normalize(s string, t trace, b *budget) (string, trace, error) {
	var err error
	for _, n := range ns {
		if s, t, err = n.normalize(s, t, b); err == nil {
			err = b.work(len(s))
		}
		if err != nil {
			return "", trace{}, err
		}
	}
	return s, t, nil
}

// runeMap rewrites a text a rune at a time. to appends what r becomes and
// reports whether that differs from r.
type runeMap func(out []byte, r rune) (_ []byte, changed bool)

func (m runeMap) normalize(s string, t trace, b *budget) (string, trace, error) {
	var out []byte
	var buffer [32]byte
	changedAt := -1 // s[:changedAt] is copied to out, the rest of the loop appends
	to := trace{fresh: t.fresh}
	for i, r := range s {
		if i == t.fresh && changedAt >= 0 {
			to.fresh = len(out)
		}
		if changedAt < 0 {
			if _, changed := m(buffer[:0], r); !changed {
				continue
			}
			changedAt = i
			out = append(make([]byte, 0, len(s)+16), s[:i]...)
			if t.at != nil {
				to.at = append(make([]place, 0, len(s)+16), t.at[:i]...)
			}
			if i == t.fresh {
				to.fresh = i
			}
		}
		out, _ = m(out, r)
		for t.at != nil && len(to.at) < len(out) {
			to.at = append(to.at, t.at[i])
		}
	}
	if changedAt < 0 {
		return s, t, nil
	}
	if t.fresh >= len(s) {
		to.fresh = len(out)
	}
	return string(out), to, b.grow("normalizer", len(s), len(out))
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

func (n strip) normalize(s string, t trace, _ *budget) (string, trace, error) {
	start, end := 0, len(s)
	if n.left {
		start = len(s) - len(strings.TrimLeftFunc(s, isSpace))
	}
	if n.right {
		end = start + len(strings.TrimRightFunc(s[start:], isSpace))
	}
	return s[start:end], t.from(start, end), nil
}

// prepend puts a text before what is not empty.
type prepend string

func (n prepend) normalize(s string, t trace, b *budget) (string, trace, error) {
	if s == "" {
		return s, trace{}, nil
	}
	if err := b.grow("Prepend", 0, len(n)); err != nil {
		return "", trace{}, err
	}
	return string(n) + s, t.before(len(n)), nil
}

// replace puts content in the place of every match.
type replace struct {
	pattern pattern
	content string
}

func (n replace) normalize(s string, t trace, b *budget) (string, trace, error) {
	var out []byte
	done, to := 0, trace{fresh: t.fresh}
	err := n.pattern.each(s, b, func(start, end int) error {
		if err := b.grow("Replace", end-start, len(n.content)); err != nil {
			return err
		}
		out = append(out, s[done:start]...)
		out = append(out, n.content...)
		// What is put in stems from where the last byte it replaces does.
		if t.at != nil {
			to.at = append(to.at, t.at[done:start]...)
			to.at = append(to.at, slices.Repeat([]place{t.at[max(end-1, 0)]}, len(n.content))...)
		}
		if end <= t.fresh {
			to.fresh += len(n.content) - (end - start)
		} else if start < t.fresh {
			to.fresh -= t.fresh - start
		}
		done = end
		return nil
	})
	if err != nil {
		return "", trace{}, err
	}
	if done == 0 && len(out) == 0 {
		return s, t, nil
	}
	out = append(out, s[done:]...)
	if t.at != nil {
		to.at = append(to.at, t.at[done:]...)
	}
	to.fresh = min(to.fresh, len(out))
	return string(out), to, nil
}
