package search

import (
	"cmp"
	"math"
	"slices"
)

// Hypothesis is one result of a sample.
type Hypothesis struct {
	// Tokens are the generated tokens without the prompt. One that ended by itself ends with an
	// end token: with beams always the first of EOSTokenID, as with Hugging Face.
	Tokens []int32
	// Score is the sum of the tokens' log-probabilities (after bans, penalties and warpers), divided
	// with beams by the length to the power of LengthPenalty. In greedy search it is 0 unless
	// OutputScores was asked for.
	Score float64
	// Ended says that an end token came before the length limit.
	Ended bool
}

// hypotheses are the best ended ones of a group of beams, at most size, in the order in which they
// were found.
type hypotheses struct {
	best  []Hypothesis
	worst float64
}

// add keeps a hypothesis when there is room or it is better than the worst, which then goes.
func (h *hypotheses) add(size int, found Hypothesis) {
	if len(h.best) >= size && found.Score <= h.worst {
		return
	}
	h.best = append(h.best, found)
	if len(h.best) <= size {
		h.worst = found.Score
		for _, b := range h.best {
			h.worst = min(h.worst, b.Score)
		}
		return
	}
	gone := 0
	for i, b := range h.best {
		if b.Score < h.best[gone].Score {
			gone = i
		}
	}
	h.best = slices.Delete(h.best, gone, gone+1)
	h.worst = math.Inf(1)
	for _, b := range h.best {
		h.worst = min(h.worst, b.Score)
	}
}

// finished says whether a group of beams can stop: best is the score of its best candidate, length
// the number of tokens generated with it, limit the most that there can be.
func (h *hypotheses) finished(o *Options, size int, best float32, length, limit int) bool {
	if len(h.best) < size {
		return false
	}
	switch o.EarlyStopping {
	case StopFirst:
		return true
	case StopNever:
		if o.LengthPenalty > 0 {
			length = limit
		}
	}
	return h.worst >= penalised(best, length, o.LengthPenalty)
}

// penalised is the score of a sequence of that many generated tokens.
func penalised(sum float32, length int, penalty float64) float64 {
	return float64(sum) / math.Pow(float64(length), penalty)
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
