package text

import (
	"strings"
	"unicode/utf8"
)

// A sink takes tokens as they come: the parts of one, its end, and at last the
// end of all. Decoders are sinks that write to the next one; each holds back
// only what a later token can still change.
type sink interface {
	part(s string)
	end()
	finish()
}

// A decoder makes a fresh sink before another.
type decoder func(next sink, b *budget) sink

// joined is the last sink: the text.
type joined struct{ strings.Builder }

func (j *joined) part(s string) { j.WriteString(s) }
func (j *joined) end()          {}
func (j *joined) finish()       {}

// whole collects a token before anything is done with it.
type whole struct {
	next  sink
	token strings.Builder
	index int
	done  func(token string, index int) // sees every token
	last  func()                        // at the end of all, before next.finish
}

func (w *whole) part(s string) { w.token.WriteString(s) }

func (w *whole) end() {
	token := w.token.String()
	w.token.Reset()
	w.done(token, w.index)
	w.index++
}

func (w *whole) finish() {
	if w.last != nil {
		w.last()
	}
	w.next.finish()
}

// each rewrites every token by itself.
func each(rewrite func(token string, index int) string) decoder {
	return func(next sink, _ *budget) sink {
		w := &whole{next: next}
		w.done = func(token string, index int) {
			next.part(rewrite(token, index))
			next.end()
		}
		return w
	}
}

// spaced puts a space between tokens; it stands where a file has no decoder.
func spaced(next sink, b *budget) sink {
	return each(func(token string, index int) string {
		if index > 0 {
			return " " + token
		}
		return token
	})(next, b)
}

// byteLevelDecoder turns runes back into bytes and those into one text.
func byteLevelDecoder(next sink, _ *budget) sink {
	var pending, out []byte
	w := &whole{next: next}
	put := func(n int) {
		out = lossy(out[:0], pending[:n])
		pending = append(pending[:0], pending[n:]...)
		if len(out) > 0 {
			next.part(string(out))
		}
	}
	w.done = func(token string, _ int) {
		pending = unmapBytes(pending, token)
		put(complete(pending))
	}
	w.last = func() {
		put(len(pending))
		next.end()
	}
	return w
}

// byteFallbackDecoder joins a run of <0xHH> tokens into text, or into one
// U+FFFD a token where the run as a whole is not UTF-8.
func byteFallbackDecoder(next sink, _ *budget) sink {
	var run []byte
	w := &whole{next: next}
	flush := func() {
		if utf8.Valid(run) {
			if len(run) > 0 {
				next.part(string(run))
				next.end()
			}
		} else {
			for range run {
				next.part(string(utf8.RuneError))
				next.end()
			}
		}
		run = run[:0]
	}
	w.done = func(token string, _ int) {
		if b, ok := byteToken(token); ok {
			run = append(run, b)
			return
		}
		flush()
		next.part(token)
		next.end()
	}
	w.last = flush
	return w
}

// byteToken reads <0xHH>, of which the reference takes +H for a number too.
func byteToken(token string) (byte, bool) {
	if len(token) != 6 || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	b := 0
	for i, c := range []byte(token[3:5]) {
		switch {
		case c == '+' && i == 0:
		case c >= '0' && c <= '9':
			b = b<<4 | int(c-'0')
		case c >= 'a' && c <= 'f':
			b = b<<4 | int(c-'a'+10)
		case c >= 'A' && c <= 'F':
			b = b<<4 | int(c-'A'+10)
		default:
			return 0, false
		}
	}
	return byte(b), true
}

// fuse makes one token of all.
type fuse struct{ next sink }

func (f fuse) part(s string) { f.next.part(s) }
func (f fuse) end()          {}
func (f fuse) finish() {
	f.next.end()
	f.next.finish()
}

func fuseDecoder(next sink, _ *budget) sink { return fuse{next} }

// stripEnds removes a rune at the ends of every token, at most start and stop times.
type stripEnds struct {
	next        sink
	rune        string
	start, stop int
	cut         int    // of the present token's start
	inside      bool   // the start is over
	held        string // runes that may be the end
}

func stripDecoder(r string, start, stop int) decoder {
	return func(next sink, _ *budget) sink { return &stripEnds{next: next, rune: r, start: start, stop: stop} }
}

func (t *stripEnds) part(s string) {
	if !t.inside {
		for t.cut < t.start && strings.HasPrefix(s, t.rune) {
			s = s[len(t.rune):]
			t.cut++
		}
		if s == "" {
			return
		}
		t.inside = true
	}
	s = t.held + s
	keep := len(s)
	for n := 0; n < t.stop && strings.HasSuffix(s[:keep], t.rune); n++ {
		keep -= len(t.rune)
	}
	t.held = s[keep:]
	if keep > 0 {
		t.next.part(s[:keep])
	}
}

func (t *stripEnds) end() {
	t.cut, t.inside, t.held = 0, false, ""
	t.next.end()
}

func (t *stripEnds) finish() { t.next.finish() }

// metaspaceDecoder turns the visible rune back into a space, or into nothing in
// the first token where the encoder may have put one.
type metaspaceDecoder struct {
	next   sink
	rune   string
	drop   bool // in the first token
	second bool
}

func (m *metaspaceDecoder) part(s string) {
	if m.drop && !m.second {
		s = strings.ReplaceAll(s, m.rune, "")
	} else {
		s = strings.ReplaceAll(s, m.rune, " ")
	}
	m.next.part(s)
}

func (m *metaspaceDecoder) end() {
	m.second = true
	m.next.end()
}

func (m *metaspaceDecoder) finish() { m.next.finish() }

// wordPieceDecoder takes the prefix from continuations and puts a space before
// every other token but the first.
func wordPieceDecoder(prefix string, cleanup bool) decoder {
	return each(func(token string, index int) string {
		if index > 0 {
			if rest, ok := strings.CutPrefix(token, prefix); ok {
				token = rest
			} else {
				token = " " + token
			}
		}
		if cleanup {
			token = wordPieceSpaces.Replace(token)
		}
		return token
	})
}

// bpeDecoder turns the end-of-word suffix into a space, at the very end into nothing.
func bpeDecoder(suffix string) decoder {
	return func(next sink, _ *budget) sink {
		held, any := "", false
		put := func(with string) {
			next.part(strings.ReplaceAll(held, suffix, with))
			next.end()
		}
		w := &whole{next: next}
		w.done = func(token string, _ int) {
			if any {
				put(" ")
			}
			held, any = token, true
		}
		w.last = func() {
			if any {
				put("")
			}
		}
		return w
	}
}

// ctcDecoder takes a token once where it comes several times in a row, and the token between two such rows away.
func ctcDecoder(pad, delimiter string, cleanup bool) decoder {
	return func(next sink, _ *budget) sink {
		last, any := "", false
		w := &whole{next: next}
		w.done = func(token string, _ int) {
			if any && token == last {
				return
			}
			last, any = token, true
			token = strings.ReplaceAll(token, pad, "")
			if cleanup {
				token = strings.ReplaceAll(wordPieceSpaces.Replace(token), delimiter, " ")
			}
			if token != "" {
				next.part(token)
				next.end()
			}
		}
		return w
	}
}

// replaceDecoder replaces the matches in every token, until one cannot be.
func replaceDecoder(r replace) decoder {
	return func(next sink, b *budget) sink {
		return each(func(token string, _ int) string {
			if b.err != nil {
				return ""
			}
			var s string
			s, _, b.err = r.normalize(token, trace{}, b)
			return s
		})(next, b)
	}
}
