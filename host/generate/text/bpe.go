package text

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// bpe is byte pair encoding (Sennrich et al., 2016): a word begins as its
// characters, and the pair of neighbours with the lowest rank is merged until
// no pair has a rank.
type bpe struct {
	vocabulary
	merges       map[uint64]merge
	unknown      string     // token of what is not in the vocabulary; "": it is dropped
	prefix       string     // put before every character of a word but the first
	suffix       string     // put after the last one
	fuseUnknown  bool       // one token for neighbouring unknown characters
	byteFallback bool       // unknown characters become <0xHH> tokens
	wholeWords   bool       // a word that is in the vocabulary is not merged (ignore_merges)
	bytes        [256]int32 // ids of <0xHH>, or -1
}

type merge struct{ rank, id int32 }

func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// newBPE completes m with its merges: pairs of tokens, first rank first.
func newBPE(m *bpe, merges [][2]string) (*bpe, error) {
	m.merges = make(map[uint64]merge, len(merges))
	for rank, pair := range merges {
		left, ok := m.ids[pair[0]]
		if !ok {
			return nil, fmt.Errorf("merge %d: found token %q outside the vocabulary; needed both tokens and their merge in it",
				rank, pair[0])
		}
		right, ok := m.ids[pair[1]]
		if !ok {
			return nil, fmt.Errorf("merge %d: found token %q outside the vocabulary; needed both tokens and their merge in it",
				rank, pair[1])
		}
		if len(pair[1]) < len(m.prefix) {
			return nil, fmt.Errorf("merge %d: found token %q, needed one that starts with the prefix %q", rank, pair[1],
				m.prefix)
		}
		joined := pair[0] + pair[1][len(m.prefix):]
		id, ok := m.ids[joined]
		if !ok {
			return nil, fmt.Errorf("merge %d: found the result %q outside the vocabulary; needed both tokens and their merge "+
				"in it", rank, joined)
		}
		m.merges[pairKey(left, right)] = merge{int32(rank), id}
	}
	for b := range 256 {
		m.bytes[b] = -1
		if id, ok := m.ids[fmt.Sprintf("<0x%02X>", b)]; ok {
			m.bytes[b] = id
		}
	}
	return m, nil
}

// symbol is a part of a word; parts are linked, a merged one has length 0.
type symbol struct {
	id         int32
	prev, next int32
	length     int32
}

func (m *bpe) tokenize(word string, out []int32, places *[]place, b *budget) ([]int32, error) {
	if m.wholeWords {
		if id, ok := m.ids[word]; ok {
			put(places, 0, len(word))
			return append(out, id), nil
		}
	}
	var buffer [48]symbol
	symbols := buffer[:0]
	if len(word) > len(buffer) { // a list that grows is copied, and takes three times as much
		symbols = make([]symbol, 0, utf8.RuneCountInString(word))
	}
	symbols, err := m.characterIDs(word, symbols)
	if err != nil {
		return nil, err
	}
	if err := m.mergeAll(symbols, b); err != nil {
		return nil, err
	}
	at := 0
	for i := range symbols {
		if n := int(symbols[i].length); n != 0 {
			out = append(out, symbols[i].id)
			put(places, at, at+n)
			at += n
		}
	}
	return out, nil
}

// characterIDs appends a symbol a character.
func (m *bpe) characterIDs(word string, symbols []symbol) ([]symbol, error) {
	add := func(id int32, length int) {
		symbols = append(symbols,
			symbol{id: id, prev: int32(len(symbols)) - 1, next: int32(len(symbols)) + 1, length: int32(length)})
	}
	unknownID, unknownLength := int32(0), 0 // unknown characters not yet added
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		s := word[i : i+n]
		if i > 0 && m.prefix != "" {
			s = m.prefix + s
		}
		if i+n == len(word) && m.suffix != "" {
			s += m.suffix
		}
		i += n
		if id, ok := m.ids[s]; ok {
			if unknownLength > 0 {
				add(unknownID, unknownLength)
				unknownLength = 0
			}
			add(id, n)
			continue
		}
		if m.byteFallback && m.hasBytes(s) {
			for k := range len(s) {
				add(m.bytes[s[k]], 1)
			}
			continue
		}
		if m.unknown == "" {
			continue
		}
		id, ok := m.ids[m.unknown]
		if !ok {
			return nil, unknownMissing(m.unknown, word)
		}
		if unknownLength > 0 && !m.fuseUnknown {
			add(unknownID, unknownLength)
			unknownLength = 0
		}
		unknownID, unknownLength = id, unknownLength+n
	}
	if unknownLength > 0 {
		add(unknownID, unknownLength)
	}
	if len(symbols) > 0 {
		symbols[len(symbols)-1].next = -1
	}
	return symbols, nil
}

