// Package pipeline leads inputs through reading, encoding, a device, decoding and
// writing, all at once: while the device works on some inputs, the ones before
// are turned back into text and written, and the ones after are read and
// encoded. What is written stands in the order of the input. (FastSeq, Yan et
// al. 2021, section 4.3: asynchronous input and output.)
package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// Item is one input on its way.
type Item[T any] struct {
	Index int // from 0, in the order of the input
	Value T
}

// Stages are what is done to an input: text to T, T to R on the device, R to what
// is written, W. Encode, Decode and Failed run on several goroutines at once, the
// others on one each.
type Stages[T, R, W any] struct {
	// Read gives the next input; io.EOF ends them.
	Read   func() (string, error)
	Encode func(text string) (T, error)
	// Length is what inputs are sorted by, the longest first; nil leaves their order.
	Length func(T) int
	// Device takes inputs from next (nil: no more) and hands results to done in any
	// order.
	Device func(ctx context.Context, next func() (*Item[T], error), done func(index int, result R) error) error
	Decode func(index int, r R) (W, error)
	// Failed is told of an input that cannot be encoded or decoded and says what is
	// written in its place, so that the others continue. When it returns an error, or
	// is nil, the run ends.
	Failed func(index int, err error) (W, error)
	// Write takes the results in the order of the input.
	Write func(index int, w W) error
}

// failed is what is written in place of an input.
func (s *Stages[T, R, W]) failed(index int, err error) (W, error) {
	if s.Failed == nil {
		var none W
		return none, fmt.Errorf("input %d: %w", index, err)
	}
	return s.Failed(index, err)
}

// Options say how the stages run.
type Options struct {
	Workers int // goroutines that encode, and as many that decode; 0 is 2
	// Window is the number of inputs that are sorted by length together; 0 is 128.
	// At most four windows are in flight.
	Window int
	// Sync runs the stages one after another, a window at a time: what to compare
	// with.
	Sync bool
	// Done is told how many inputs were written.
	Done func(written int)
}

func (o Options) withDefaults() Options {
	if o.Workers <= 0 {
		o.Workers = 2
	}
	if o.Window <= 0 {
		o.Window = 128
	}
	if o.Done == nil {
		o.Done = func(int) {}
	}
	return o
}

