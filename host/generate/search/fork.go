package search

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

// Fork is the search as it would go on from here with the logits of another model: a search of its own, with the same
// options, bans, penalties and lengths, and the random numbers that s will use. What it chooses is what s would
// choose where both models give the same logits. It counts scores in greedy search too, for Confidence. s must not
// take a step while the fork is used.
func (s *State) Fork() *State {
	f := *s
	f.o.OutputScores = true
	f.groups = make([]group, len(s.groups))
	for i := range s.groups {
		s.groups[i].fork(&f.groups[i])
	}
	if g := s.own; g != nil {
		f.own = g.fork()
	}
	f.chosen, f.moves, f.results, f.draft, f.accepted, f.order, f.spare, f.forked, f.confidence = nil,
		slices.Clone(s.moves), nil, nil, 0, nil, nil, true, 0
	return &f
}

// fork copies what the steps of a group change. Tokens are shared up to here: what is appended goes elsewhere.
func (g *group) fork(f *group) {
	*f = group{done: g.done, found: g.found, source: g.source, rows: slices.Clone(g.rows)}
	for i := range f.rows {
		r := &f.rows[i]
		r.tokens, r.path, r.penalties = slices.Clip(r.tokens), slices.Clip(r.path), slices.Clip(r.penalties)
	}
	f.found.best = slices.Clone(g.found.best)
	if g.random != nil {
		f.random = rand.New(&f.source)
	}
}

// fork is an index that grows by itself; the one that it is of must not grow meanwhile.
func (g *ngrams) fork() *ngrams {
	f := &ngrams{n: g.n, text: g.text, below: g.head, head: map[uint64]int32{}, all: slices.Clip(g.all)}
	if g.below != nil { // a fork of a fork
		f.below = maps.Clone(g.below)
		maps.Copy(f.below, g.head)
	}
	return f
}

// latest is the latest entry of a hash, as index + 1; 0 where there is none.
func (g *ngrams) latest(hash uint64) int32 {
	if at, ok := g.head[hash]; ok {
		return at
	}
	return g.below[hash]
}

// Confidence is the probability that a fork's last step gave to what it chose, after bans, penalties and warpers: the
// least of its rows. It is 0 before a step, and after one that did not continue each row by itself.
func (s *State) Confidence() float64 { return s.confidence }

// Stays says whether the last step continued each of that many rows by itself, so that their tokens may be drafted
// together.
func (s *State) Stays(rows int) bool {
	if s.done || len(s.moves) != rows {
		return false
	}
	for i, m := range s.moves {
		if m.Parent != i {
			return false
		}
	}
	return true
}

// weigh notes the Confidence of a step, before which the rows of the only group had the scores given.
func (s *State) weigh(before []float32) {
	s.confidence = 0
	if len(s.groups) > 1 || !s.Stays(len(before)) {
		return
	}
	s.confidence = 1
	for i, r := range s.groups[0].rows {
		s.confidence = min(s.confidence, math.Exp(float64(r.score-before[i])))
	}
}

// scores are those of a group's rows.
func (g *group) scores() []float32 {
	list := make([]float32, len(g.rows))
	for i := range g.rows {
		list[i] = g.rows[i].score
	}
	return list
}
