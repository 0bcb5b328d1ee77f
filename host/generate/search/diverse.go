package search

import (
	"cmp"
	"math"
	"slices"
)

// chooseDiverse is a step of a group of diverse beams. It has Hugging Face's older rules: an ended
// hypothesis gets the first end token, whichever was chosen, and whether the group can stop is
// weighed with the best candidate, even if that one has just ended.
func (s *State) chooseDiverse(g *group, base int, list []Candidate) {
	length := s.generated(g) + 1
	for rank, c := range list {
		parent := int(c.Row) - base
		if !slices.Contains(s.o.EOSTokenID, c.Token) {
			g.next = append(g.next, step{parent, c.Token, c.Score})
			s.chosen = append(s.chosen, c.Token)
		} else if rank < s.beams {
			tokens := append(slices.Clone(g.rows[parent].tokens), s.o.EOSTokenID[0])
			g.found.add(s.beams, Hypothesis{tokens, s.penalisedDiverse(c.Score, length), true})
		}
		if len(g.next) == s.beams {
			break
		}
	}
	g.done = len(g.next) == 0 || s.closedDiverse(g, list[0].Score, length)
}

// closedDiverse says whether a group can stop: best is the score of its best candidate.
func (s *State) closedDiverse(g *group, best float32, length int) bool {
	if len(g.found.best) < s.beams {
		return false
	}
	return s.o.EarlyStopping == StopFirst || g.found.worst >= s.penalisedDiverse(best, s.weighed(length))
}

// settleDiverse makes hypotheses of the beams of a group that has reached the length limit, next to
// those that ended in the same step.
func (s *State) settleDiverse(g *group) {
	for _, r := range g.rows {
		g.found.add(s.beams, Hypothesis{r.tokens, s.penalisedDiverse(r.score, len(r.tokens)), false})
	}
	g.done = true
}

// penalisedDiverse is the score of a sequence of that many generated tokens, in float64 as Hugging
// Face computes it in diverse beam search.
func (s *State) penalisedDiverse(sum float32, length int) float64 {
	return float64(sum) / math.Pow(float64(length), s.o.LengthPenalty)
}

// add takes a hypothesis, in the order in which they are found, when there is room or it is better
// than the worst, which then goes. Not to be mixed with insert.
func (h *hypotheses) add(size int, found Hypothesis) {
	if len(h.best) >= size && found.Score <= h.worst {
		return
	}
	h.best = append(h.best, found)
	if len(h.best) > size {
		gone := 0
		for i, b := range h.best {
			if b.Score < h.best[gone].Score {
				gone = i
			}
		}
		h.best = slices.Delete(h.best, gone, gone+1)
	}
	h.worst = math.Inf(1)
	for _, b := range h.best {
		h.worst = min(h.worst, b.Score)
	}
}

// ranked gives the n best of what the groups found; of equal ones the later found comes first, as
// Hugging Face takes them from the end of a stable sort.
func ranked(groups []group, n int) []Hypothesis {
	var all []Hypothesis
	for i := range groups {
		all = append(all, groups[i].found.best...)
	}
	slices.SortStableFunc(all, func(a, b Hypothesis) int { return cmp.Compare(a.Score, b.Score) })
	slices.Reverse(all)
	return all[:min(n, len(all))]
}
