package graft

import (
	"context"
	"time"

	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/encode/batch"
)

// Batcher gathers single inputs of many goroutines into batches, for a session of any binding. Each caller submits one
// input and gets one result.
//
// What waits while a batch runs becomes the next one. A batch has inputs of similar length, so that little is padded,
// and is bounded by tokens rather than by inputs. The input that waited longest is always in the next batch. An input
// that makes its batch fail is found by halves and fails alone, with the error of the run.
//
// It is safe for concurrent use. It has no goroutine but one for each batch that runs.
type Batcher[T, R any] struct{ inner *batch.Batcher[T, R] }

// BatchMetrics is what a batcher did since it was made: counters that only grow, and what waits and runs now.
type BatchMetrics = batch.Metrics

type batchOptions struct {
	tokens, queue, runs int
	delay               time.Duration
	unpadded            bool
	err                 error // the first option that is out of range
}

type batchOption func(*batchOptions)

func (f batchOption) batcher(o *batchOptions)    { f(o) }
func (f batchOption) embedder(o *encoderOptions) { f(&o.batch) }
func (f batchOption) reranker(o *encoderOptions) { f(&o.batch) }

// bounded is an option whose value is from 1 to most.
func bounded(name string, n, most int, set func(*batchOptions)) BatchOption {
	return batchOption(func(o *batchOptions) {
		check(&o.err, name, n, most)
		set(o)
	})
}

// BatchTokens bounds a batch: inputs times the length of the longest are at most n, or with [Unpadded] the sum of the
// lengths. An input that is longer by itself is a batch by itself. 4,096 without it.
func BatchTokens(n int) BatchOption {
	return bounded("BatchTokens", n, limit.Tokens, func(o *batchOptions) { o.tokens = n })
}

// BatchDelay lets an input wait for others while nothing runs, for at most d or until a batch is full. Without it
// nothing waits for what may not come: batches are what gathers while one runs.
func BatchDelay(d time.Duration) BatchOption {
	return batchOption(func(o *batchOptions) {
		if d < 0 && o.err == nil {
			o.err = refuse("BatchDelay is %v, needed is 0 or more", d)
		}
		o.delay = d
	})
}

// BatchQueue has at most n inputs wait: one more is refused with [ErrQueueFull]. 4,096 without it.
func BatchQueue(n int) BatchOption {
	return bounded("BatchQueue", n, limit.Tokens, func(o *batchOptions) { o.queue = n })
}

// BatchRuns has n batches run at once, for sessions whose operators do not use all cores; 1 without it.
func BatchRuns(n int) BatchOption {
	return bounded("BatchRuns", n, limit.Threads, func(o *batchOptions) { o.runs = n })
}

// Unpadded says that a batch costs what its inputs hold, because the run does not pad. Inputs go into it in the order
// in which they came then, whatever their lengths.
func Unpadded() BatchOption { return batchOption(func(o *batchOptions) { o.unpadded = true }) }

// NewBatcher makes a batcher over run, which computes one result an input, in their order. length is the number of
// tokens of an input; nil for 1 each. The context of a run ends when no caller waits for it any more. [Pad] makes a
// tensor of rows of tokens.
func NewBatcher[T, R any](run func(ctx context.Context, inputs []T) ([]R, error), length func(T) int,
	opts ...BatcherOption) (*Batcher[T, R], error) {
	var o batchOptions
	for _, x := range opts {
		x.batcher(&o)
	}
	if o.err != nil {
		return nil, o.err
	}
	if run == nil {
		return nil, refuse("NewBatcher has no run, needed is what computes a batch")
	}
	return &Batcher[T, R]{batch.New(run,
		batch.Options[T]{Length: length, MaxTokens: o.tokens, MaxDelay: o.delay, MaxQueue: o.queue, Runs: o.runs,
			Unpadded: o.unpadded})}, nil
}

// Submit computes one input. A context that ends makes it return at once with the context's cause: an input that waits
// is taken out of the queue, and the result of one that runs is dropped. It is [ErrQueueFull] where as many inputs
// wait as may, and [ErrClosed] after Close, also for an input that waited then.
func (b *Batcher[T, R]) Submit(ctx context.Context, input T) (R, error) {
	r, err := b.inner.Submit(ctx, input)
	return r, public(err, nil)
}

// Metrics is a snapshot.
func (b *Batcher[T, R]) Metrics() BatchMetrics { return b.inner.Metrics() }

// Close refuses what waits with [ErrClosed] and returns when what runs has ended, with its results. A run must not
// call it.
func (b *Batcher[T, R]) Close() error {
	b.inner.Close()
	return nil
}

// Pad makes the elements of two tensors of rows of token ids: ids, in which rows are filled up with pad to the longest,
// and mask, which has 1 for a row's own tokens and 0 for padding. shape is that of both.
func Pad(rows [][]int64, pad int64) (ids, mask []int64, shape [2]int64) {
	longest := 0
	for _, r := range rows {
		longest = max(longest, len(r))
	}
	ids, mask = make([]int64, len(rows)*longest), make([]int64, len(rows)*longest)
	for i, r := range rows {
		at := i * longest
		copy(ids[at:], r)
		for k := range longest {
			if k < len(r) {
				mask[at+k] = 1
			} else {
				ids[at+k] = pad
			}
		}
	}
	return ids, mask, [2]int64{int64(len(rows)), int64(longest)}
}