// Run leads every input through the stages. On an error, or when ctx ends, it
// writes what is finished without a gap and returns the first error.
func Run[T, R, W any](ctx context.Context, s Stages[T, R, W], o Options) error {
	o = o.withDefaults()
	if o.Sync {
		return runSync(ctx, s, o)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &runner[T, R, W]{Stages: s, options: o, ctx: ctx, cancel: cancel, room: make(chan struct{}, 4*o.Window)}
	return r.run()
}

// runner is a run in flight.
type runner[T, R, W any] struct {
	Stages[T, R, W]
	options Options
	ctx     context.Context
	cancel  context.CancelCauseFunc
	room    chan struct{} // a token for every input in flight
}

// outcome is an input that needs no device any more.
type outcome[R, W any] struct {
	index   int
	result  R
	instead *W // what is written when it failed
}

// line is what is to be written of an input.
type line[W any] struct {
	index int
	value W
}

func (r *runner[T, R, W]) run() error {
	texts := make(chan Item[string], r.options.Workers)
	encoded := make(chan Item[T], r.options.Window)
	windows := make(chan []Item[T])
	results := make(chan outcome[R, W], 4*r.options.Window)
	lines := make(chan line[W], 4*r.options.Window)

	var upstream, decoders sync.WaitGroup
	upstream.Go(func() { defer close(texts); r.read(texts) })
	var encoders sync.WaitGroup
	for range r.options.Workers {
		encoders.Go(func() { r.encode(texts, encoded, results) })
	}
	upstream.Go(func() { encoders.Wait(); close(encoded) })
	upstream.Go(func() { defer close(windows); r.sort(encoded, windows) })
	upstream.Go(func() {
		if err := r.Device(r.ctx, r.feed(windows), func(index int, result R) error {
			return send(r.ctx, results, outcome[R, W]{index: index, result: result})
		}); err != nil {
			r.cancel(err)
		}
	})
	for range r.options.Workers {
		decoders.Go(func() { r.decode(results, lines) })
	}
	written := make(chan struct{})
	go func() { defer close(written); r.write(lines) }()

	upstream.Wait()
	close(results)
	decoders.Wait()
	close(lines)
	<-written
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	return nil
}

func send[V any](ctx context.Context, to chan<- V, v V) error {
	select {
	case to <- v:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// read reads while there is room.
func (r *runner[T, R, W]) read(texts chan<- Item[string]) {
	for i := 0; ; i++ {
		if send(r.ctx, r.room, struct{}{}) != nil {
			return
		}
		text, err := r.Read()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				r.cancel(err)
			}
			return
		}
		if send(r.ctx, texts, Item[string]{i, text}) != nil {
			return
		}
	}
}

func (r *runner[T, R, W]) encode(texts <-chan Item[string], encoded chan<- Item[T], results chan<- outcome[R, W]) {
	for t := range texts {
		v, err := r.Encode(t.Value)
		if err == nil {
			err = send(r.ctx, encoded, Item[T]{t.Index, v})
		} else {
			var instead W
			if instead, err = r.failed(t.Index, err); err == nil {
				err = send(r.ctx, results, outcome[R, W]{index: t.Index, instead: &instead})
			}
		}
		if err != nil {
			r.cancel(err)
		}
	}
}

// sort puts inputs side by side by length, the longest first: what needs most
// memory comes before anything is in flight. It hands out what it has whenever
// the device wants one, so that no input waits for a window to fill; while the device
// works a whole window gathers.
func (r *runner[T, R, W]) sort(encoded <-chan Item[T], windows chan<- []Item[T]) {
	var window []Item[T]
	for from := encoded; from != nil || len(window) > 0; {
		in, out := from, windows
		if len(window) == r.options.Window {
			in = nil
		}
		if len(window) == 0 {
			out = nil
		}
		select {
		case item, ok := <-in:
			if !ok {
				from = nil
				continue
			}
			window = append(window, item)
			sortWindow(window, r.Length)
		case out <- window:
			window = nil
		case <-r.ctx.Done():
			if from != nil {
				for range from { // the encoders must come to their end
				}
			}
			return
		}
	}
}

func sortWindow[T any](window []Item[T], length func(T) int) {
	slices.SortFunc(window, func(a, b Item[T]) int {
		if length != nil {
			if c := cmp.Compare(length(b.Value), length(a.Value)); c != 0 {
				return c
			}
		}
		return cmp.Compare(a.Index, b.Index)
	})
}

// feed is the device's view of the windows.
func (r *runner[T, R, W]) feed(windows <-chan []Item[T]) func() (*Item[T], error) {
	var window []Item[T]
	return func() (*Item[T], error) {
		for len(window) == 0 {
			select {
			case w, ok := <-windows:
				if !ok {
					return nil, nil
				}
				window = w
			case <-r.ctx.Done():
				return nil, context.Cause(r.ctx)
			}
		}
		item := window[0]
		window = window[1:]
		return &item, nil
	}
}

// decode continues when the run has ended: what the device finished is written.
func (r *runner[T, R, W]) decode(results <-chan outcome[R, W], lines chan<- line[W]) {
	for o := range results {
		if o.instead != nil {
			lines <- line[W]{o.index, *o.instead}
			continue
		}
		v, err := r.Decode(o.index, o.result)
		if err != nil {
			v, err = r.failed(o.index, err)
		}
		if err != nil {
			r.cancel(err)
			continue
		}
		lines <- line[W]{o.index, v}
	}
}

// write writes lines in the order of the input.
func (r *runner[T, R, W]) write(lines <-chan line[W]) {
	waiting := map[int]W{}
	next, broken := 0, false
	for l := range lines {
		waiting[l.index] = l.value
		for !broken {
			v, ok := waiting[next]
			if !ok {
				break
			}
			if err := r.Write(next, v); err != nil {
				r.cancel(err)
				broken = true
				break
			}
			delete(waiting, next)
			next++
			<-r.room
			r.options.Done(next)
		}
	}
}
