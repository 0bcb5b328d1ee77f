package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/rewrite/engine"
)

// states are what sequences keep of the decoder's recurrent states.
type states struct {
	list        []engine.State
	bytes, peak int64
}

// rowBytes are those of one row.
func (k *states) rowBytes() (n int64) {
	for i := range k.list {
		n += 4 * int64(k.list[i].Floats())
	}
	return n
}

func (k *states) count(rows int) {
	k.bytes += int64(rows) * k.rowBytes()
	k.peak = max(k.peak, k.bytes)
}

// rowStates are the states of a sequence: of each, those of its rows one after the other.
type rowStates struct {
	of   *states
	rows int
	data [][]float32
}

// newRowStates are those of one row that has seen nothing.
func newRowStates(k *states) *rowStates {
	s := &rowStates{of: k, rows: 1}
	for i := range k.list {
		s.data = append(s.data, make([]float32, k.list[i].Floats()))
	}
	k.count(1)
	return s
}

// reorder makes row i a copy of what row parents[i] was.
func (s *rowStates) reorder(parents []int) {
	for i, old := range s.data {
		size := s.of.list[i].Floats()
		s.data[i] = make([]float32, 0, len(parents)*size)
		for _, p := range parents {
			s.data[i] = append(s.data[i], old[p*size:(p+1)*size]...)
		}
	}
	s.of.count(len(parents) - s.rows)
	s.rows = len(parents)
}

func (s *rowStates) release() {
	s.of.count(-s.rows)
	s.rows, s.data = 0, nil
}

// HasStates reports a decoder with recurrent states: its sequences never lose positions again.
func (e *Engine) HasStates() bool { return len(e.states.list) > 0 }

// oneByOne is a step of a decoder with recurrent states, which go from one token to the next: tokens of a prompt run
// one after the other, those of several prompts beside one another.
func (e *Engine) oneByOne(ctx context.Context, feeds []Feed) (*Scores, error) {
	longest := 0
	for i, f := range feeds {
		switch {
		case f.Drafted > 0:
			return nil, fmt.Errorf("sequence %d of the step: drafted tokens, which recurrent states could not forget again", i)
		case f.Prompt && f.Sequence.Rows() != 1:
			return nil, fmt.Errorf("sequence %d of the step: a prompt of %d rows", i, f.Sequence.Rows())
		case f.Prompt:
			longest = max(longest, len(f.Tokens))
		}
	}
	if longest <= 1 {
		return e.together(ctx, feeds)
	}
	result := &Scores{}
	rows := make([][]float32, len(feeds))
	for at := range longest {
		var run []Feed
		var of []int
		for i, f := range feeds {
			if f.Prompt && at < len(f.Tokens) {
				f.unscored = !f.All && at < len(f.Tokens)-1
				f.Tokens = f.Tokens[at : at+1]
			} else if f.Prompt || at > 0 {
				continue
			}
			run, of = append(run, f), append(of, i)
		}
		scores, err := e.together(ctx, run)
		if err != nil {
			return nil, err
		}
		result.Vocab = scores.Vocab
		data := scores.Data
		for i, f := range run {
			if !f.unscored {
				n := len(f.Tokens) * scores.Vocab
				rows[of[i]], data = append(rows[of[i]], data[:n]...), data[n:]
			}
		}
	}
	for _, list := range rows {
		result.Data = append(result.Data, list...)
	}
	result.Rows = len(result.Data) / result.Vocab
	return result, nil
}

// feedStates gives each row of a step its states.
func (b *stepBuffers) feedStates(e *Engine, in *feeder) {
	for i, state := range e.states.list {
		var list []float32
		for _, s := range b.rows {
			list = append(list, s.states.data[i]...)
		}
		add(in, state.Input, list, append([]int64{int64(len(b.tokens))}, state.Shape...)...)
	}
}

// takeStates gives the rows what a step made of their states.
func (b *stepBuffers) takeStates(values []*ort.Value) error {
	for i, v := range values {
		list, err := ort.Data[float32](v)
		if err != nil {
			return err
		}
		for _, s := range b.rows {
			if len(list) < len(s.states.data[i]) {
				return errors.New("a step made fewer states than it has rows")
			}
			list = list[copy(s.states.data[i], list):]
		}
	}
	return nil
}
