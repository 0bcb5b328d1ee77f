package batch

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// compute runs items and hands each its result. Where the run fails it is done again by halves, so that an item which
// makes a batch fail fails alone.
func (b *Batcher[T, R]) compute(ctx context.Context, batch []*Call[T, R]) {
	items := make([]T, len(batch))
	longest, sum := 0, 0
	for i, c := range batch {
		items[i] = c.item
		longest, sum = max(longest, c.length), sum+c.length
	}
	padded := sum
	if !b.options.Unpadded {
		padded = longest * len(batch)
	}
	start := time.Now()
	results, err := b.call(ctx, items)
	b.mu.Lock()
	took := time.Since(start)
	b.metrics.ran(len(batch), sum, padded, took)
	if err == nil {
		b.cost.add(padded, took.Seconds())
	}
	if err == nil && len(results) != len(items) {
		err = &diagnostic.Error{Found: fmt.Sprintf("the run of a batch returned %d results", len(results)),
			Needed: fmt.Sprintf("%d, one for each input", len(items))}
		b.finish(batch, nil, err)
		b.mu.Unlock()
		return
	}
	if err == nil || len(batch) == 1 || ctx.Err() != nil {
		b.finish(batch, results, err)
		b.mu.Unlock()
		return
	}
	left := batch[:0:0]
	for _, c := range batch {
		if !c.over {
			left = append(left, c)
		}
	}
	b.metrics.Reruns++
	b.mu.Unlock()
	half := (len(left) + 1) / 2
	for _, part := range [][]*Call[T, R]{left[:half], left[half:]} {
		if len(part) > 0 {
			b.compute(ctx, part)
		}
	}
}

// call is the run. One that panics is an error of its batch, as the process serves other callers.
func (b *Batcher[T, R]) call(ctx context.Context, items []T) (results []R, err error) {
	defer func() {
		if p := recover(); p != nil {
			results, err = nil, &diagnostic.Error{Found: fmt.Sprintf("the run of a batch panicked: %v\n%s", p, debug.Stack())}
		}
	}()
	return b.run(ctx, items)
}

// finish hands results or an error to callers that wait. The mutex is held.
func (b *Batcher[T, R]) finish(batch []*Call[T, R], results []R, err error) {
	for i, c := range batch {
		if c.over {
			continue
		}
		if c.over, c.err = true, err; err != nil {
			b.metrics.Failed++
		} else {
			c.result = results[i]
			b.metrics.Computed++
		}
		if c.batch != nil {
			c.batch.wanted--
		}
		close(c.done)
	}
}
