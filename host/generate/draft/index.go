// Package draft guesses the next tokens of a text from where its last ones stood before: prompt lookup decoding
// (Saxena 2023; Yang et al. 2023, "Inference with Reference"). A guess costs no model: it is verified as rows of one
// step of the decoder.
package draft

import "slices"

// sizes are the numbers of tokens that are looked up, the longest first.
var sizes = [...]int{8, 4, 2}

// separator stands between texts: no n-gram reaches over it.
const separator int32 = -1

// Index is a text that grows, with the places of its n-grams of 8, 4 and 2 tokens. It takes a constant time and at
// most three entries of a hash table for each token.
type Index struct {
	text []int32
	last [len(sizes)]map[uint64]int32 // hash of an n-gram -> index after the latest that another token follows
}

// NewIndex is the index of texts that come before what is written: an encoder's input, a prompt. No n-gram reaches from
// one into the next, but the last goes on with Add.
func NewIndex(texts ...[]int32) *Index {
	x := &Index{}
	for i := range x.last {
		x.last[i] = map[uint64]int32{}
	}
	for i, t := range texts {
		if i > 0 {
			x.Add(separator)
		}
		x.Add(t...)
	}
	return x
}

// Add lets the text grow.
func (x *Index) Add(tokens ...int32) {
	for _, t := range tokens {
		if t != separator {
			x.enter() // what the text ends with is followed by a token now
		}
		x.text = append(x.text, t)
	}
}

// enter enters the n-grams that the text ends with.
func (x *Index) enter() {
	for i, n := range sizes {
		if hash, ok := ending(x.text, n); ok {
			x.last[i][hash] = int32(len(x.text))
		}
	}
}

// ending is the hash of a text's last n tokens; there is none where they are of two texts or too few.
func ending(text []int32, n int) (hash uint64, ok bool) {
	if len(text) < n {
		return 0, false
	}
	hash = uint64(n)
	for _, t := range text[len(text)-n:] {
		if t == separator {
			return 0, false
		}
		hash = (hash ^ uint64(uint32(t))) * 0xd6e8feb86659fd93
		hash ^= hash >> 32
	}
	return hash, true
}

// Next appends to list up to n tokens that followed the text's last 8 tokens where they stood before, or its last 4
// or 2 where those did not; of several such places the latest counts. size says how many agreed, 0 where none did. A
// place close to the end goes on with the guess itself, so that a text that repeats itself is guessed to go on doing
// so.
func (x *Index) Next(list []int32, n int) (_ []int32, size int) {
	begin := len(list)
	list, size = x.After(x.text, list, n)
	if size == 0 || len(list) == begin {
		return list, size
	}
	at := x.find(x.text, size)
	for from := at + len(list) - begin; from >= len(x.text) && len(list)-begin < n; from++ {
		list = append(list, list[begin+from-len(x.text)])
	}
	return list, size
}

// After is Next of another text, of which no more than the end need be given: what it ends with is looked up in the
// index's, and a guess ends where that ends.
func (x *Index) After(text, list []int32, n int) (_ []int32, size int) {
	for _, size := range sizes {
		at := x.find(text, size)
		if at < 0 {
			continue
		}
		for _, t := range x.text[at:min(len(x.text), at+n)] {
			if t == separator {
				break
			}
			list = append(list, t)
		}
		return list, size
	}
	return list, 0
}

// find is the index after the latest place of the last tokens of a text, as many as one of sizes; -1 where there is
// none.
func (x *Index) find(text []int32, size int) int {
	hash, ok := ending(text, size)
	if !ok {
		return -1
	}
	at, ok := x.last[slices.Index(sizes[:], size)][hash]
	if !ok || !slices.Equal(x.text[int(at)-size:at], text[len(text)-size:]) { // hashes may collide
		return -1
	}
	return int(at)
}
