package search

import (
	"github.com/opgraft/graft/internal/must"
	"math/rand/v2"
	"slices"
	"testing"
)

// reread is what the index must equal: the tokens that followed the last n-1 tokens of a sequence
// in a text, found by reading all of it.
func reread(n int, text, sequence []int32) []int32 {
	var banned []int32
	if len(sequence)+1 < n {
		return nil
	}
	suffix := sequence[len(sequence)-n+1:]
	for i := n - 1; i < len(text); i++ {
		if slices.Equal(text[i-n+1:i], suffix) {
			banned = append(banned, text[i])
		}
	}
	return distinct(banned)
}

func distinct(tokens []int32) []int32 {
	slices.Sort(tokens)
	return slices.Compact(tokens)
}

func followers(g *ngrams, s sequence) []int32 {
	var found []int32
	g.follow(s, func(t int32) { found = append(found, t) })
	return distinct(found)
}

// TestNgramsEqualRescan: over random lineages (rows that fork, join and die) the index of an input
// bans what a scan of each row's own sequence bans.
func TestNgramsEqualRescan(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	found, checks := 0, 0
	for range 300 {
		n := 1 + r.IntN(6)
		letters := 1 + r.IntN(12)
		word := func() int32 { return r.Int32N(int32(letters)) }
		prompt := make([]int32, r.IntN(40))
		for i := range prompt {
			prompt[i] = word()
		}
		other := make([]int32, r.IntN(40))
		for i := range other {
			other[i] = word()
		}
		index, encoder := newNgrams(n, prompt), newNgrams(n, other)
		rows := make([]sequence, 1+r.IntN(6))
		for i := range rows {
			rows[i] = sequence{prompt: prompt}
		}
		node := int32(0)
		for range 40 {
			next := make([]sequence, 1+r.IntN(6))
			for i := range next {
				from := rows[r.IntN(len(rows))]
				next[i] = sequence{prompt, append(slices.Clone(from.tokens), word()), append(slices.Clone(from.path), node)}
				index.grow(next[i], node)
				node++
			}
			rows = next
			for _, s := range rows {
				whole := append(slices.Clone(prompt), s.tokens...)
				want := reread(n, whole, whole)
				if got := followers(index, s); !slices.Equal(got, want) {
					t.Fatalf("n=%d, sequence %v: found %v, want %v", n, whole, got, want)
				}
				want = reread(n, other, whole)
				if got := followers(encoder, s); !slices.Equal(got, want) {
					t.Fatalf("n=%d, text %v, sequence %v: found %v, want %v", n, other, whole, got, want)
				}
				found += len(want)
				checks++
			}
		}
	}
	if found < checks/10 {
		t.Errorf("only %d bans in %d checks", found, checks)
	}
}

// TestNgramsCollision: entries of equal hash but other tokens are told apart.
func TestNgramsCollision(t *testing.T) {
	text := []int32{1, 2, 3, 4, 5, 6}
	g := newNgrams(3, text)
	// Whatever the hash is, point the hash of (9, 9) at the entries of (1, 2).
	g.head[hashTokens([]int32{9, 9})] = g.head[hashTokens([]int32{1, 2})]
	must.Empty(t, followers(g, sequence{prompt: []int32{9, 9}}))
	must.Equal(t, followers(g, sequence{prompt: []int32{1, 2}}), []int32{3})
}

// TestNgramsLineage: what a row generated is banned for its descendants and for nobody else, and a
// collision of hashes among generated tokens bans nothing.
func TestNgramsLineage(t *testing.T) {
	prompt := []int32{1, 2}
	g := newNgrams(3, prompt)
	a := sequence{prompt, []int32{7, 8, 9}, []int32{0, 2, 4}}
	b := sequence{prompt, []int32{7, 8, 6}, []int32{0, 3, 5}} // shares its first token with a
	for i := range 3 {
		g.grow(sequence{prompt, a.tokens[:i+1], a.path[:i+1]}, a.path[i])
		if i > 0 {
			g.grow(sequence{prompt, b.tokens[:i+1], b.path[:i+1]}, b.path[i])
		}
	}
	again := func(s sequence, tokens ...int32) sequence {
		for _, t := range tokens {
			s.tokens, s.path = append(slices.Clone(s.tokens), t), append(slices.Clone(s.path), 99)
		}
		return s
	}
	for _, c := range []struct {
		s    sequence
		want []int32
	}{
		{again(a, 7, 8), []int32{9}},
		{again(b, 7, 8), []int32{6}},
		{again(a, 1, 2), []int32{7}},
		{again(b, 8, 9), nil},
	} {
		must.Equal(t, followers(g, c.s), c.want, c.s.tokens)
	}
	g.head[hashTokens([]int32{5, 5})] = g.head[hashTokens([]int32{7, 8})]
	must.Empty(t, followers(g, again(a, 5, 5)))
}

func BenchmarkNgrams(b *testing.B) {
	r := rand.New(rand.NewPCG(3, 4))
	prompt := make([]int32, 1024)
	for i := range prompt {
		prompt[i] = r.Int32N(50000)
	}
	for b.Loop() {
		g := newNgrams(3, prompt)
		s := sequence{prompt: prompt}
		for i := range int32(64) {
			g.follow(s, func(int32) {})
			s.tokens, s.path = append(s.tokens, r.Int32N(50000)), append(s.path, i)
			g.grow(s, i)
		}
	}
}
