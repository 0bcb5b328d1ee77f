package text

import (
	"strings"
	"unicode/utf8"
)

// wordPiece takes the longest token that a word starts with, then the longest
// continuation, and so on; a word that cannot be cut so is unknown as a whole
// (Devlin et al., 2019).
type wordPiece struct {
	vocabulary
	unknown string
	prefix  string
	longest int // in characters; a longer word is unknown
	trie    *trie
	next    *trie // tokens that start with the prefix, without it
}

func newWordPiece(v vocabulary, unknown, prefix string, longest int) *wordPiece {
	m := &wordPiece{vocabulary: v, unknown: unknown, prefix: prefix, longest: longest}
	var whole, rest []string
	var wholeIDs, restIDs []int32
	for token, id := range v.ids {
		whole, wholeIDs = append(whole, token), append(wholeIDs, id)
		if strings.HasPrefix(token, prefix) {
			rest, restIDs = append(rest, token[len(prefix):]), append(restIDs, id)
		}
	}
	m.trie, m.next = newTrie(whole, wholeIDs), newTrie(rest, restIDs)
	return m
}

func (m *wordPiece) tokenize(word string, out []int32, places *[]place, b *budget) ([]int32, error) {
	start, first := len(out), 0
	if places != nil {
		first = len(*places)
	}
	if utf8.RuneCountInString(word) <= m.longest {
		t := m.trie
		rest := word
		for rest != "" {
			id, n := t.longest(rest)
			if n == 0 {
				break
			}
			out = append(out, id)
			put(places, len(word)-len(rest), len(word)-len(rest)+n)
			rest = rest[n:]
			t = m.next
		}
		if rest == "" {
			return out, nil
		}
	}
	id, ok := m.ids[m.unknown]
	if !ok {
		return nil, unknownMissing(m.unknown, word)
	}
	if places != nil {
		*places = append((*places)[:first], place{0, len(word)})
	}
	return append(out[:start], id), nil
}
