package search

import (
	"cmp"
	"math"
	"slices"
)

// chooseBeams is a step of beam search and of beam sampling. A candidate whose token ends it, or
// every one when the length limit is reached, is a hypothesis if it is among the first NumBeams of
// the list (the best, or those sampled first); the others are only there so that enough can go on. Of
// those that can, the best NumBeams do.
func (s *State) chooseBeams(g *group, base int, list []Candidate) {
	length := s.generated(g) + 1
	full := len(s.in.Prompt)+length >= s.limit
	for rank, c := range list {
		parent := int(c.Row) - base
		ended := slices.Contains(s.o.EOSTokenID, c.Token)
		switch {
		case !ended && !full:
			g.next = append(g.next, step{parent, c.Token, c.Score})
		case rank < s.beams:
			tokens := append(slices.Clone(g.rows[parent].tokens), c.Token)
			score := s.penalised(c.Score, length)
			g.found.insert(s.beams, Hypothesis{tokens, float64(score), ended})
		}
	}
	// Sampled candidates are not in the order of their scores.
	slices.SortStableFunc(g.next, func(a, b step) int { return cmp.Compare(b.score, a.score) })
	g.next = g.next[:min(len(g.next), s.beams)]
	g.done = len(g.next) == 0 || s.closed(g, length)
}

// closed says that no beam needs to continue: there are enough hypotheses, and the best beam, weighed at
// its length or the longest, is no better than the worst of them.
func (s *State) closed(g *group, length int) bool {
	if len(g.found.best) < s.beams {
		return false
	}
	if s.o.EarlyStopping == StopFirst {
		return true
	}
	best := s.penalised(g.next[0].score, s.weighed(length))
	return float64(best) <= g.found.best[s.beams-1].Score
}

// penalised is the score of a sequence of that many generated tokens, in float32 as Hugging Face
// computes it in beam search.
func (s *State) penalised(sum float32, length int) float32 {
	return sum / float32(math.Pow(float64(length), s.o.LengthPenalty))
}

// insert puts a hypothesis in its place, best first and after its equals, if it is among the first
// size. Not to be mixed with add.
func (h *hypotheses) insert(size int, found Hypothesis) {
	at := len(h.best)
	for at > 0 && h.best[at-1].Score < found.Score {
		at--
	}
	if at == size {
		return
	}
	h.best = slices.Insert(h.best, at, found)
	h.best = h.best[:min(len(h.best), size)]
}
