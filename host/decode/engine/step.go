package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/rewrite"
)

// stepWidth is the number of numbers that describe a group of rows: its first
// row, its rows, where its shared slots begin and how many they are, where its
// rows' own slots begin and how many each has, whether it is causal, and zero.
const stepWidth = 8

// stepBuffers are the inputs of a step, used again and again.
type stepBuffers struct {
	tokens, positions, selected []int64
	steps, shared, own, write   []int32
	crossSteps, crossShared     []int32
	scores                      *ort.Value
}

func (b *stepBuffers) close() {
	if b.scores != nil {
		b.scores.Close()
		b.scores = nil
	}
}

// fill lets the samples grow by what they are fed and describes it.
func (b *stepBuffers) fill(e *Engine, feeds []Feed) error {
	b.tokens, b.positions, b.selected = b.tokens[:0], b.positions[:0], b.selected[:0]
	b.steps, b.shared, b.own, b.write = b.steps[:0], b.shared[:0], b.own[:0], b.write[:0]
	b.crossSteps, b.crossShared = b.crossSteps[:0], b.crossShared[:0]
	for i, f := range feeds {
		if err := b.feed(e, f); err != nil {
			return fmt.Errorf("sample %d of the step: %w", i, err)
		}
	}
	return nil
}

func (b *stepBuffers) feed(e *Engine, f Feed) error {
	s, n := f.Sample, len(f.Tokens)
	first, past := len(b.tokens), s.Len()
	grown := past + 1
	if f.Prompt {
		grown = past + n
	}
	switch {
	case n == 0:
		return errors.New("no tokens")
	case !f.Prompt && n != s.Rows():
		return fmt.Errorf("%d tokens for %d rows", n, s.Rows())
	case int64(grown) > e.positions:
		return fmt.Errorf("%d positions, the model has %d", grown, e.positions)
	case (f.Cross == nil) != (e.cross == nil):
		return errors.New("the encoder's side is missing, or there is none")
	}
	b.write = append(b.write, make([]int32, n)...)
	slots := b.write[first:]
	causal := int32(0)
	if f.Prompt {
		added, err := s.Extend(n)
		if err != nil {
			return err
		}
		copy(slots, added)
		causal = 1
		for i := range n {
			b.positions = append(b.positions, int64(past+i))
		}
		b.selected = append(b.selected, int64(first+n-1))
	} else {
		if err := s.Append(slots); err != nil {
			return err
		}
		for i := range n {
			b.positions = append(b.positions, int64(past))
			b.selected = append(b.selected, int64(first+i))
		}
	}
	b.tokens = append(b.tokens, f.Tokens...)
	own := len(s.Own(0))
	b.steps = append(b.steps, int32(first), int32(n), int32(len(b.shared)), int32(len(s.Shared())), int32(len(b.own)), int32(own), causal, 0)
	b.shared = append(b.shared, s.Shared()...)
	for row := range s.Rows() {
		b.own = append(b.own, s.Own(row)...)
	}
	if f.Cross != nil {
		b.crossSteps = append(b.crossSteps, int32(first), int32(n), int32(len(b.crossShared)), int32(len(f.Cross.Shared())), 0, 0, 0, 0)
		b.crossShared = append(b.crossShared, f.Cross.Shared()...)
	}
	return nil
}

// run feeds the buffers to the session.
func (b *stepBuffers) run(ctx context.Context, e *Engine) (*Scores, error) {
	b.close()
	in := &feeder{library: e.library, values: map[string]*ort.Value{}}
	defer in.close()
	rows := int64(len(b.tokens))
	add(in, e.face.Tokens, b.tokens, rows, 1)
	if e.face.Positions {
		add(in, rewrite.PositionsInput, b.positions, rows, 1)
	}
	add(in, rewrite.SelectInput, b.selected, int64(len(b.selected)))
	add(in, rewrite.StepsInput, b.steps, int64(len(b.steps)/stepWidth), stepWidth)
	add(in, rewrite.SharedInput, b.shared, int64(len(b.shared)))
	add(in, rewrite.OwnInput, b.own, int64(len(b.own)))
	add(in, rewrite.WriteInput, b.write, rows)
	in.values[rewrite.CacheInput] = e.self.tensor
	if e.cross != nil {
		add(in, rewrite.CrossStepsInput, b.crossSteps, int64(len(b.crossSteps)/stepWidth), stepWidth)
		add(in, rewrite.CrossSharedInput, b.crossShared, int64(len(b.crossShared)))
		in.values[rewrite.CrossCacheInput] = e.cross.tensor
	}
	if in.err != nil {
		return nil, in.err
	}
	results, err := e.decoder.Run(ctx, in.values, e.face.Logits)
	if err != nil {
		return nil, err
	}
	b.scores = results[0]
	data, err := ort.Data[float32](b.scores)
	if err != nil {
		return nil, err
	}
	count := len(b.selected)
	return &Scores{Data: data, Rows: count, Vocab: len(data) / count}, nil
}

// feeder collects the inputs of a run and the first error.
type feeder struct {
	library *ort.Library
	values  map[string]*ort.Value
	made    []*ort.Value
	err     error
}

func (f *feeder) close() {
	for _, v := range f.made {
		v.Close()
	}
}

// add makes a tensor over a list.
func add[T ort.Element](f *feeder, name string, list []T, shape ...int64) {
	if f.err != nil {
		return
	}
	v, err := ort.NewTensor(f.library, shape, list)
	if err != nil {
		f.err = fmt.Errorf("input %s: %w", name, err)
		return
	}
	f.made = append(f.made, v)
	f.values[name] = v
}
