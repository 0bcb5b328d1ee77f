package engine

import (
	"errors"

	"github.com/opgraft/graft/host/generate/cache"
)

// Sequence is what layers of self attention store of one request in flight.
type Sequence struct {
	prompt *cache.Sequence // the prompt's positions, where they are stored apart; else nil
	own    *cache.Sequence // all others
	// beside holds a slot for the placeholder of each row, written anew in every step; nil before the first, and without
	// placeholders.
	beside *cache.Sequence
	states *rowStates // nil without recurrent states
}

// NewSequence is an empty sequence of the decoder, of one row.
func (e *Engine) NewSequence() *Sequence {
	s := &Sequence{own: cache.NewSequence(e.self.Pool)}
	if e.prompt != nil {
		s.prompt = cache.NewSequence(e.prompt.Pool)
	}
	if e.HasStates() {
		s.states = newRowStates(&e.states)
	}
	return s
}

// Rows is the number of rows.
func (s *Sequence) Rows() int { return s.own.Rows() }

// Len is the number of positions of each row.
func (s *Sequence) Len() int {
	n := s.own.Len()
	if s.prompt != nil {
		n += s.prompt.Len()
	}
	return n
}

// Bytes is what the sequence's blocks take.
func (s *Sequence) Bytes() int64 {
	n := s.own.Bytes()
	for _, part := range []*cache.Sequence{s.prompt, s.beside} {
		if part != nil {
			n += part.Bytes()
		}
	}
	if s.states != nil {
		n += int64(s.states.rows) * s.states.of.rowBytes()
	}
	return n
}

// Reorder makes row i a copy of what row parents[i] was.
func (s *Sequence) Reorder(parents []int) error {
	if err := s.own.Reorder(parents); err != nil || s.states == nil {
		return err
	}
	s.states.reorder(parents)
	return nil
}

// Truncate takes the last n positions of each row away: those of drafted tokens that were not chosen.
func (s *Sequence) Truncate(n int) error {
	if s.states != nil && n > 0 {
		return errors.New("recurrent states cannot forget positions")
	}
	return s.own.Truncate(n)
}

// Release gives all blocks back. The sequence must not be used afterwards.
func (s *Sequence) Release() {
	s.own.Release()
	for _, part := range []*cache.Sequence{s.prompt, s.beside} {
		if part != nil {
			part.Release()
		}
	}
	if s.states != nil {
		s.states.release()
	}
}

// Encoded is what layers of cross attention read of one input.
type Encoded struct {
	keys   *cache.Sequence // keys, or keys and values, of layers; nil where none are stored
	output *cache.Sequence // the encoder's output; nil where it is not stored
}

// Len is the number of positions of the encoder's output.
func (s *Encoded) Len() int {
	if s.output != nil {
		return s.output.Len()
	}
	return s.keys.Len()
}

// Bytes is what is stored.
func (s *Encoded) Bytes() (n int64) {
	for _, part := range []*cache.Sequence{s.keys, s.output} {
		if part != nil {
			n += part.Bytes()
		}
	}
	return n
}

// Release gives all blocks back.
func (s *Encoded) Release() {
	for _, part := range []*cache.Sequence{s.keys, s.output} {
		if part != nil {
			part.Release()
		}
	}
	s.keys, s.output = nil, nil
}
