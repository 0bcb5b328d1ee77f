package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/generate/cache"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/rewrite/engine"
)

// stepBuffers are the inputs of a step, used again and again.
type stepBuffers struct {
	tokens, positions, selected []int64
	lines                       []int64 // of tables that a prompt's tokens and others look up
	self, prompt, cross, output lists
	rows                        []*Sequence // of the tokens, where the decoder has recurrent states
	scores                      *ort.Value
}

// lists are the groups and slots of one pool.
type lists struct {
	sequences, sharedSlots, privateSlots, slotMapping []int32
}

func (l *lists) reset() {
	l.sequences, l.sharedSlots, l.privateSlots, l.slotMapping = l.sequences[:0], l.sharedSlots[:0], l.privateSlots[:0],
		l.slotMapping[:0]
}

// group adds a group of n rows from a first row on, with the slots of a sequence, which
// may be nil: it sees nothing of the pool.
func (l *lists) group(first, n int, s *cache.Sequence, causal int32) {
	d := [abi.SequenceColumns]int32{
		abi.SequenceFirstToken: int32(first), abi.SequenceTokens: int32(n),
		abi.SequenceSharedOffset: int32(len(l.sharedSlots)), abi.SequencePrivateOffset: int32(len(l.privateSlots)),
	}
	if s == nil {
		l.sequences = append(l.sequences, d[:]...)
		return
	}
	d[abi.SequenceShared], d[abi.SequencePrivate], d[abi.SequenceCausal] = int32(len(s.Shared())),
		int32(len(s.Private(0))), causal
	l.sequences = append(l.sequences, d[:]...)
	l.sharedSlots = append(l.sharedSlots, s.Shared()...)
	if len(s.Private(0)) == 0 {
		return
	}
	for row := range s.Rows() {
		l.privateSlots = append(l.privateSlots, s.Private(row)...)
	}
}

// groupBeside adds a group of rows from a first row on that see what the rows of a sequence see, and after it a slot
// of their own.
func (l *lists) groupBeside(first int, s *cache.Sequence, slots []int32) {
	d := [abi.SequenceColumns]int32{
		abi.SequenceFirstToken: int32(first), abi.SequenceTokens: int32(len(slots)),
		abi.SequenceSharedOffset: int32(len(l.sharedSlots)), abi.SequenceShared: int32(len(s.Shared())),
		abi.SequencePrivateOffset: int32(len(l.privateSlots)), abi.SequencePrivate: int32(len(s.Private(0)) + 1),
	}
	l.sequences = append(l.sequences, d[:]...)
	l.sharedSlots = append(l.sharedSlots, s.Shared()...)
	for row, slot := range slots {
		l.privateSlots = append(append(l.privateSlots, s.Private(row)...), slot)
	}
}

// add makes the inputs of a pool, if there is one.
func (l *lists) add(f *feeder, names engine.PoolInputs, p *pool) {
	if p == nil {
		return
	}
	f.values[names.Cache] = p.tensor
	add(f, names.Sequences, l.sequences, int64(len(l.sequences)/abi.SequenceColumns), abi.SequenceColumns)
	add(f, names.SharedSlots, l.sharedSlots, int64(len(l.sharedSlots)))
}

func (b *stepBuffers) close() {
	if b.scores != nil {
		b.scores.Close()
		b.scores = nil
	}
}

// fill lets the sequences grow by what they are fed and describes it.
func (b *stepBuffers) fill(e *Engine, feeds []Feed) error {
	b.tokens, b.positions, b.selected, b.lines = b.tokens[:0], b.positions[:0], b.selected[:0], b.lines[:0]
	b.rows = b.rows[:0]
	for _, l := range []*lists{&b.self, &b.prompt, &b.cross, &b.output} {
		l.reset()
	}
	for i, f := range feeds {
		if err := b.feed(e, f); err != nil {
			return fmt.Errorf("sequence %d of the step: %w", i, err)
		}
		if e.HasStates() {
			b.rows = append(b.rows, f.Sequence)
		}
	}
	if len(b.selected) == 0 {
		b.selected = append(b.selected, 0) // of a step whose scores nobody asks for: operators need a row
	}
	return nil
}

