package embed

import (
	"cmp"
	"context"
	"time"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/internal/opening"
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

// Metrics is what a batcher did since it was made: counters that only grow, and what waits and runs now.
type Metrics struct {
	Items     int64 // that were taken in: Computed, Failed, Cancelled, refused by Close, waiting or running
	Computed  int64 // have a result
	Failed    int64 // have the error of a run
	Cancelled int64 // whose callers' contexts ended first
	Refused   int64 // because the queue was full, or by Close

	Batches int64 // runs, those of halves of failed ones among them
	Reruns  int64 // runs that failed and were done again by halves
	Rows    int64 // of all runs
	Tokens  int64 // of the items of all runs
	// Padded is the tokens that were computed: those of the items and of padding.
	Padded        int64
	LargestRows   int64 // of a run
	LargestTokens int64 // of a run, with padding

	Wait    time.Duration // in the queue, of all items that ran, added up
	MaxWait time.Duration // of one item
	Run     time.Duration // of all runs, added up
	MaxRun  time.Duration // of one run

	Waiting int // items in the queue now
	Running int // runs now
}

// Padding is the share of padding among the tokens that were computed, 0 to 1.
func (m Metrics) Padding() float64 { return batch.Metrics(m).Padding() }

// BatchOptions say how inputs become batches. The zero value is the default; what is out of range is graft.ErrOption.
type BatchOptions struct {
	// MaxTokens bounds a batch: inputs times the length of the longest, or with Unpadded the sum of the lengths. An input
	// that is longer by itself is a batch by itself. 0 is 4,096.
	MaxTokens int
	// MaxDelay lets an input wait for others while nothing runs, or until a batch is full. At 0 nothing waits for what
	// may not come: batches are what gathers while one runs.
	MaxDelay time.Duration
	// MaxQueue is the number of inputs that may wait: one more is refused with graft.ErrQueueFull. 0 is 4,096.
	MaxQueue int
	// Runs is how many batches run at once, 1 to 1,024, for sessions whose operators do not use all cores; 0 is 1.
	Runs int
	// Unpadded says that a batch costs what its inputs hold, because the run does not pad. Inputs go into it in the order
	// in which they came then, whatever their lengths.
	Unpadded bool
}

// check refuses what is out of range.
func (o *BatchOptions) check() error {
	if o.MaxDelay < 0 {
		return opening.Refuse("MaxDelay is %v, needed is 0 or more", o.MaxDelay)
	}
	return cmp.Or(opening.Range("MaxTokens", o.MaxTokens, limit.Tokens),
		opening.Range("MaxQueue", o.MaxQueue, limit.Tokens), opening.Range("Runs", o.Runs, limit.Threads))
}

// inner are the options as the host has them.
func inner[T any](o BatchOptions, length func(T) int) batch.Options[T] {
	return batch.Options[T]{Length: length, MaxTokens: o.MaxTokens, MaxDelay: o.MaxDelay, MaxQueue: o.MaxQueue,
		Runs: o.Runs, Unpadded: o.Unpadded}
}

// kinds are errors of the host's that calls may meet.
var kinds = []opening.Kind{{Host: batch.ErrClosed, Public: graft.ErrClosed},
	{Host: batch.ErrFull, Public: graft.ErrQueueFull}}

// NewBatcher makes a batcher over run, which computes one result an input, in their order. length is the number of
// tokens of an input; nil for 1 each. The context of a run ends when no caller waits for it any more. [Pad] makes a
// tensor of rows of tokens.
func NewBatcher[T, R any](run func(ctx context.Context, inputs []T) ([]R, error), length func(T) int,
	o BatchOptions) (*Batcher[T, R], error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if run == nil {
		return nil, opening.Refuse("NewBatcher has no run, needed is what computes a batch")
	}
	return &Batcher[T, R]{batch.New(run, inner(o, length))}, nil
}

// Submit computes one input. A context that ends makes it return at once with the context's cause: an input that waits
// is taken out of the queue, and the result of one that runs is dropped. It is graft.ErrQueueFull where as many inputs
// wait as may, and graft.ErrClosed after Close, also for an input that waited then.
func (b *Batcher[T, R]) Submit(ctx context.Context, input T) (R, error) {
	r, err := b.inner.Submit(ctx, input)
	return r, opening.Public(err, nil, kinds...)
}

// Metrics is a snapshot.
func (b *Batcher[T, R]) Metrics() Metrics { return Metrics(b.inner.Metrics()) }

// Close refuses what waits with graft.ErrClosed and returns when what runs has ended, with its results. A run must not
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
