package text

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// unigram cuts a word into the pieces with the highest sum of log
// probabilities (Kudo, 2018), by Viterbi's algorithm over bytes.
type unigram struct {
	tokens       []string
	scores       []float64
	ids          map[string]int32
	trie         *trie
	unknown      int32 // -1: none
	unknownScore float64
	byteFallback bool
}

// unknownPenalty is what an unknown character costs below the worst piece.
const unknownPenalty = 10

func newUnigram(tokens []string, scores []float64, unknown int32, byteFallback bool) (*unigram, error) {
	if unknown >= int32(len(tokens)) {
		return nil, fmt.Errorf("unk_id: found %d, needed one below the %d tokens of the vocabulary", unknown, len(tokens))
	}
	m := &unigram{tokens: tokens, scores: scores, ids: make(map[string]int32, len(tokens)), unknown: unknown,
		byteFallback: byteFallback}
	lowest := math.Inf(1)
	values := make([]int32, len(tokens))
	for i, token := range tokens {
		m.ids[token] = int32(i)
		values[i] = int32(i)
		lowest = min(lowest, scores[i])
	}
	m.trie = newTrie(tokens, values)
	m.unknownScore = lowest - unknownPenalty
	return m, nil
}

func (m *unigram) id(token string) (int32, bool) {
	id, ok := m.ids[token]
	return id, ok
}

func (m *unigram) token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(m.tokens) {
		return "", false
	}
	return m.tokens[id], true
}

func (m *unigram) size() int { return len(m.tokens) }

// pathNode is the best way to reach a byte: its last piece and where that starts.
type pathNode struct {
	score float64
	start int32 // -1: not reached
	id    int32
}

func (m *unigram) tokenize(word string, out []int32, places *[]place, b *budget) ([]int32, error) {
	var buffer [65]pathNode
	path := append(buffer[:0], make([]pathNode, len(word)+1)...)
	for i := range path {
		path[i].start = -1
	}
	for start := 0; start < len(word); {
		if err := b.work(1); err != nil {
			return nil, err
		}
		here := path[start].score
		_, width := utf8.DecodeRuneInString(word[start:])
		single := false
		node := int32(0)
		for end := start; end < len(word); {
			if node = m.trie.child(node, word[end]); node == 0 {
				break
			}
			end++
			id := m.trie.value[node]
			if id < 0 {
				continue
			}
			if score := m.scores[id] + here; path[end].start < 0 || score > path[end].score {
				path[end] = pathNode{score, int32(start), id}
			}
			single = single || end-start == width
		}
		if !single {
			if m.unknown < 0 {
				return nil, fmt.Errorf("character %q is not in the vocabulary and the model has no unk_id; needed one of the two",
					word[start:start+width])
			}
			end := start + width
			if score := m.unknownScore + here; path[end].start < 0 || score > path[end].score {
				path[end] = pathNode{score, int32(start), m.unknown}
			}
		}
		start += width
	}
	return m.collect(word, path, out, places), nil
}

// collect walks the path back, and turns it round in place to walk it forwards. Neighbouring unknown pieces are one.
func (m *unigram) collect(word string, path []pathNode, out []int32, places *[]place) []int32 {
	next := int32(-1)
	for end := int32(len(word)); end >= 0; {
		end, next, path[end].start = path[end].start, end, next
	}
	for start := int32(0); path[start].start >= 0; {
		end := path[start].start
		id := path[end].id
		for id == m.unknown && path[end].start >= 0 && path[path[end].start].id == m.unknown {
			end = path[end].start
		}
		s, from, made := word[start:end], int(start), len(out)
		start = end
		if id != m.unknown {
			out = append(out, id)
		} else if id, ok := m.ids[s]; ok {
			out = append(out, id)
		} else if ids, ok := m.fallback(s, out); ok {
			out = ids
		} else {
			out = append(out, m.unknown)
		}
		for range len(out) - made { // bytes have the place of the whole
			put(places, from, int(end))
		}
	}
	return out
}

// fallback appends the <0xHH> tokens of s if the vocabulary has all of them.
func (m *unigram) fallback(s string, out []int32) ([]int32, bool) {
	if !m.byteFallback {
		return out, false
	}
	start := len(out)
	for i := range len(s) {
		id, ok := m.ids[fmt.Sprintf("<0x%02X>", s[i])]
		if !ok {
			return out[:start], false
		}
		out = append(out, id)
	}
	return out, true
}
