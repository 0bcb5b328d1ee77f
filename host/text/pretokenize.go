package text

import "strings"

// A preTokenizer splits each piece of text and appends the parts to out; empty
// parts are left out.
type preTokenizer interface {
	split(p piece, out []piece, b *budget) ([]piece, error)
}

// preTokenizers run one after the other.
type preTokenizers []preTokenizer

func (ps preTokenizers) split(p piece, out []piece, b *budget) ([]piece, error) {
	switch len(ps) {
	case 0:
		return append(out, p), nil
	case 1:
		return ps[0].split(p, out, b)
	}
	parts, err := ps[0].split(p, nil, b)
	if err != nil {
		return nil, err
	}
	for _, part := range parts {
		if out, err = ps[1:].split(part, out, b); err != nil {
			return nil, err
		}
	}
	return out, nil
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

func (t splitter) split(p piece, out []piece, b *budget) ([]piece, error) {
	put := func(start, end int) {
		if start < end {
			out = append(out, p.from(start, end))
		}
	}
	var spans []span // where parts are joined
	take := func(s span) {
		switch t.behavior {
		case removed:
			if !s.delimiter {
				put(s.start, s.end)
			}
		case isolated:
			put(s.start, s.end)
		default:
			spans = append(spans, s)
		}
	}
	done := 0
	err := t.pattern.each(p.s, b, func(start, end int) error {
		if done < start {
			take(span{done, start, t.invert})
		}
		take(span{start, end, !t.invert})
		done = end
		return b.cut("pre-tokenizer", 1)
	})
	if err != nil {
		return nil, err
	}
	if done < len(p.s) {
		take(span{done, len(p.s), t.invert})
	}
	for i := 0; i < len(spans); {
		j := i + 1
		for j < len(spans) && t.joins(spans[j-1], spans[j], i == j-1) {
			j++
		}
		put(spans[i].start, spans[j-1].end)
		i = j
	}
	return out, nil
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

func (t byteLevel) split(p piece, out []piece, b *budget) ([]piece, error) {
	if t.prefixSpace && !strings.HasPrefix(p.s, " ") {
		p.s = " " + p.s
		if p.fresh > 0 {
			p.fresh++
		}
	}
	put := func(start, end int) error {
		part := p.from(start, end)
		if !t.keepBytes {
			part.s = mapBytes(part.s)
			if part.fresh > 0 {
				part.fresh = len(mapBytes(p.s[start : start+part.fresh]))
			}
			if err := b.grow("ByteLevel", end-start, len(part.s)); err != nil {
				return err
			}
		}
		out = append(out, part)
		return b.cut("ByteLevel", 1)
	}
	if !t.words {
		return out, put(0, len(p.s))
	}
	err := gpt2Words{}.each(p.s, b, put)
	return out, err
}

// metaspace turns spaces into a visible rune and splits before each.
type metaspace struct {
	replacement string // one rune
	scheme      string // "always", "first" or "never": where one is put at the start
	splits      bool
}

func (t metaspace) split(p piece, out []piece, b *budget) ([]piece, error) {
	before := len(p.s)
	if strings.Contains(p.s, " ") {
		p.fresh += strings.Count(p.s[:p.fresh], " ") * (len(t.replacement) - 1)
		p.s = strings.ReplaceAll(p.s, " ", t.replacement)
	}
	if (t.scheme == "always" || t.scheme == "first" && p.fresh > 0) && !strings.HasPrefix(p.s, t.replacement) {
		p.s = t.replacement + p.s
		if p.fresh > 0 {
			p.fresh += len(t.replacement)
		}
	}
	if err := b.grow("Metaspace", before, len(p.s)); err != nil {
		return nil, err
	}
	if !t.splits {
		return append(out, p), nil
	}
	start := 0
	for start < len(p.s) {
		end := len(p.s)
		// The next one after the first rune of this part.
		if i := strings.Index(p.s[start+1:], t.replacement); i >= 0 {
			end = start + 1 + i
		}
		out = append(out, p.from(start, end))
		start = end
	}
	return out, nil
}

// fixedLength cuts into parts of a number of runes.
type fixedLength int

func (t fixedLength) split(p piece, out []piece, b *budget) ([]piece, error) {
	start, runes := 0, 0
	for i := range p.s {
		if runes == int(t) {
			out = append(out, p.from(start, i))
			start, runes = i, 0
		}
		runes++
	}
	if start < len(p.s) {
		out = append(out, p.from(start, len(p.s)))
	}
	return out, nil
}
