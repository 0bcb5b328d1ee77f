package search

import (
	"cmp"
	"slices"
)

// keyed is a candidate with the value that ranks it, which need not be its score.
type keyed struct {
	Candidate
	key float32
}

// compare puts the better candidate first: the greater key, then the lower row and token.
func compare(a, b keyed) int {
	if a.key != b.key {
		return cmp.Compare(b.key, a.key)
	}
	if a.Row != b.Row {
		return cmp.Compare(a.Row, b.Row)
	}
	return cmp.Compare(a.Token, b.Token)
}

// topK holds the best candidates it is offered, as a heap with the worst at its root.
type topK struct{ heap []keyed }

// offer takes c when it is among the k best so far.
func (h *topK) offer(k int, c keyed) {
	if len(h.heap) < k {
		h.heap = append(h.heap, c)
		for i := len(h.heap) - 1; i > 0; {
			parent := (i - 1) / 2
			if compare(h.heap[i], h.heap[parent]) <= 0 {
				return
			}
			h.heap[i], h.heap[parent] = h.heap[parent], h.heap[i]
			i = parent
		}
		return
	}
	if compare(c, h.heap[0]) >= 0 {
		return
	}
	h.heap[0] = c
	for i := 0; ; {
		worst := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h.heap); child++ {
			if compare(h.heap[child], h.heap[worst]) > 0 {
				worst = child
			}
		}
		if worst == i {
			return
		}
		h.heap[i], h.heap[worst] = h.heap[worst], h.heap[i]
		i = worst
	}
}

// sorted gives what it holds, best first.
func (h *topK) sorted() []Candidate {
	slices.SortFunc(h.heap, compare)
	list := make([]Candidate, len(h.heap))
	for i, c := range h.heap {
		list[i] = c.Candidate
	}
	return list
}
