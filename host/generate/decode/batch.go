package decode

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/memory"
	"github.com/opgraft/graft/host/generate/cache"
	"github.com/opgraft/graft/host/generate/prepare"
)

// AutoBatch as Options.Batch lets as many requests be in flight as memory holds.
const AutoBatch = prepare.AutoBatch

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
	_, self, _, cross := g.engine.Memory() // the pools retain what they once took
	if g.helper != nil {
		_, more, _, beside := g.helper.engine.Memory()
		self, cross = self+more, cross+beside
	}
	return available/5*4 + self + cross
}

// room says whether another request may be started beside those in flight.
func (l *loop) room() bool {
	n := int64(len(l.active))
	if n == 0 {
		return true // or else start says what is missing
	}
	_, _, cross, _ := l.engine.Memory()
	taken := l.pledged + cross
	return l.budget == 0 || taken+taken/n <= l.budget
}

// encodedBytes is what layers of cross attention will read of an input, as far as that
// is known before it is encoded.
func (l *loop) encodedBytes(p *pending) int64 {
	in := p.input
	positions := len(in.Tokens)
	switch {
	case !l.engine.HasEncoder() || in.Features != nil && len(l.active) == 0:
		return 0
	case in.Features != nil:
		positions = l.active[0].cross.Len() // features of one shape make as many positions
	}
	return l.engine.EncodedBytes(positions, p.call.rows)
}

// left reports bytes that the pools cannot promise beside what they promised already.
func (l *loop) left(need int64) error {
	_, _, cross, _ := l.engine.Memory()
	if free := l.engine.Room() - l.pledged - cross; need > free {
		return fmt.Errorf("%w: %d bytes may be needed, %d are left; allow a larger cache, or fewer beams or shorter outputs",
			cache.ErrFull, need, max(free, 0))
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

// alone reports an input for which memory is not enough even with no other beside it.
func alone(in *Input, cause error) error {
	return fmt.Errorf("input %d: memory ran out with this input alone: %w; shorten it, take fewer beams, or lower "+
		"max_length or max_new_tokens", in.Index, cause)
}

// retreat starts the requests in flight again, half as many at once, when memory ran
// out in a step. Another error of the engine ends all calls.
func (l *loop) retreat(cause error) {
	switch {
	case !exhausted(cause):
		l.failAll(cause)
	case len(l.active) == 1:
		l.fail(l.active[0].call, alone(l.active[0].input, cause))
	default:
		l.reduced, l.largest = len(l.active)/2, 0
		l.restart()
	}
}

// restart takes all requests out, to be started again. What they generate does not depend on the batch.
func (l *loop) restart() {
	var list []*pending
	for _, r := range l.active {
		list = append(list, &pending{r.call, r.input})
		l.release(r)
	}
	clear(l.active)
	l.active = l.active[:0]
	l.again = append(list, l.again...)
}
