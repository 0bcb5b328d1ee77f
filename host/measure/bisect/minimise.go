package bisect

import (
	"fmt"
	"slices"
)

// search finds which of numbered parts make something fail.
type search struct {
	fails func(parts []int) (bool, error)
	known map[string]bool // of sets that were tried
}

// culprits are sets of the parts 0 to n-1, apart from each other, each of which fails and no smaller part of which
// that was tried does: one of several parts fails by their interaction. Without them the other parts do not fail. The
// order is that in which they were found.
func (s *search) culprits(n int) ([][]int, error) {
	var rest []int
	for i := range n {
		rest = append(rest, i)
	}
	var found [][]int
	for len(rest) > 0 {
		failed, err := s.try(rest)
		if err != nil || !failed {
			return found, err
		}
		more, err := s.blame(rest)
		if err != nil {
			return found, err
		}
		found = append(found, more...)
		rest = without(rest, slices.Concat(more...))
	}
	return found, nil
}

// blame finds some of the culprits among parts that fail: in each half that does, and where none does, what of both
// it takes.
func (s *search) blame(parts []int) (found [][]int, err error) {
	if len(parts) == 1 {
		return [][]int{parts}, nil
	}
	for _, half := range [][]int{parts[:len(parts)/2], parts[len(parts)/2:]} {
		failed, err := s.try(half)
		if err != nil {
			return nil, err
		}
		if !failed {
			continue
		}
		more, err := s.blame(half)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	if len(found) > 0 {
		return found, nil
	}
	least, err := s.minimal(parts)
	return [][]int{least}, err
}

// minimal is a smallest set of parts which together fail: leaving any of it out, they do not. It is found by delta
// debugging (Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002).
func (s *search) minimal(parts []int) ([]int, error) {
	for pieces := 2; len(parts) > 1; {
		smaller, one, err := s.reduce(parts, pieces)
		switch {
		case err != nil:
			return nil, err
		case smaller == nil && pieces >= len(parts):
			return parts, nil
		case smaller == nil:
			pieces = min(2*pieces, len(parts))
		case one:
			parts, pieces = smaller, 2
		default:
			parts, pieces = smaller, max(pieces-1, 2)
		}
	}
	return parts, nil
}

// reduce cuts parts into pieces and finds one that fails alone, else all but one that do; nil for neither.
func (s *search) reduce(parts []int, pieces int) (smaller []int, one bool, err error) {
	var list [][]int
	for i := range pieces {
		list = append(list, parts[i*len(parts)/pieces:(i+1)*len(parts)/pieces])
	}
	for _, piece := range list {
		if failed, err := s.try(piece); err != nil || failed {
			return piece, true, err
		}
	}
	if pieces == 2 { // all but one piece is the other
		return nil, false, nil
	}
	for _, piece := range list {
		others := without(parts, piece)
		if failed, err := s.try(others); err != nil || failed {
			return others, false, err
		}
	}
	return nil, false, nil
}

func (s *search) try(parts []int) (bool, error) {
	key := fmt.Sprint(parts)
	if failed, ok := s.known[key]; ok {
		return failed, nil
	}
	failed, err := s.fails(parts)
	if err != nil {
		return false, err
	}
	if s.known == nil {
		s.known = map[string]bool{}
	}
	s.known[key] = failed
	return failed, nil
}

func without(parts, some []int) []int {
	return slices.DeleteFunc(slices.Clone(parts), func(i int) bool { return slices.Contains(some, i) })
}
