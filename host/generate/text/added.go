package text

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// addedToken is one entry of added_tokens: a token found in the text itself,
// before the model sees it.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // only where no word character touches it
	LStrip     bool   `json:"lstrip"`      // takes the whitespace on its left
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"` // looked for in the normalised text
	Special    bool   `json:"special"`
}

// piece is a part of the text on its way: text still, or the id of an added token.
// There may be one for each byte of a text, so that it is small.
type piece struct {
	s     string
	id    int32 // -1: text
	fresh int32
	at    *[]place
}

// trace is where the piece stems from.
func (p piece) trace() trace {
	t := trace{fresh: int(p.fresh)}
	if p.at != nil {
		t.at = *p.at
	}
	return t
}

// tracing is the piece with another trace.
func (p piece) tracing(t trace) piece {
	p.fresh, p.at = int32(t.fresh), nil
	if t.at != nil {
		at := t.at
		p.at = &at
	}
	return p
}

// trace is where a text stems from: fresh is the number of its leading bytes that stem from the very first character
// of the input; 0 when the text starts later.
type trace struct {
	fresh int
	at    []place // of each byte, the bytes of the input; nil where nobody asks
}

// place is a part of a text, in bytes or characters.
type place struct{ start, end int }

// from is the trace of the bytes a to b.
func (t trace) from(a, b int) trace {
	part := trace{fresh: min(max(t.fresh-a, 0), b-a)}
	if t.at != nil {
		part.at = t.at[a:b]
	}
	return part
}

// before is the trace of a text with n bytes put before it, which stem from where its first character does.
func (t trace) before(n int) trace {
	if t.fresh > 0 {
		t.fresh += n
	}
	if len(t.at) > 0 {
		t.at = slices.Concat(slices.Repeat(t.at[:1], n), t.at)
	}
	return t
}

// whole is what the text stems from.
func (t trace) whole() place {
	if len(t.at) == 0 {
		return place{}
	}
	return place{t.at[0].start, t.at[len(t.at)-1].end}
}

// from returns the sub-piece s[a:b] of text p.
func (p piece) from(a, b int) piece {
	return piece{s: p.s[a:b], id: -1}.tracing(p.trace().from(a, b))
}

// addedSet finds a set of added tokens, leftmost and longest first.
type addedSet struct {
	tokens []addedToken
	trie   *trie
	starts [256]bool
}

// newAddedSet takes tokens and the form in which each is looked for; of equal forms the first is found.
func newAddedSet(tokens []addedToken, forms []string) *addedSet {
	if len(tokens) == 0 {
		return nil
	}
	index := make([]int32, len(tokens))
	first := map[string]int32{}
	for i, form := range forms {
		if _, ok := first[form]; !ok {
			first[form] = int32(i)
		}
		index[i] = first[form]
	}
	set := &addedSet{tokens: tokens, trie: newTrie(forms, index)}
	for b := range set.starts {
		set.starts[b] = set.trie.root[b] != 0
	}
	return set
}

// cut appends the pieces of p to out: what lies between added tokens, and those.
func (a *addedSet) cut(p piece, out []piece) []piece {
	if p.s == "" {
		return out
	}
	if a == nil {
		return append(out, p)
	}
	s, done, spaces := p.s, 0, 0
	for at := 0; at < len(s); {
		if !a.starts[s[at]] {
			at++
			continue
		}
		found, length := a.trie.longest(s[at:])
		if length == 0 {
			at++
			continue
		}
		start, stop := at, at+length
		at = stop
		t := &a.tokens[found]
		if t.SingleWord && (wordBefore(s[:start]) || wordAfter(s[stop:])) {
			continue
		}
		if t.LStrip { // but for what the token before took
			start = done + len(strings.TrimRightFunc(s[done:max(done, start)], isSpace))
		}
		if t.RStrip {
			if stop >= spaces { // each run of whitespace is read once
				spaces = len(s) - len(strings.TrimLeftFunc(s[stop:], isSpace))
			}
			stop = spaces
		}
		if done < start {
			out = append(out, p.from(done, start))
		}
		if start < stop {
			out = append(out, piece{s: s[start:stop], id: t.ID}.tracing(p.trace().from(start, stop)))
			done = stop
		}
	}
	if done < len(s) {
		out = append(out, p.from(done, len(s)))
	}
	return out
}

func wordBefore(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && isClass(r, word)
}

func wordAfter(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && isClass(r, word)
}
