package text

import (
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
// fresh is the number of its leading bytes that stem from the very first
// character of the input; 0 when the piece starts later.
type piece struct {
	s     string
	id    int32 // -1: text
	fresh int
}

// from returns the sub-piece s[a:b] of text p.
func (p piece) from(a, b int) piece {
	return piece{s: p.s[a:b], id: -1, fresh: min(max(p.fresh-a, 0), b-a)}
}

// addedSet finds a set of added tokens, leftmost and longest first.
type addedSet struct {
	tokens []addedToken
	trie   *trie
	starts [256]bool
}

// newAddedSet takes tokens and the form in which each is looked for.
func newAddedSet(tokens []addedToken, forms []string) *addedSet {
	if len(tokens) == 0 {
		return nil
	}
	index := make([]int32, len(tokens))
	for i := range index {
		index[i] = int32(i)
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
		if t.LStrip && done < start {
			start = done + len(strings.TrimRightFunc(s[done:start], isSpace))
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
		out = append(out, piece{id: t.ID})
		done = stop
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
