package cache

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/base/abi"
)

// Sequence is the positions of one input: a part that all its rows share, and
// after it a part of each row's own. All rows are equally long.
type Sequence struct {
	pool    *Pool
	shared  []int32   // slots of positions 0 .. len-1
	private [][]int32 // a row: slots of the positions after the shared ones
	spare   [][]int32 // lists to be used again
	blocks  []int32   // all that the sequence holds, the one being filled last
	filled  int       // slots taken of the last block
}

// NewSequence is a sequence of no positions with one row.
func NewSequence(p *Pool) *Sequence {
	return &Sequence{pool: p, private: make([][]int32, 1), filled: abi.CacheBlockSize}
}

// Rows is the number of rows.
func (s *Sequence) Rows() int { return len(s.private) }

// Len is the number of positions of each row.
func (s *Sequence) Len() int { return len(s.shared) + len(s.private[0]) }

// Shared are the slots of the positions on which all rows agree, from 0 on.
func (s *Sequence) Shared() []int32 { return s.shared }

// Private are the slots of a row's positions after the shared ones.
func (s *Sequence) Private(row int) []int32 { return s.private[row] }

// Bytes is what the sequence's blocks take.
func (s *Sequence) Bytes() int64 { return int64(len(s.blocks)) * s.pool.BlockBytes() }

// slot takes the next slot of the sequence's blocks. pending are slots that were taken for positions which no row has
// yet.
func (s *Sequence) slot(pending []int32) (int32, error) {
	if s.filled == abi.CacheBlockSize {
		s.drop(pending)
		b, err := s.pool.take()
		if err != nil {
			return 0, err
		}
		s.blocks, s.filled = append(s.blocks, b), 0
	}
	s.filled++
	return s.blocks[len(s.blocks)-1]*abi.CacheBlockSize + int32(s.filled-1), nil
}

// Extend adds n positions that all rows share, as a prompt is, and returns their
// slots. The rows must have no positions of their own. On an error nothing has
// changed but blocks that the sequence now holds.
func (s *Sequence) Extend(n int) ([]int32, error) {
	if len(s.private[0]) > 0 {
		return nil, fmt.Errorf("a sequence whose rows differ cannot be given positions that they share")
	}
	before := len(s.shared)
	for range n {
		slot, err := s.slot(nil)
		if err != nil {
			s.shared = s.shared[:before]
			return nil, err
		}
		s.shared = append(s.shared, slot)
	}
	return s.shared[before:], nil
}

// Append adds one position to every row and writes the rows' slots to slots,
// which must be as long as there are rows. A single row's position is shared.
// On an error no row has grown.
func (s *Sequence) Append(slots []int32) error {
	for i := range s.private {
		slot, err := s.slot(slots[:i])
		if err != nil {
			return err
		}
		slots[i] = slot
	}
	if len(s.private) == 1 {
		s.shared = append(s.shared, slots[0])
		return nil
	}
	for i := range s.private {
		s.private[i] = append(s.private[i], slots[i])
	}
	return nil
}

// Truncate takes the last n positions of every row away, which must be those that the sequence was given last, with
// no Reorder since. Blocks that are empty then go back to the pool. On an error nothing has changed.
func (s *Sequence) Truncate(n int) error {
	shared, private := len(s.shared), len(s.private[0])
	if len(s.private) == 1 {
		shared -= n
	} else {
		private -= n
	}
	if n < 0 || shared < 0 || private < 0 {
		return fmt.Errorf("%d positions are taken from %d rows of %d shared and %d private ones", n, len(s.private),
			len(s.shared), len(s.private[0]))
	}
	blocks, filled := s.blocks, s.filled
	for at := n - 1; at >= 0; at-- {
		for row := len(s.private) - 1; row >= 0; row-- {
			var slot int32
			if len(s.private) == 1 {
				slot = s.shared[shared+at]
			} else {
				slot = s.private[row][private+at]
			}
			if len(blocks) == 0 || slot != blocks[len(blocks)-1]*abi.CacheBlockSize+int32(filled-1) {
				return fmt.Errorf("slot %d is taken from a sequence that was not given it last", slot)
			}
			if filled--; filled == 0 {
				blocks, filled = blocks[:len(blocks)-1], abi.CacheBlockSize
			}
		}
	}
	s.pool.give(s.blocks[len(blocks):]...)
	s.shared, s.blocks, s.filled = s.shared[:shared], blocks, filled
	for i := range s.private {
		s.private[i] = s.private[i][:private]
	}
	return nil
}

// Reorder makes the rows anew: row i continues what was row parents[i]. There
// may be more or fewer rows than before, at least one. Positions on which all
// rows now agree become shared.
func (s *Sequence) Reorder(parents []int) error {
	if len(parents) == 0 {
		return fmt.Errorf("a sequence needs at least one row")
	}
	for _, p := range parents {
		if p < 0 || p >= len(s.private) {
			return fmt.Errorf("row %d is continued, there are %d", p, len(s.private))
		}
	}
	old := s.private
	s.private = make([][]int32, 0, len(parents))
	taken := make([]bool, len(old))
	for _, p := range parents {
		if !taken[p] {
			s.private, taken[p] = append(s.private, old[p]), true
			continue
		}
		var list []int32
		if n := len(s.spare); n > 0 {
			list, s.spare = s.spare[n-1][:0], s.spare[:n-1]
		}
		s.private = append(s.private, append(list, old[p]...))
	}
	for i, list := range old {
		if !taken[i] && cap(list) > 0 {
			s.spare = append(s.spare, list)
		}
	}
	s.join()
	return nil
}

// join moves what all rows agree on to the shared part. Rows that agree on a
// position have one ancestor there, so they agree on all before it.
func (s *Sequence) join() {
	n := 0
	for n < len(s.private[0]) && !slices.ContainsFunc(s.private, func(o []int32) bool { return o[n] != s.private[0][n] }) {
		n++
	}
	if n == 0 {
		return
	}
	s.shared = append(s.shared, s.private[0][:n]...)
	for i := range s.private {
		s.private[i] = append(s.private[i][:0], s.private[i][n:]...)
	}
}

// drop gives blocks back of which no row reads a slot any more, nor will read one of those that are pending.
func (s *Sequence) drop(pending []int32) {
	if len(s.private) == 1 && len(s.private[0]) == 0 && len(s.shared) == len(s.blocks)*abi.CacheBlockSize {
		return
	}
	read := make(map[int32]bool, len(s.blocks))
	mark := func(slots []int32) {
		for _, slot := range slots {
			read[slot/abi.CacheBlockSize] = true
		}
	}
	mark(s.shared)
	mark(pending)
	for _, o := range s.private {
		mark(o)
	}
	s.blocks = slices.DeleteFunc(s.blocks, func(b int32) bool {
		if !read[b] {
			s.pool.give(b)
		}
		return !read[b]
	})
}

// Release gives all blocks back. The sequence must not be used afterwards.
func (s *Sequence) Release() {
	s.pool.give(s.blocks...)
	s.blocks, s.shared, s.private = nil, nil, nil
}