func (m *bpe) hasBytes(s string) bool {
	for i := range len(s) {
		if m.bytes[s[i]] < 0 {
			return false
		}
	}
	return true
}

// candidate is a pair that may be merged: the symbol at and the one after it.
type candidate struct{ rank, at, id int32 }

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

// mergeAll takes candidates from a heap, so that a long text without spaces
// costs n log n. A candidate whose symbols have changed since is passed over.
func (m *bpe) mergeAll(symbols []symbol, b *budget) error {
	var buffer [64]candidate
	heap := candidates(buffer[:0])
	if len(symbols) > len(buffer) {
		heap = make(candidates, 0, len(symbols))
	}
	for i := 0; i+1 < len(symbols); i++ {
		if found, ok := m.merges[pairKey(symbols[i].id, symbols[i+1].id)]; ok {
			heap.push(candidate{found.rank, int32(i), found.id})
		}
	}
	for len(heap) > 0 {
		if err := b.work(1); err != nil {
			return err
		}
		top := heap.pop()
		left := &symbols[top.at]
		if left.length == 0 || left.next < 0 {
			continue
		}
		right := &symbols[left.next]
		if now, ok := m.merges[pairKey(left.id, right.id)]; !ok || now.id != top.id {
			continue
		}
		left.id = top.id
		left.length += right.length
		left.next = right.next
		right.length = 0
		if left.next >= 0 {
			symbols[left.next].prev = top.at
			if found, ok := m.merges[pairKey(left.id, symbols[left.next].id)]; ok {
				heap.push(candidate{found.rank, top.at, found.id})
			}
		}
		if left.prev >= 0 {
			if found, ok := m.merges[pairKey(symbols[left.prev].id, left.id)]; ok {
				heap.push(candidate{found.rank, left.prev, found.id})
			}
		}
	}
	return nil
}

// candidates is a binary heap, the lowest rank first, of equal ranks the leftmost.
type candidates []candidate

func (h *candidates) push(c candidate) {
	*h = append(*h, c)
	s := *h
	for i := len(s) - 1; i > 0; {
		parent := (i - 1) / 2
		if !s[i].before(s[parent]) {
			break
		}
		s[i], s[parent] = s[parent], s[i]
		i = parent
	}
}

func (h *candidates) pop() candidate {
	s := *h
	top := s[0]
	last := len(s) - 1
	s[0] = s[last]
	s = s[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && s[child+1].before(s[child]) {
			child++
		}
		if !s[child].before(s[i]) {
			break
		}
		s[i], s[child] = s[child], s[i]
		i = child
	}
	*h = s
	return top
}

// splitMerge reads a merge written as one line: two tokens with a space between.
func splitMerge(line string) (pair [2]string, err error) {
	left, right, ok := strings.Cut(line, " ")
	if !ok || strings.Contains(right, " ") {
		return pair, fmt.Errorf("merge %q: found %d parts, needed two tokens with a space between", line,
			len(strings.Split(line, " ")))
	}
	return [2]string{left, right}, nil
}

func unknownMissing(unknown, word string) error {
	if len(word) > 40 {
		word = word[:40] + "..."
	}
	return fmt.Errorf("word %q is not in the vocabulary, nor is the unknown token %q; needed an unk_token that is", word,
		unknown)
}
