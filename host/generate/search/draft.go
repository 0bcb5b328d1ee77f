package search

import (
	"fmt"
	"slices"
)

// Drafts says how many tokens of each row may be drafted for the next step, at most: fewer by one than may still
// come, because the row after the last of them chooses one too. It is 0 before the first step, when the search is
// done, and for diverse beams and several samples of one input, which seldom all choose what was drafted.
func (s *State) Drafts() int {
	if !s.started || s.done || len(s.groups) > 1 {
		return 0
	}
	return s.limit - len(s.in.Prompt) - s.generated(&s.groups[0]) - 1
}

// Draft says which tokens may follow each row of the next step: equally many for each, at most Drafts. That step has
// logits after each of them, as if it and those before it had been chosen. Step then chooses at one position after
// the other, as if each had been a step of its own, until a row is continued by another token than the drafted one,
// or twice, or not at all. Beams may change places. What is drafted changes neither the tokens nor the random
// numbers. An end token of any row ends a draft: nothing follows it.
func (s *State) Draft(rows ...[]int32) error {
	s.draft = s.draft[:0]
	if len(rows) == 0 {
		return nil
	}
	n := len(rows[0])
	for _, row := range rows {
		if len(row) != n || n > s.Drafts() || len(rows) != s.Rows() {
			return fmt.Errorf("%d tokens are drafted for one of %d rows, needed are equally many for each of %d, at most %d",
				len(row), len(rows), s.Rows(), s.Drafts())
		}
	}
	for i := range n {
		for _, row := range rows {
			if slices.Contains(s.o.EOSTokenID, row[i]) {
				s.draft = s.draft[:i*len(rows)]
				return nil
			}
			s.draft = append(s.draft, row[i])
		}
	}
	return nil
}

// Drafted gives the tokens drafted for the next step, in the order of its rows of logits: position by position, a
// token for each row.
func (s *State) Drafted() []int32 { return s.draft }

// Accepted says how many of the positions drafted for the last step it chose: each row went on with what was drafted
// for it. One more was chosen after them, which is in Moves unless the search is done; its parents are the rows
// before the draft, whatever places they changed.
func (s *State) Accepted() int { return s.accepted }

// chose says whether the last moves go on with a drafted position, from 1 on, of that many rows: each row once, with
// its token, in whatever order. That order is then kept.
func (s *State) chose(position, rows int) bool {
	if rows == 0 || len(s.draft) < position*rows || len(s.moves) != rows {
		return false
	}
	if position == 1 {
		s.order = s.order[:0]
		for row := range rows {
			s.order = append(s.order, row)
		}
	}
	order := s.spare[:0]
	for _, m := range s.moves {
		row := s.order[m.Parent]
		if m.Token != s.draft[(position-1)*rows+row] || slices.Contains(order, row) {
			return false
		}
		order = append(order, row)
	}
	s.spare, s.order = s.order, order
	return true
}

// arrange puts the logits of a position, one of each row of the step, in the order of the search's rows.
func (s *State) arrange(logits []float32, vocab int, scratch []float32) []float32 {
	if slices.IsSorted(s.order) {
		return scratch
	}
	scratch = append(scratch[:0], logits...)
	for i, row := range s.order {
		copy(logits[i*vocab:(i+1)*vocab], scratch[row*vocab:])
	}
	return scratch
}

// unarrange names the parents of the last moves as the rows of the step, whose draft they follow.
func (s *State) unarrange() {
	if s.accepted == 0 {
		return
	}
	for i := range s.moves {
		s.moves[i].Parent = s.order[s.moves[i].Parent]
	}
}
