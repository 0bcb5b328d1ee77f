package decode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/decode/cache"
	"github.com/opgraft/graft/host/decode/prepare"
	"github.com/opgraft/graft/host/memory"
)

// AutoBatch as Options.Batch lets as many samples be under way as memory holds.
const AutoBatch = prepare.AutoBatch

// limit is the most samples that a run may have under way.
func (g *Generator) limit(rows int) int { return prepare.Limit(g.options.Batch, rows) }

// Batch is the most samples that are let under way at once, or, with AutoBatch and
// after a run, the most that were.
func (g *Generator) Batch() int { return g.batch }

// budget is how many bytes of keys and values may be taken when nobody set a bound:
// what the machine can spare, a fifth left for activations and others; 0 is any.
func (g *Generator) budget() int64 {
	if g.bounded {
		return 0 // the pools' own size
	}
	available := memory.Available()
	if available == 0 {
		return 0
	}
	_, self, _, cross := g.engine.Memory() // the pools keep what they once took
	return available/5*4 + self + cross
}

// room says whether another sample may be begun beside those under way.
func (r *run) room() bool {
	n := int64(len(r.active))
	if n == 0 {
		return true // or else start says what is missing
	}
	_, _, cross, _ := r.engine.Memory()
	taken := r.pledged + cross
	return r.budget == 0 || taken+taken/n <= r.budget
}

// encodedBytes is what layers of cross attention will read of an input, as far as that
// is known before it is encoded.
func (r *run) encodedBytes(in *Input) int64 {
	positions := len(in.Tokens)
	switch {
	case !r.engine.HasEncoder() || in.Features != nil && len(r.active) == 0:
		return 0
	case in.Features != nil:
		positions = r.active[0].cross.Len() // features of one shape make as many positions
	}
	return r.engine.EncodedBytes(positions, max(r.o.NumBeams, r.o.NumReturnSequences))
}

// left reports bytes that the pools cannot promise beside what they promised already.
func (r *run) left(need int64) error {
	_, _, cross, _ := r.engine.Memory()
	if free := r.engine.Room() - r.pledged - cross; need > free {
		return fmt.Errorf("%w: %d bytes may be needed, %d are left; allow a larger cache, or fewer beams or shorter outputs", cache.ErrFull, need, max(free, 0))
	}
	return nil
}

// exhausted says whether an error is that memory ran out, in ONNX Runtime, in an
// operator or in the pool.
func exhausted(err error) bool {
	if errors.Is(err, cache.ErrFull) {
		return true
	}
	text := err.Error()
	return slices.ContainsFunc([]string{"Failed to allocate memory", "bad_alloc", "out of memory"}, func(s string) bool {
		return strings.Contains(text, s)
	})
}

// draw gives the next input: one that has to be begun again, or a new one; nil when
// there is none.
func (r *run) draw() (*Input, error) {
	if len(r.again) > 0 {
		in := r.again[0]
		r.again = r.again[1:]
		return in, nil
	}
	if r.ended {
		return nil, nil
	}
	in, err := r.next()
	r.ended = in == nil
	return in, err
}

// admit takes in samples while there is room.
func (r *run) admit(ctx context.Context) error {
	for tokens := 0; len(r.active) < r.batch && tokens < r.options.StepTokens; {
		in, err := r.draw()
		if in == nil || err != nil {
			return err
		}
		var s *sample
		if err = cache.ErrFull; r.room() {
			s, err = r.start(ctx, in)
		}
		if err != nil && exhausted(err) && len(r.active) > 0 {
			if !errors.Is(err, cache.ErrFull) {
				r.batch = len(r.active)
			}
			r.again = slices.Insert(r.again, 0, in) // until another sample has ended
			return nil
		}
		if err != nil && exhausted(err) && !errors.Is(err, cache.ErrFull) {
			return alone(in, err)
		}
		if err != nil {
			return fmt.Errorf("input %d: %w", in.Index, err)
		}
		r.active = append(r.active, s)
		r.most = max(r.most, len(r.active))
		tokens += len(s.prompt)
	}
	return nil
}

// alone reports an input for which memory is not enough even with no other beside it.
func alone(in *Input, cause error) error {
	return fmt.Errorf("input %d: memory ran out with this input alone: %w; shorten it, take fewer beams, or lower max_length or max_new_tokens", in.Index, cause)
}

// retreat begins the samples under way anew, half as many at once, when memory ran
// out in a step. What they generate does not depend on the batch.
func (r *run) retreat(cause error) error {
	if !exhausted(cause) {
		return cause
	}
	if len(r.active) == 1 {
		return alone(r.active[0].input, cause)
	}
	var inputs []*Input
	for _, s := range r.active {
		inputs = append(inputs, s.input)
		r.pledged -= s.pledged
	}
	r.release()
	r.batch, r.most, r.active = len(r.active)/2, 0, nil
	r.again = append(inputs, r.again...)
	return nil
}
