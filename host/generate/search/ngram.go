package search

// ngrams knows which tokens followed each run of n-1 tokens in a text that all rows of an input
// share (the prompt, or the encoder's input) and in what the rows have generated since. It grows by
// one entry a token and is never scanned: a look-up follows the entries of one hash. Entries of a
// row belong to its descendants too and to nobody else, which the rows' paths tell.
type ngrams struct {
	n    int
	text []int32          // the shared part
	head map[uint64]int32 // hash of n-1 tokens -> latest entry, as index + 1
	// below is head of the index that this one is a fork of, and only read; nil: of none.
	below map[uint64]int32
	all   []ngramEntry
}

type ngramEntry struct {
	position int32 // of the token that followed
	node     int32 // of the path that has it; sharedNode: in the shared text
	next     int32 // the entry before it with the same hash, as index + 1; 0: none
}

// sharedNode marks entries of the shared text.
const sharedNode int32 = -1

// newNgrams makes the index of the n-grams of a text; n is at least 1.
func newNgrams(n int, text []int32) *ngrams {
	g := &ngrams{n: n, text: text, head: make(map[uint64]int32, len(text))}
	for i := n - 1; i < len(text); i++ {
		g.insert(hashTokens(text[i-n+1:i]), int32(i), sharedNode)
	}
	return g
}

func (g *ngrams) insert(hash uint64, position, node int32) {
	g.all = append(g.all, ngramEntry{position: position, node: node, next: g.latest(hash)})
	g.head[hash] = int32(len(g.all))
}

// grow notes the n-gram that the last token of a row ends; node is the last node of its path. The
// row's sequence must begin with the shared text.
func (g *ngrams) grow(s sequence, node int32) {
	last := s.len() - 1
	if last < g.n-1 {
		return
	}
	g.insert(s.hash(last-g.n+1, last), int32(last), node)
}

// follow calls ban with every token that followed the last n-1 tokens of a row before, in the shared
// text or in the row itself; a token can come more than once.
func (g *ngrams) follow(s sequence, ban func(token int32)) {
	end := s.len()
	start := end - g.n + 1
	if start < 0 {
		return
	}
	for i := g.latest(s.hash(start, end)); i != 0; {
		e := g.all[i-1]
		i = e.next
		if e.node == sharedNode {
			if s.equalTo(start, g.text[e.position-int32(g.n)+1:e.position]) {
				ban(g.text[e.position])
			}
		} else if s.has(e.node, int(e.position)) && s.equalAt(start, int(e.position)-g.n+1, g.n-1) {
			ban(s.at(int(e.position)))
		}
	}
}

// sequence is what a row has: the prompt it shares and what it generated, with the nodes of the latter.
type sequence struct {
	prompt, tokens, path []int32
}

func (s sequence) len() int { return len(s.prompt) + len(s.tokens) }

func (s sequence) at(i int) int32 {
	if i < len(s.prompt) {
		return s.prompt[i]
	}
	return s.tokens[i-len(s.prompt)]
}

// has says whether the node lies on the row's path, at that position.
func (s sequence) has(node int32, position int) bool {
	i := position - len(s.prompt)
	return i < len(s.path) && s.path[i] == node
}

func (s sequence) equalTo(start int, tokens []int32) bool {
	for i, t := range tokens {
		if s.at(start+i) != t {
			return false
		}
	}
	return true
}

func (s sequence) equalAt(a, b, n int) bool {
	for i := range n {
		if s.at(a+i) != s.at(b+i) {
			return false
		}
	}
	return true
}

func (s sequence) hash(start, end int) uint64 {
	h := hashSeed
	for i := start; i < end; i++ {
		h = hashToken(h, s.at(i))
	}
	return h
}

const hashSeed uint64 = 0x9e3779b97f4a7c15

// hashToken mixes a token into a hash: multiply and fold the high half down.
func hashToken(h uint64, t int32) uint64 {
	h = (h ^ uint64(uint32(t))) * 0xd6e8feb86659fd93
	return h ^ h>>32
}

func hashTokens(tokens []int32) uint64 {
	h := hashSeed
	for _, t := range tokens {
		h = hashToken(h, t)
	}
	return h
}
