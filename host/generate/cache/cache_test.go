package cache

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/internal/must"
)

// small blocks have a float for each slot, which says everything.
const small = abi.CacheBlockSize

const smallBytes = 4 * small

func newPool(t *testing.T, blocks int64) *Pool {
	t.Helper()
	p := must.Value(NewPool(small, NewBudget(blocks*smallBytes)))(t)
	return p
}

// of is what a slot holds.
func (p *Pool) of(slot int32) *float32 { return &p.Floats()[p.At(slot, 0, 1)] }

// row is a sequence as a copy would store it.
type row []float32

// check compares a sequence with copies of its rows.
func check(p *Pool, s *Sequence, rows []row) error {
	if s.Rows() != len(rows) {
		return fmt.Errorf("%d rows, want %d", s.Rows(), len(rows))
	}
	for i, want := range rows {
		slots := slices.Concat(s.Shared(), s.Private(i))
		if len(slots) != len(want) || s.Len() != len(want) {
			return fmt.Errorf("row %d has %d positions, want %d", i, len(slots), len(want))
		}
		for j, slot := range slots {
			if got := *p.of(slot); got != want[j] {
				return fmt.Errorf("row %d position %d holds %g, want %g", i, j, got, want[j])
			}
		}
	}
	if len(s.Private(0)) > 0 {
		first := s.Private(0)[0]
		if !slices.ContainsFunc(s.private, func(o []int32) bool { return o[0] != first }) {
			return errors.New("all rows agree on a position that is not shared")
		}
	}
	return nil
}

// TestSequencesAgainstCopies lets many sequences grow, fork, reorder, shrink and
// end at random in one pool, against rows that are copied outright.
func TestSequencesAgainstCopies(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	for round := range 300 {
		p := newPool(t, 400)
		next := float32(0)
		store := func(slot int32) float32 {
			next++
			*p.of(slot) = next
			return next
		}
		var sequences []*Sequence
		var copies [][]row
		for range 120 {
			if len(sequences) == 0 || len(sequences) < 4 && r.IntN(8) == 0 {
				s := NewSequence(p)
				slots := must.Value(s.Extend(r.IntN(40)))(t)
				copied := row{}
				for _, slot := range slots {
					copied = append(copied, store(slot))
				}
				sequences, copies = append(sequences, s), append(copies, []row{copied})
			}
			i := r.IntN(len(sequences))
			s, rows := sequences[i], copies[i]
			switch r.IntN(10) {
			case 0:
				s.Release()
				sequences, copies = slices.Delete(sequences, i, i+1), slices.Delete(copies, i, i+1)
				continue
			case 1, 2, 3, 4:
				parents := make([]int, 1+r.IntN(5))
				for j := range parents {
					parents[j] = r.IntN(len(rows))
				}
				must.Succeed(t, s.Reorder(parents))
				moved := make([]row, len(parents))
				for j, parent := range parents {
					moved[j] = slices.Clone(rows[parent])
				}
				copies[i] = moved
			default:
				slots := make([]int32, s.Rows())
				must.Succeed(t, s.Append(slots))
				for j, slot := range slots {
					rows[j] = append(rows[j], store(slot))
				}
			}
			for k := range sequences {
				must.Succeed(t, check(p, sequences[k], copies[k]), "round", round, "sequence", k)
			}
		}
		for _, s := range sequences {
			s.Release()
		}
		if p.Bytes() != 0 {
			t.Fatalf("round %d: %d bytes are in use after every sequence ended", round, p.Bytes())
		}
		must.Succeed(t, p.Close())
	}
}

// Long generations store only what a row still reads.
func TestBlocksOfDeadRowsAreGivenBack(t *testing.T) {
	p := newPool(t, 64)
	defer p.Close()
	s := NewSequence(p)
	must.Succeed(t, s.Reorder([]int{0, 0, 0, 0}))
	slots := make([]int32, 4)
	for step := range 1 << 10 {
		must.Succeed(t, s.Append(slots), "step", step)
		// The last row always dies out: its slots are read by none.
		must.Succeed(t, s.Reorder([]int{0, 0, 1, 2}))
		if step == 180 {
			break
		}
	}
	if want := int64(64) * smallBytes; p.Peak() > want {
		t.Errorf("%d bytes at most, want %d", p.Peak(), want)
	}
}

