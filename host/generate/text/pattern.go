package text

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"

	"github.com/opgraft/graft/host/base/threads"
)

// A pattern finds its matches in a text, from left to right.
type pattern interface {
	each(s string, b *budget, match func(start, end int) error) error
}

// newPattern takes a regular expression in the syntax of Oniguruma. The
// expressions that byte-level models share are matched by code of their own:
// with the exact classes of class.go, and fast.
func newPattern(expression string) (pattern, error) {
	if p, ok := knownPatterns[expression]; ok {
		return p, nil
	}
	translated, err := fromOniguruma(expression)
	if err != nil {
		return nil, fmt.Errorf("regular expression %q: %w", expression, err)
	}
	re, err := regexp2.Compile(translated, regexp2.None)
	if err != nil {
		return nil, fmt.Errorf("regular expression %q: %w; needed one that .NET's syntax knows too", expression, err)
	}
	return regexPattern{re, expression}, nil
}

type regexPattern struct {
	re         *regexp2.Regexp
	expression string
}

func (p regexPattern) each(s string, b *budget, match func(start, end int) error) error {
	if s == "" { // in which the reference looks for none
		return nil
	}
	search := newTimedSearch(p.re, b)
	defer search.end()
	m, err := search.next(func(re *regexp2.Regexp) (*regexp2.Match, error) { return re.FindStringMatch(s) })
	runes, bytes := 0, 0 // how far rune offsets have been turned into byte offsets
	forward := func(to int) int {
		for runes < to {
			_, n := utf8.DecodeRuneInString(s[bytes:])
			bytes += n
			runes++
		}
		return bytes
	}
	done := -1 // the end of the match before: an empty match there is none
	for m != nil && err == nil {
		start := forward(m.RuneIndex)
		end := forward(m.RuneIndex + m.RuneLength)
		if end > done {
			if err := match(start, end); err != nil {
				return err
			}
		}
		last := m
		done = end
		m, err = search.next(func(re *regexp2.Regexp) (*regexp2.Match, error) { return re.FindNextMatch(last) })
	}
	switch {
	case errors.Is(err, regexp2.ErrBacktrackingStackLimit):
		return fmt.Errorf("regular expression %q on %d bytes of text: %w", p.expression, len(s), err)
	case err != nil: // its text is the whole input
		return b.overtime(p.expression)
	}
	return nil
}

// timedSearch looks for the matches of a regular expression for as long as its text's budget lasts. regexp2 can stop
// when time has passed, which may be time in which the thread did not run. So the budget is a time first, which costs
// nothing to count, and when that is over the same much of processor time.
type timedSearch struct {
	re      regexp2.Regexp // a copy that shares all but the timeout
	budget  *budget
	counts  bool          // processor time, on a thread of its own
	counted time.Duration // the thread's clock when it was counted last
}

func newTimedSearch(re *regexp2.Regexp, b *budget) *timedSearch {
	t := &timedSearch{re: *re, budget: b}
	if b.look.IsZero() {
		b.look = time.Now().Add(b.regex)
	}
	if b.counts {
		t.count()
	}
	return t
}

// count takes the processor time since it was counted last from the budget.
func (t *timedSearch) count() {
	if !t.counts {
		runtime.LockOSThread()
		t.counts, t.budget.counts, t.counted = true, true, processorTime()
	}
	now := processorTime()
	t.budget.regex -= now - t.counted
	t.counted = now
}

func (t *timedSearch) end() {
	if t.counts {
		t.count()
		runtime.UnlockOSThread()
	}
}

// next is one match, or the error of regexp2, or errOvertime when the budget is used up.
func (t *timedSearch) next(find func(*regexp2.Regexp) (*regexp2.Match, error)) (*regexp2.Match, error) {
	for {
		t.re.MatchTimeout = max(time.Until(t.budget.look), shortestTimeout)
		m, err := find(&t.re)
		if errors.Is(err, regexp2.ErrBacktrackingStackLimit) || err == nil && time.Now().Before(t.budget.look) {
			return m, err
		}
		if t.count(); t.budget.regex <= 0 {
			return nil, errOvertime
		}
		// What ran too long for its time alone is begun again with more.
		t.budget.look = time.Now().Add(max(2*t.re.MatchTimeout, t.budget.regex))
		if err == nil {
			return m, nil
		}
	}
}

// shortestTimeout is above the resolution of regexp2's clock.
const shortestTimeout = 200 * time.Millisecond

var errOvertime = errors.New("the budget for regular expressions is used up")

// processorTime is how long the calling thread has run; a test has its own.
var processorTime = threads.ProcessorTime

// literal is a text to be found as it is.
type literal string

func (p literal) each(s string, _ *budget, match func(start, end int) error) error {
	if p == "" {
		return nil
	}
	for at := 0; ; {
		i := strings.Index(s[at:], string(p))
		if i < 0 {
			return nil
		}
		if err := match(at+i, at+i+len(p)); err != nil {
			return err
		}
		at += i + len(p)
	}
}

// inClass matches every rune of a class.
type inClass class

func (p inClass) each(s string, _ *budget, match func(start, end int) error) error {
	table := unicodeTable()
	for i, r := range s {
		if table.of(r)&class(p) != 0 {
			if err := match(i, i+utf8.RuneLen(r)); err != nil {
				return err
			}
		}
	}
	return nil
}

// wordRuns is \w+|[^\w\s]+, the expression of the Whitespace pre-tokenizer.
type wordRuns struct{}

func (wordRuns) each(s string, _ *budget, match func(start, end int) error) error {
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
				if err := match(start, i); err != nil {
					return err
				}
			}
			kind, start = now, i
		}
	}
	if kind != none {
		return match(start, len(s))
	}
	return nil
}