func (b *stepBuffers) feed(e *Engine, f Feed) error {
	s, n := f.Sequence, len(f.Tokens)
	first, past := len(b.tokens), s.Len()
	grown, rows := past+1+f.Drafted/s.Rows(), s.Rows()+f.Drafted
	if f.Prompt {
		grown, rows = past+n, n
	}
	switch {
	case n == 0:
		return errors.New("no tokens")
	case n != rows:
		return fmt.Errorf("%d tokens for %d rows, %d of them drafted", n, s.Rows(), f.Drafted)
	case f.Drafted != 0 && (f.Drafted < 0 || f.Prompt || f.Drafted%s.Rows() != 0):
		return fmt.Errorf("%d drafted tokens after a prompt or %d rows, needed are equally many for each row", f.Drafted,
			s.Rows())
	case e.placeholder != nil && (f.Drafted != 0 || f.All):
		return errors.New("the model predicts in the place of one placeholder after each row, and gives scores for no " +
			"other token")
	case int64(grown+e.beside()) > e.positions:
		return fmt.Errorf("%d positions, the model has %d", grown+e.beside(), e.positions)
	case (f.Cross == nil) != (e.encoder == nil):
		return errors.New("the encoder's side is missing, or there is none")
	}
	for i := range n {
		at := past
		if f.Prompt {
			at += i
		} else {
			at += i / s.Rows()
		}
		if e.placeholder == nil && f.scored(i, s.Rows()) {
			b.selected = append(b.selected, int64(first+i))
		}
		b.place(e, at, f.Prompt && past == 0)
	}
	b.tokens = append(b.tokens, f.Tokens...)
	grow := b.decode
	switch {
	case f.Prompt:
		grow = b.prefill
		if e.graph.Prefix && past == 0 {
			grow = b.prefix
		}
	case f.Drafted > 0:
		grow = b.verify
	}
	if err := grow(s, first, n); err != nil {
		return err
	}
	if e.placeholder != nil {
		more, err := b.placeholders(e, s, first+n)
		if err != nil {
			return err
		}
		n += more
	}
	if f.Cross != nil {
		b.cross.group(first, n, f.Cross.keys, 0)
		b.output.group(first, n, f.Cross.output, 0)
	}
	return nil
}

// scored says whether the scores after a token are asked for.
func (f *Feed) scored(token, rows int) bool {
	switch {
	case f.unscored:
		return false
	case f.Prompt:
		return f.All || token == len(f.Tokens)-1
	case f.Last:
		return token >= len(f.Tokens)-rows
	}
	return true
}

// prefill lets a sequence grow by a prompt, whose tokens see what is not after them.
func (b *stepBuffers) prefill(s *Sequence, first, n int) error { return b.read(s, first, n, 1) }

// prefix lets a sequence grow by a prompt whose tokens see all of it.
func (b *stepBuffers) prefix(s *Sequence, first, n int) error { return b.read(s, first, n, 0) }

// read lets a sequence grow by a prompt.
func (b *stepBuffers) read(s *Sequence, first, n int, causal int32) error {
	if s.prompt == nil {
		slots, err := s.own.Extend(n)
		if err != nil {
			return err
		}
		b.self.slotMapping = append(b.self.slotMapping, slots...)
		b.self.group(first, n, s.own, causal)
		return nil
	}
	if s.own.Len() > 0 {
		return errors.New("a prompt after tokens that were generated")
	}
	slots, err := s.prompt.Extend(n)
	if err != nil {
		return err
	}
	b.prompt.slotMapping = append(b.prompt.slotMapping, slots...)
	b.prompt.group(first, n, s.prompt, causal)
	b.self.slotMapping = append(b.self.slotMapping, none(n)...)
	b.self.group(first, n, nil, 0)
	return nil
}

