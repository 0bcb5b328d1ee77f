package text

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// A pattern finds its matches in a text, from left to right.
type pattern interface {
	each(s string, match func(start, end int)) error
}

// newPattern takes a regular expression in the syntax of Oniguruma. The
// expressions that byte-level models share are matched by code of their own:
// with the exact classes of class.go, and fast.
func newPattern(expression string) (pattern, error) {
	if p, ok := knownPatterns[expression]; ok {
		return p, nil
	}
	// regexp2 would read these as other sets, without an error.
	for _, own := range []string{"[[:", "&&", "[["} {
		if strings.Contains(expression, own) {
			return nil, fmt.Errorf("regular expression %q: found %s of Oniguruma's own syntax, needed sets of characters, ranges and categories", expression, own)
		}
	}
	// Lines begin and end at ^ and $ in Oniguruma's syntax, without an option.
	re, err := regexp2.Compile(withCategories(expression), regexp2.Multiline)
	if err != nil {
		return nil, fmt.Errorf("regular expression %q: %w; needed one that .NET's syntax knows too", expression, err)
	}
	re.MatchTimeout = matchTimeout
	return regexPattern{re, expression}, nil
}

// matchTimeout bounds backtracking: an expression from a file must not hang the host.
const matchTimeout = 20 * time.Second

type regexPattern struct {
	re         *regexp2.Regexp
	expression string
}

func (p regexPattern) each(s string, match func(start, end int)) error {
	m, err := p.re.FindStringMatch(s)
	runes, bytes := 0, 0 // how far rune offsets have been turned into byte offsets
	forward := func(to int) int {
		for runes < to {
			_, n := utf8.DecodeRuneInString(s[bytes:])
			bytes += n
			runes++
		}
		return bytes
	}
	for m != nil && err == nil {
		start := forward(m.RuneIndex)
		end := forward(m.RuneIndex + m.RuneLength)
		match(start, end)
		m, err = p.re.FindNextMatch(m)
	}
	if err != nil {
		return fmt.Errorf("regular expression %q on %d bytes of text: %w", p.expression, len(s), err)
	}
	return nil
}

// literal is a text to be found as it is.
type literal string

func (p literal) each(s string, match func(start, end int)) error {
	if p == "" {
		return nil
	}
	for at := 0; ; {
		i := strings.Index(s[at:], string(p))
		if i < 0 {
			return nil
		}
		match(at+i, at+i+len(p))
		at += i + len(p)
	}
}

// inClass matches every rune of a class.
type inClass class

func (p inClass) each(s string, match func(start, end int)) error {
	table := unicodeTable()
	for i, r := range s {
		if table.of(r)&class(p) != 0 {
			match(i, i+utf8.RuneLen(r))
		}
	}
	return nil
}

// wordRuns is \w+|[^\w\s]+, the expression of the Whitespace pre-tokenizer.
type wordRuns struct{}

func (wordRuns) each(s string, match func(start, end int)) error {
	table := unicodeTable()
	const none, inWord, inOther = 0, 1, 2
	kind, start := none, 0
	for i, r := range s {
		now := inOther
		switch c := table.of(r); {
		case c&word != 0:
			now = inWord
		case c&space != 0:
			now = none
		}
		if now != kind {
			if kind != none {
				match(start, i)
			}
			kind, start = now, i
		}
	}
	if kind != none {
		match(start, len(s))
	}
	return nil
}
