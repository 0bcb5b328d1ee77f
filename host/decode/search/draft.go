package search

import (
	"fmt"
	"slices"
)

// Drafts says how many tokens of each row may be drafted for the next step, at most: fewer by one than may still come, because the row
// after the last of them chooses one too. It is 0 before the first step, when the search is done, and for diverse beams and several samples of
// one input, which seldom all choose what was drafted.
func (s *State) Drafts() int {
	if !s.started || s.done || len(s.groups) > 1 {
		return 0
	}
	return s.limit - len(s.in.Prompt) - s.generated(&s.groups[0]) - 1
}

// Draft says which tokens may follow each row of the next step: equally many for each, at most Drafts. That step has logits after each of
// them, as if it and those before it had been chosen. Step then chooses at one position after the other, as if each had been a step of its
// own, until a row is continued by another token than the drafted one, or another row stands in its place. What is drafted changes
// neither the tokens nor the random numbers. An end token of any row ends a draft: nothing follows it.
func (s *State) Draft(rows ...[]int32) error {
	s.draft = s.draft[:0]
	if len(rows) == 0 {
		return nil
	}
	n := len(rows[0])
	for _, row := range rows {
		if len(row) != n || n > s.Drafts() || len(rows) != s.Rows() {
			return fmt.Errorf("%d tokens are drafted for one of %d rows, needed are equally many for each of %d, at most %d", len(row), len(rows), s.Rows(), s.Drafts())
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

// Drafted gives the tokens drafted for the next step, in the order of its rows of logits: position by position, a token for each row.
func (s *State) Drafted() []int32 { return s.draft }

// Accepted says how many of the positions drafted for the last step it chose. One more was chosen after them, which is in Moves
// unless the search is done.
func (s *State) Accepted() int { return s.accepted }

// chose says whether the last moves are those of a drafted position, from 1 on, of that many rows.
func (s *State) chose(position, rows int) bool {
	if rows == 0 || len(s.draft) < position*rows || len(s.moves) != rows {
		return false
	}
	for i, m := range s.moves {
		if m.Parent != i || m.Token != s.draft[(position-1)*rows+i] {
			return false
		}
	}
	return true
}
