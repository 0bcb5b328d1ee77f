package text

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// A preTokenizer makes what splits pieces of a text, one after the other, and hands the parts on: a list of them
// would be several times as large as a text of short words. Empty parts are left out.
type preTokenizer interface {
	into(b *budget, part func(piece) error) func(piece) error
}

// preTokenizers run one after the other.
type preTokenizers []preTokenizer

func (ps preTokenizers) into(b *budget, part func(piece) error) func(piece) error {
	for i := len(ps) - 1; i >= 0; i-- {
		part = ps[i].into(b, part)
	}
	return part
}

// behavior says what becomes of a delimiter.
type behavior string

const (
	removed            behavior = "Removed"
	isolated           behavior = "Isolated"
	mergedWithPrevious behavior = "MergedWithPrevious"
	mergedWithNext     behavior = "MergedWithNext"
	contiguous         behavior = "Contiguous"
)

// splitter splits at the matches of a pattern.
type splitter struct {
	pattern  pattern
	behavior behavior
	invert   bool // what does not match is the delimiter
}

type span struct {
	start, end int
	delimiter  bool
}

func (t splitter) into(b *budget, part func(piece) error) func(piece) error {
	var p piece
	done := 0 // bytes of p
	put := func(start, end int) error {
		if start == end {
			return nil
		}
		return part(p.from(start, end))
	}
	// Where parts are joined: the last of those that are one so far, where they begin, and how many they are.
	var last span
	start, count := 0, 0
	take := func(s span) error {
		switch t.behavior {
		case removed:
			if s.delimiter {
				return nil
			}
			return put(s.start, s.end)
		case isolated:
			return put(s.start, s.end)
		}
		from, to := start, last.end
		joined := count > 0 && t.joins(last, s, count == 1)
		if last = s; joined {
			count++
			return nil
		}
		start, count = s.start, 1
		return put(from, to)
	}
	match := func(start, end int) error {
		if err := b.cut("pre-tokenizer", 1); err != nil {
			return err
		}
		if done < start {
			if err := take(span{done, start, t.invert}); err != nil {
				return err
			}
		}
		done = end
		return take(span{start, end, !t.invert})
	}
	return func(whole piece) error {
		p, done, last, start, count = whole, 0, span{}, 0, 0
		err := t.pattern.each(p.s, b, match)
		if err == nil && done < len(p.s) {
			err = take(span{done, len(p.s), t.invert})
		}
		if err != nil {
			return err
		}
		return put(start, last.end)
	}
}

// joins reports whether b stays with a, which is alone in its part if single.
func (t splitter) joins(a, b span, single bool) bool {
	switch t.behavior {
	case contiguous:
		return a.delimiter == b.delimiter
	case mergedWithPrevious:
		return b.delimiter && !a.delimiter && single
	default: // mergedWithNext
		return a.delimiter && !b.delimiter && single
	}
}

// byteLevel puts a space before a text that has none and splits it into words;
// the bytes of the words become printable runes.
type byteLevel struct {
	prefixSpace bool
	words       bool
	keepBytes   bool // the model's word cache maps the bytes: this runs last
}

func (t byteLevel) into(b *budget, part func(piece) error) func(piece) error {
	return func(p piece) error { return t.split(p, b, part) }
}

func (t byteLevel) split(p piece, b *budget, next func(piece) error) error {
	if t.prefixSpace && !strings.HasPrefix(p.s, " ") {
		p = piece{s: " " + p.s, id: -1}.tracing(p.trace().before(1))
	}
	put := func(start, end int) error {
		part := p.from(start, end)
		if !t.keepBytes {
			t := trace{fresh: int(part.fresh)}
			if t.fresh > 0 {
				t.fresh = len(mapBytes(p.s[start : start+t.fresh]))
			}
			for i, at := range part.trace().at {
				t.at = append(t.at, slices.Repeat([]place{at}, utf8.RuneLen(byteRunes[part.s[i]]))...)
			}
			part = piece{s: mapBytes(part.s), id: -1}.tracing(t)
			if err := b.grow("ByteLevel", end-start, len(part.s)); err != nil {
				return err
			}
		}
		if err := b.cut("ByteLevel", 1); err != nil {
			return err
		}
		return next(part)
	}
	if !t.words {
		return put(0, len(p.s))
	}
	return gpt2Words{}.each(p.s, b, put)
}

// metaspace turns spaces into a visible rune and splits before each.
type metaspace struct {
	replacement string // one rune
	scheme      string // "always", "first" or "never": where one is put at the start
	splits      bool
}

func (t metaspace) into(b *budget, part func(piece) error) func(piece) error {
	return func(p piece) error { return t.split(p, b, part) }
}

func (t metaspace) split(p piece, b *budget, part func(piece) error) error {
	before := len(p.s)
	if strings.Contains(p.s, " ") {
		to := p.trace()
		to.fresh += strings.Count(p.s[:to.fresh], " ") * (len(t.replacement) - 1)
		at := to.at
		to.at = nil
		for i := range at {
			n := 1
			if p.s[i] == ' ' {
				n = len(t.replacement)
			}
			to.at = append(to.at, slices.Repeat(at[i:i+1], n)...)
		}
		p = piece{s: strings.ReplaceAll(p.s, " ", t.replacement), id: -1}.tracing(to)
	}
	if (t.scheme == "always" || t.scheme == "first" && p.fresh > 0) && !strings.HasPrefix(p.s, t.replacement) {
		p = piece{s: t.replacement + p.s, id: -1}.tracing(p.trace().before(len(t.replacement)))
	}
	if err := b.grow("Metaspace", before, len(p.s)); err != nil {
		return err
	}
	if !t.splits {
		return part(p)
	}
	start := 0
	for start < len(p.s) {
		end := len(p.s)
		// The next one after the first rune of this part.
		if i := strings.Index(p.s[start+1:], t.replacement); i >= 0 {
			end = start + 1 + i
		}
		if err := part(p.from(start, end)); err != nil {
			return err
		}
		start = end
	}
	return nil
}

// fixedLength cuts into parts of a number of runes.
type fixedLength int

func (t fixedLength) into(_ *budget, part func(piece) error) func(piece) error {
	return func(p piece) error { return t.split(p, part) }
}

func (t fixedLength) split(p piece, part func(piece) error) error {
	start, runes := 0, 0
	for i := range p.s {
		if runes == int(t) {
			if err := part(p.from(start, i)); err != nil {
				return err
			}
			start, runes = i, 0
		}
		runes++
	}
	if start < len(p.s) {
		return part(p.from(start, len(p.s)))
	}
	return nil
}

// unicodeScripts cuts where the script changes. A rune of none stays with what is before it, and is lost where nothing
// is.
type unicodeScripts struct{}

func (unicodeScripts) into(b *budget, part func(piece) error) func(piece) error {
	table := unicodeTable()
	return func(p piece) error {
		start, last := 0, 0
		for i, r := range p.s {
			script := table.script(r)
			if script == 0 || script == last {
				continue
			}
			if last > 0 {
				if err := b.cut("UnicodeScripts", 1); err != nil {
					return err
				}
				if err := part(p.from(start, i)); err != nil {
					return err
				}
			}
			start, last = i, script
		}
		if last == 0 {
			return nil
		}
		return part(p.from(start, len(p.s)))
	}
}
