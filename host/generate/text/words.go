package text

import "unicode/utf8"

const (
	gpt2Expression  = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	llamaExpression = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwenExpression  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

var knownPatterns = map[string]pattern{
	gpt2Expression:  gpt2Words{},
	llamaExpression: llamaWords{digits: 3},
	qwenExpression:  llamaWords{digits: 1},
}

// scanner reads classes of runes from a text.
type scanner struct {
	s     string
	table *classTable
}

// class returns the class and width of the rune at byte i, or 0 and 0 at the end.
func (t scanner) class(i int) (class, int) {
	if i >= len(t.s) {
		return 0, 0
	}
	if b := t.s[i]; b < utf8.RuneSelf {
		return t.table.pages[0][b], 1
	}
	r, n := utf8.DecodeRuneInString(t.s[i:])
	return t.table.of(r), n
}

// run returns the end of the runes from byte i on that are in a class (or, with
// want false, in none of it).
func (t scanner) run(i int, c class, want bool) int {
	for {
		found, n := t.class(i)
		if n == 0 || (found&c != 0) != want {
			return i
		}
		i += n
	}
}

// spaces returns the end of a word of whitespace that starts at byte i: all of
// it, but before a word the last space is left to that word.
func (t scanner) spaces(i int) int {
	end, last := i, i
	for {
		c, n := t.class(end)
		if n == 0 {
			return end
		}
		if c&space == 0 {
			break
		}
		last = end
		end += n
	}
	if last > i {
		return last
	}
	return end
}

// gpt2Words is gpt2Expression.
type gpt2Words struct{}

func (gpt2Words) each(s string, _ *budget, match func(start, end int) error) error {
	t := scanner{s, unicodeTable()}
	for i := 0; i < len(s); {
		end := i
		if s[i] == '\'' {
			end = i + contraction(s[i:], false)
		}
		if end == i {
			first := i
			if s[i] == ' ' {
				first++
			}
			c, n := t.class(first)
			switch {
			case n > 0 && c&letter != 0:
				end = t.run(first, letter, true)
			case n > 0 && c&number != 0:
				end = t.run(first, number, true)
			case n > 0 && c&space == 0:
				end = t.run(first, space|letter|number, false)
			default:
				end = t.spaces(i)
			}
		}
		if err := match(i, end); err != nil {
			return err
		}
		i = end
	}
	return nil
}

// llamaWords is llamaExpression or qwenExpression: at most digits digits a word.
type llamaWords struct{ digits int }

func (p llamaWords) each(s string, _ *budget, match func(start, end int) error) error {
	t := scanner{s, unicodeTable()}
	for i := 0; i < len(s); {
		end := p.word(t, i)
		if err := match(i, end); err != nil {
			return err
		}
		i = end
	}
	return nil
}

func (p llamaWords) word(t scanner, i int) int {
	s := t.s
	if s[i] == '\'' {
		if n := contraction(s[i:], true); n > 0 {
			return i + n
		}
	}
	c, n := t.class(i)
	if c&letter != 0 {
		return t.run(i, letter, true)
	}
	// One rune that is no letter, no digit and no line end goes with the letters after it.
	if c&number == 0 && s[i] != '\r' && s[i] != '\n' {
		if next, m := t.class(i + n); m > 0 && next&letter != 0 {
			return t.run(i+n, letter, true)
		}
	}
	if c&number != 0 {
		for end, k := i, 0; ; k++ {
			c, n := t.class(end)
			if n == 0 || c&number == 0 || k == p.digits {
				return end
			}
			end += n
		}
	}
	first := i
	if s[i] == ' ' {
		first++
	}
	if c, n := t.class(first); n > 0 && c&(space|letter|number) == 0 {
		end := t.run(first, space|letter|number, false)
		for end < len(s) && (s[end] == '\r' || s[end] == '\n') {
			end++
		}
		return end
	}
	// \s*[\r\n]+ : whitespace up to and with the last line end in it.
	end := t.run(i, space, true)
	for last := end; last > i; last-- {
		if b := s[last-1]; b == '\r' || b == '\n' {
			return last
		}
	}
	return t.spaces(i)
}

// contraction returns the length of 's, 't, 're, 've, 'm, 'll or 'd at the
// start of s, or 0. Regardless of case, s may be the long s as well.
func contraction(s string, anyCase bool) int {
	at := func(i int) byte {
		if i >= len(s) {
			return 0
		}
		b := s[i]
		if anyCase && 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		return b
	}
	switch b := at(1); b {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if at(2) == 'e' {
			return 3
		}
	case 'l':
		if at(2) == 'l' {
			return 3
		}
	case 0xC5: // U+017F
		if anyCase && at(2) == 0xBF {
			return 3
		}
	}
	return 0
}
