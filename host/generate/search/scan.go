package search

// repeats finds tokens that would repeat an n-gram: an index (ngrams) or a scan (rescan).
type repeats interface {
	// grow notes the last token of a row; node is the last node of its path.
	grow(s sequence, node int32)
	// follow calls ban with every token that followed the last n-1 tokens of a row before; a token
	// can come more than once.
	follow(s sequence, ban func(token int32))
}

// rescan reads a text, and what a row has generated since, anew at each look-up, as most
// implementations do: it is what the index is compared with.
type rescan struct {
	n    int
	text []int32 // of own: where the rows' sequences begin
	own  bool    // the rows' sequences are read too, not the text alone
}

func (g *rescan) grow(sequence, int32) {}

func (g *rescan) follow(s sequence, ban func(token int32)) {
	start := s.len() - g.n + 1
	if start < 0 {
		return
	}
	for i := g.n - 1; i < len(g.text); i++ {
		if s.equalTo(start, g.text[i-g.n+1:i]) {
			ban(g.text[i])
		}
	}
	if !g.own {
		return
	}
	for i := max(g.n-1, len(g.text)); i < s.len(); i++ {
		if s.equalAt(start, i-g.n+1, g.n-1) {
			ban(s.at(i))
		}
	}
}

// repeatsOf is the index of the n-grams of a text, or with ScanNgrams a scan; own says that the rows'
// sequences begin with the text and count too.
func (s *State) repeatsOf(n int, text []int32, own bool) repeats {
	if s.o.ScanNgrams {
		return &rescan{n: n, text: text, own: own}
	}
	return newNgrams(n, text)
}
