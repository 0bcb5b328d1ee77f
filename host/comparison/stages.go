package comparison

import (
	"context"
	"time"

	"github.com/opgraft/graft/host/loaded"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/statistics"
)

// stages are the parts of a comparison in their order, in this process or in a child.
type stages interface {
	// open compares answers.
	open(ctx context.Context) (*Result, error)
	// rounds times rounds of A B B A, in milliseconds: for about as long as batch says, and at most so many.
	rounds(ctx context.Context, warmup, atMost int) (a, b []float64, err error)
	// environment measures the machine.
	environment(ctx context.Context) (Environment, error)
}

// batch is how long rounds are timed before anybody hears of it. Runs after a pause are slower; so long, hardly any is one.
const batch = time.Second

// run leads a comparison through its stages.
func run(ctx context.Context, s stages, o Options) (*Result, error) {
	if o.Rounds <= 0 {
		o.Rounds = 15
	}
	if o.Warmup <= 0 {
		o.Warmup = 3
	}
	r, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	o.step("timing")
	r.Warmup, r.Rounds = o.Warmup, o.Rounds
	for done, warmup := 0, o.Warmup; done < o.Rounds; warmup = 0 {
		a, b, err := s.rounds(ctx, warmup, o.Rounds-done)
		if err != nil {
			return nil, err
		}
		r.A.TimesMS, r.B.TimesMS = append(r.A.TimesMS, a...), append(r.B.TimesMS, b...)
		done += len(a) / 2
		if o.Progress != nil {
			o.Progress(int64(done), int64(o.Rounds))
		}
	}
	r.A.MedianMS, r.B.MedianMS = statistics.Median(r.A.TimesMS), statistics.Median(r.B.TimesMS)
	r.Speedup = statistics.SpeedupOf(r.A.TimesMS, r.B.TimesMS)
	o.step("measuring the machine")
	r.Environment, err = s.environment(ctx)
	return r, err
}

// here are the stages in this process.
type here struct {
	library *ort.Library
	set     *loaded.Set
	path    string
	options Options
	pair    *pair // nil until it is open
}

func (h *here) open(ctx context.Context) (*Result, error) {
	var err error
	if h.pair, err = answers(ctx, h.library, h.set, h.path, h.options); err != nil {
		return nil, err
	}
	r := h.pair.result
	r.A, r.B = h.pair.a.Side, h.pair.b.Side
	return r, h.pair.differ()
}

func (h *here) rounds(ctx context.Context, warmup, atMost int) (a, b []float64, err error) {
	fed := h.pair.fed.Values
	runA, runB := h.pair.a.timed(ctx, fed), h.pair.b.timed(ctx, fed)
	for start := time.Now(); len(a) < 2*atMost && (len(a) == 0 || time.Since(start) < batch); warmup = 0 {
		x, y, err := interleave(runA, runB, warmup, 1)
		if err != nil {
			return nil, nil, err
		}
		a, b = append(a, x...), append(b, y...)
	}
	return a, b, nil
}

func (h *here) environment(context.Context) (Environment, error) { return Measure(h.library), nil }

func (h *here) close() {
	if h.pair != nil {
		h.pair.close()
	}
}