// A step of more rows than a block has slots fills a block with slots that no row reads yet.
func TestMoreRowsThanSlots(t *testing.T) {
	const rows = 3*abi.CacheBlockSize + 2
	p := newPool(t, 32)
	defer p.Close()
	s := NewSequence(p)
	must.Value(s.Extend(5))(t)
	must.Succeed(t, s.Reorder(make([]int, rows)))
	seen := map[int32]bool{}
	for step := range 3 {
		slots := make([]int32, rows)
		must.Succeed(t, s.Append(slots))
		for _, slot := range slots {
			if seen[slot] {
				t.Fatalf("step %d: slot %d is given twice", step, slot)
			}
			seen[slot] = true
		}
	}
}

func TestFullPool(t *testing.T) {
	p := newPool(t, 2)
	defer p.Close()
	s := NewSequence(p)
	must.Fail(t, must.Error(s.Extend(33)), ErrFull)
	must.Equal(t, s.Len(), 0)
	s.Release()
	s = NewSequence(p)
	must.Value(s.Extend(32))(t)
}

// TestTruncate: positions that are taken away again leave a sequence as if they had never come, block for block, with
// one row and with several.
func TestTruncate(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 6))
	for round := range 200 {
		p := newPool(t, 400)
		next := float32(0)
		store := func(slot int32) float32 {
			next++
			*p.of(slot) = next
			return next
		}
		s := NewSequence(p)
		rows := []row{{}}
		for range 30 {
			if r.IntN(3) == 0 {
				parents := make([]int, 1+r.IntN(5))
				moved := make([]row, len(parents))
				for j := range parents {
					parents[j] = r.IntN(len(rows))
					moved[j] = slices.Clone(rows[parents[j]])
				}
				must.Succeed(t, s.Reorder(parents))
				rows = moved
			}
			stay, more := r.IntN(4), r.IntN(40)
			grow := func(n int) {
				if len(rows) == 1 {
					slots := must.Value(s.Extend(n))(t)
					for _, slot := range slots {
						rows[0] = append(rows[0], store(slot))
					}
					return
				}
				for range n {
					slots := make([]int32, len(rows))
					must.Succeed(t, s.Append(slots))
					for i, slot := range slots {
						rows[i] = append(rows[i], store(slot))
					}
				}
			}
			grow(stay)
			before, filled := p.Bytes(), s.filled
			grow(more)
			must.Succeed(t, s.Truncate(more))
			for i := range rows {
				rows[i] = rows[i][:len(rows[i])-more]
			}
			must.Succeed(t, check(p, s, rows), "round", round)
			if p.Bytes() > before || s.filled != filled {
				t.Fatalf("round %d: %d positions of %d rows came and went: %d bytes in use, %d before", round, more, len(rows),
					p.Bytes(), before)
			}
		}
		s.Release()
		if p.Bytes() != 0 {
			t.Fatalf("round %d: %d bytes are in use after the end", round, p.Bytes())
		}
		must.Succeed(t, p.Close())
	}
}

// TestTruncateRefuses: what was not given last is not taken away.
func TestTruncateRefuses(t *testing.T) {
	p := newPool(t, 16)
	defer p.Close()
	grown := func(parents ...int) *Sequence {
		s := NewSequence(p)
		must.Value(s.Extend(20))(t)
		if parents == nil {
			return s
		}
		must.Succeed(t, s.Reorder(parents))
		must.Succeed(t, s.Append(make([]int32, len(parents))))
		return s
	}
	survivor := grown(0, 0, 0)
	must.Succeed(t, survivor.Reorder([]int{0}))
	for _, c := range []struct {
		name string
		s    *Sequence
		n    int
		want string
	}{
		{"more than there are", grown(), 21, "21 positions are taken from 1 rows of 20 shared and 0 private ones"},
		{"fewer than none", grown(), -1, "-1 positions are taken from 1 rows of 20 shared and 0 private ones"},
		{"what rows share", grown(0, 0), 2, "2 positions are taken from 2 rows of 20 shared and 1 private ones"},
		{"a row that is left of several", survivor, 1,
			fmt.Sprintf("slot %d is taken from a sequence that was not given it last", survivor.Shared()[20])},
	} {
		before, bytes := slices.Clone(c.s.Shared()), c.s.Bytes()
		must.FailExactly(t, c.s.Truncate(c.n), c.want)
		if !slices.Equal(c.s.Shared(), before) || c.s.Bytes() != bytes {
			t.Errorf("%s: the sequence has changed", c.name)
		}
	}
}