// verify lets each row of a sequence grow by a token and drafted ones after it.
func (b *stepBuffers) verify(s *Sequence, first, n int) error {
	rows := s.Rows()
	if rows == 1 && s.prompt == nil {
		return b.prefill(s, first, n)
	}
	// Tokens of several rows, or with positions in both pools, make a group for each position: those of one group see
	// equally many.
	for at := 0; at < n; at += rows {
		if err := b.decode(s, first+at, rows); err != nil {
			return err
		}
	}
	return nil
}

// decode lets each row of a sequence grow by a token.
func (b *stepBuffers) decode(s *Sequence, first, n int) error {
	b.self.slotMapping = append(b.self.slotMapping, none(n)...)
	if err := s.own.Append(b.self.slotMapping[first:]); err != nil {
		return err
	}
	b.self.group(first, n, s.own, 0)
	if s.prompt != nil {
		b.prompt.slotMapping = append(b.prompt.slotMapping, none(n)...)
		b.prompt.group(first, n, s.prompt, 0)
	}
	return nil
}

// none are n slots that nothing is written to.
func none(n int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = abi.CacheNoSlot
	}
	return list
}

// run feeds the buffers to the session.
func (b *stepBuffers) run(ctx context.Context, e *Engine) (*Scores, error) {
	b.close()
	in := &feeder{library: e.library, values: map[string]*ort.Value{}}
	defer in.close()
	rows := int64(len(b.tokens))
	add(in, e.graph.Tokens, b.tokens, rows, 1)
	if e.graph.Positions {
		add(in, engine.PositionsInput, b.positions, rows, 1)
	}
	if e.graph.Lines {
		add(in, engine.LinesInput, b.lines, rows)
	}
	add(in, engine.SelectInput, b.selected, int64(len(b.selected)))
	if e.graph.Self > 0 {
		b.self.add(in, engine.SelfPool, e.self)
		add(in, engine.SelfPool.PrivateSlots, b.self.privateSlots, int64(len(b.self.privateSlots)))
		add(in, engine.SelfPool.SlotMapping, b.self.slotMapping, rows)
	}
	if e.prompt != nil {
		add(in, engine.PromptPool.SlotMapping, b.prompt.slotMapping, rows)
	}
	b.prompt.add(in, engine.PromptPool, e.prompt)
	b.cross.add(in, engine.CrossPool, e.cross)
	b.output.add(in, engine.EncoderPool, e.output)
	b.feedStates(e, in)
	if in.err != nil {
		return nil, in.err
	}
	outputs := append([]string{e.graph.Logits}, e.graph.Skipped...)
	for _, s := range e.states.list {
		outputs = append(outputs, s.Output)
	}
	results, err := e.decoder.Run(ctx, in.values, outputs...)
	if err != nil {
		return nil, err
	}
	b.scores = results[0]
	skipped := 1 + len(e.graph.Skipped)
	for _, v := range results[1:skipped] {
		err = errors.Join(err, b.left(e, v))
	}
	err = errors.Join(err, b.takeStates(results[skipped:]))
	for _, v := range results[1:] {
		v.Close()
	}
	if err != nil {
		return nil, err
	}
	data, err := ort.Data[float32](b.scores)
	if err != nil {
		return nil, err
	}
	count := len(b.selected)
	return &Scores{Data: data, Rows: count, Vocab: len(data) / count}, nil
}

// left counts what a layer left out.
func (b *stepBuffers) left(e *Engine, v *ort.Value) error {
	list, err := ort.Data[float32](v)
	for _, p := range list {
		x := float64(p)
		e.skips++
		e.skipped.Greatest = max(e.skipped.Greatest, x)
		e.skipped.Mean += (x - e.skipped.Mean) / float64(e.skips)
	}
	return err
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
