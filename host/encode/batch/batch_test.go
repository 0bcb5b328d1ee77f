package batch

import (
	"context"
	"errors"
	"fmt"
	"github.com/opgraft/graft/internal/must"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// recorder is a run that notes its batches, doubles every item and takes a second.
type recorder struct {
	mu      sync.Mutex
	batches [][]int
}

func (r *recorder) run(_ context.Context, items []int) ([]int, error) {
	r.mu.Lock()
	r.batches = append(r.batches, slices.Clone(items))
	r.mu.Unlock()
	time.Sleep(time.Second)
	out := make([]int, len(items))
	for i, v := range items {
		out[i] = 2 * v
	}
	return out, nil
}

// itself is the length of an item that is its own length.
func itself(v int) int { return v }

// submit submits items at once, in this order, and returns what each got.
func submit[R any](b *Batcher[int, R], items ...int) (results []R, errs []error) {
	results, errs = make([]R, len(items)), make([]error, len(items))
	var callers sync.WaitGroup
	for i, v := range items {
		callers.Go(func() { results[i], errs[i] = b.Submit(context.Background(), v) })
		synctest.Wait()
	}
	callers.Wait()
	return results, errs
}

func TestBatches(t *testing.T) {
	for _, c := range []struct {
		name    string
		options Options[int]
		items   []int // as they come while the first runs
		want    string
	}{
		{"what waits while a batch runs is the next", Options[int]{}, []int{1, 2, 3, 4}, "[[1] [2 3 4]]"},
		{"a batch has at most so many tokens", Options[int]{MaxTokens: 2}, []int{1, 2, 3, 4}, "[[1] [2 3] [4]]"},
		{"padding counts", Options[int]{Length: itself, MaxTokens: 100}, []int{1, 40, 50, 45}, "[[1] [40 45] [50]]"},
		{"an item that is longer by itself is a batch by itself", Options[int]{Length: itself, MaxTokens: 100},
			[]int{1, 500, 20, 30}, "[[1] [500] [20 30]]"},
		{"similar lengths go together", Options[int]{Length: itself}, []int{1, 10, 300, 12, 310, 11},
			"[[1] [10 11 12] [300 310]]"},
		{"the oldest goes first, whatever its length", Options[int]{Length: itself}, []int{1, 300, 10, 12, 310, 11},
			"[[1] [300 310] [10 11 12]]"},
		{"little padding is cheaper than a batch more", Options[int]{Length: itself}, []int{1, 10, 20, 12},
			"[[1] [10 12 20]]"},
		{"rows without padding go as they came", Options[int]{Length: itself, MaxTokens: 400, Unpadded: true},
			[]int{1, 10, 300, 12, 310, 11}, "[[1] [10 300 12] [310 11]]"},
		{"several run at once", Options[int]{Runs: 2}, []int{1, 2, 3, 4}, "[[1] [2] [3 4]]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{}
				b := New(r.run, c.options)
				defer b.Close()
				results, errs := submit(b, c.items...)
				for i, v := range c.items {
					if results[i] != 2*v || errs[i] != nil {
						t.Errorf("item %d: %d, %v", v, results[i], errs[i])
					}
				}
				must.Equal(t, fmt.Sprint(r.batches), c.want)
			})
		})
	}
}

// TestDelay: an item waits for others while nothing runs, until it has waited long enough or a batch is full.
func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		b := New(r.run, Options[int]{MaxDelay: 10 * time.Second, MaxTokens: 3})
		defer b.Close()
		start := time.Now()
		var callers sync.WaitGroup
		for i, at := range []time.Duration{0, 4, 20, 21, 22} {
			callers.Go(func() {
				time.Sleep(at * time.Second)
				if _, err := b.Submit(t.Context(), i); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		// The first two run after 10 seconds, the others as soon as they are three: at 22.
		if got, took := fmt.Sprint(r.batches), time.Since(start); got != "[[0 1] [2 3 4]]" || took != 23*time.Second {
			t.Errorf("batches %s after %v", got, took)
		}
		if m := b.Metrics(); m.MaxWait != 10*time.Second || m.Wait != (10+6+2+1)*time.Second {
			t.Errorf("waits: %v at most, %v in all", m.MaxWait, m.Wait)
		}
	})
}

// TestNobodyStarves: with short items coming all the time, a long one is in the batch after the one that runs.
func TestNobodyStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		b := New(r.run, Options[int]{Length: itself, MaxTokens: 1000})
		defer b.Close()
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				for range 20 {
					_, _ = b.Submit(t.Context(), 5)
				}
			})
		}
		time.Sleep(3500 * time.Millisecond)
		start := time.Now()
		must.Value(b.Submit(t.Context(), 900))(t)
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("the long item took %v, three batches take 3s", took)
		}
		callers.Wait()
	})
}

func TestCancellation(t *testing.T) {
	because := errors.New("the client went away")
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		b := New(r.run, Options[int]{})
		defer b.Close()
		cancelled := func(v int, after time.Duration) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(after, func() { cancel(because) })
			start := time.Now()
			if got, err := b.Submit(ctx, v); !errors.Is(err, because) || got != 0 || time.Since(start) != after {
				t.Errorf("item %d: %d, %v after %v", v, got, err, time.Since(start))
			}
		}
		var callers sync.WaitGroup
		callers.Go(func() { cancelled(1, 500*time.Millisecond) }) // while it runs
		synctest.Wait()
		callers.Go(func() { cancelled(2, 500*time.Millisecond) }) // while it waits
		synctest.Wait()
		callers.Go(func() {
			if got, err := b.Submit(t.Context(), 3); got != 6 || err != nil {
				t.Errorf("the item beside them: %d, %v", got, err)
			}
		})
		callers.Wait()
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(because)
		must.Fail(t, must.Error(b.Submit(ended, 4)), because)
		must.Equal(t, fmt.Sprint(r.batches), "[[1] [3]]")
		if m := b.Metrics(); m.Cancelled != 2 || m.Computed != 1 || m.Items != 3 {
			t.Errorf("metrics %+v", m)
		}
	})
}

// TestRunOfNobody: the context of a run ends when the last of its callers went away, and not before.
func TestRunOfNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(func(ctx context.Context, items []int) ([]int, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, Options[int]{MaxDelay: time.Second})
		start := time.Now()
		var callers sync.WaitGroup
		for i := range 3 {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(2+i)*time.Second)
				defer cancel()
				must.Fail(t, must.Error(b.Submit(ctx, i)), context.DeadlineExceeded)
			})
		}
		callers.Wait()
		b.Close()
		if took, m := time.Since(start), b.Metrics(); took != 4*time.Second || m.Reruns != 0 {
			t.Errorf("it ran for %v, want until the last caller went, 4s; %+v", took, m)
		}
	})
}

// TestBadItems: an item that makes its batch fail fails alone, with the run's own error; the others have results.
func TestBadItems(t *testing.T) {
	for _, bad := range [][]int{{3}, {0}, {7}, {2, 3}, {0, 5, 7}, {0, 1, 2, 3, 4, 5, 6, 7}} {
		synctest.Test(t, func(t *testing.T) {
			b := New(func(_ context.Context, items []int) ([]int, error) {
				for _, v := range items {
					if slices.Contains(bad, v) {
						return nil, fmt.Errorf("indices element out of data bounds, idx=%d", v)
					}
				}
				return items, nil
			}, Options[int]{MaxDelay: time.Second})
			defer b.Close()
			results, errs := submit(b, 0, 1, 2, 3, 4, 5, 6, 7)
			for i := range 8 {
				want := fmt.Sprintf("indices element out of data bounds, idx=%d", i)
				if slices.Contains(bad, i) != (errs[i] != nil) || errs[i] != nil && errs[i].Error() != want ||
					errs[i] == nil && results[i] != i {
					t.Errorf("bad are %v; item %d: %d, %v", bad, i, results[i], errs[i])
				}
			}
			m := b.Metrics()
			if m.Failed != int64(len(bad)) || m.Computed != int64(8-len(bad)) || m.Batches > int64(2*8) {
				t.Errorf("bad are %v: metrics %+v", bad, m)
			}
		})
	}
}

func TestFaultyRuns(t *testing.T) {
	for _, c := range []struct {
		name string
		run  Run[int, int]
		want string
	}{
		{"too few results", func(context.Context, []int) ([]int, error) { return []int{1}, nil },
			"the run of a batch returned 1 results, needed 2, one for each input"},
		{"a panic", func(_ context.Context, items []int) ([]int, error) { panic("no such layer") },
			"the run of a batch panicked: no such layer\n"},
		{"the end of the goroutine", func(context.Context, []int) ([]int, error) { runtime.Goexit(); return nil, nil },
			"the run of a batch ended its goroutine, needed that it returns"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := New(c.run, Options[int]{MaxDelay: time.Second})
				defer b.Close()
				for range 2 { // it serves on
					_, errs := submit(b, 1, 2)
					for _, err := range errs {
						if err == nil || !strings.HasPrefix(err.Error(), c.want) {
							t.Errorf("found %v, want %s", err, c.want)
						}
					}
				}
			})
		})
	}
}

func TestFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		b := New(r.run, Options[int]{MaxQueue: 2})
		defer b.Close()
		var callers sync.WaitGroup
		for i := range 3 { // one runs, two wait
			callers.Go(func() {
				if _, err := b.Submit(t.Context(), i); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		const want = "the queue of the batcher is full: 2 inputs wait; try again later, have fewer callers, or let more " +
			"wait (MaxQueue)"
		must.FailExactly(t, must.Error(b.Submit(t.Context(), 3)), want, ErrFull)
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		must.Fail(t, must.Error(b.Start(impatient, 4, true)), context.DeadlineExceeded)
		patient := must.Value(b.Start(t.Context(), 5, true))(t)
		if got, err := patient.Wait(t.Context()); got != 10 || err != nil {
			t.Errorf("one that waits for room: %d, %v", got, err)
		}
		callers.Wait()
		if m := b.Metrics(); m.Refused != 1 || m.Computed != 4 || fmt.Sprint(r.batches) != "[[0] [1 2] [5]]" {
			t.Errorf("%v, metrics %+v", r.batches, m)
		}
	})
}

// TestClose: what waits is refused, what runs is computed, nothing is taken in any more; and no goroutine is left, as
// synctest sees.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New((&recorder{}).run, Options[int]{MaxQueue: 2})
		errs := make([]error, 3)
		results := make([]int, 3)
		var callers sync.WaitGroup
		for i := range 3 {
			callers.Go(func() { results[i], errs[i] = b.Submit(t.Context(), i+1) })
			synctest.Wait()
		}
		callers.Go(func() {
			if _, err := b.Start(t.Context(), 9, true); !errors.Is(err, ErrClosed) { // waits for room
				t.Errorf("one that waits for room: %v", err)
			}
		})
		synctest.Wait()
		start := time.Now()
		callers.Go(b.Close) // twice at once
		b.Close()
		must.Equal(t, time.Since(start), time.Second)
		callers.Wait()
		if results[0] != 2 || errs[0] != nil {
			t.Errorf("what ran: %d, %v", results[0], errs[0])
		}
		const want = "the batcher was closed before this input was computed"
		_, after := b.Submit(t.Context(), 5)
		for _, err := range []error{errs[1], errs[2], after} {
			must.FailExactly(t, err, want, ErrClosed)
		}
		if m := b.Metrics(); m.Waiting != 0 || m.Running != 0 || m.Items != m.Computed+m.Refused {
			t.Errorf("metrics %+v", m)
		}
	})
}

func TestCloseWhileAnItemWaitsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New((&recorder{}).run, Options[int]{MaxDelay: time.Hour})
		time.AfterFunc(time.Second, b.Close)
		must.Fail(t, must.Error(b.Submit(t.Context(), 1)), ErrClosed)
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New((&recorder{}).run, Options[int]{Length: itself})
		defer b.Close()
		var callers sync.WaitGroup
		for _, v := range []int{10, 10, 20, 15} {
			callers.Go(func() { _, _ = b.Submit(t.Context(), v) })
			synctest.Wait()
		}
		if m := b.Metrics(); m.Waiting != 3 || m.Running != 1 || m.Items != 4 {
			t.Errorf("while the first runs: %+v", m)
		}
		callers.Wait()
		want := Metrics{Items: 4, Computed: 4, Batches: 2, Rows: 4, Tokens: 55, Padded: 70, LargestRows: 3, LargestTokens: 60,
			Wait: 3 * time.Second, MaxWait: time.Second, Run: 2 * time.Second, MaxRun: time.Second}
		synctest.Wait() // the batch has ended too
		if m := b.Metrics(); m != want || math.Abs(m.Padding()-15./70) > 1e-15 {
			t.Errorf("found %+v, padding %v, want %+v", m, m.Padding(), want)
		}
	})
	must.Equal(t, (Metrics{}).Padding(), 0)
}

// TestCutIsTheCheapest compares batches with a search of all ways to cut.
func TestCutIsTheCheapest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		n, most := 1+random.IntN(9), 20+random.IntN(400)
		calls := make([]*Call[int, int], n)
		for i := range calls {
			calls[i] = &Call[int, int]{length: 1 + random.IntN(120)}
		}
		left, cost := slices.Clone(calls), 0
		for len(left) > 0 { // batch after batch: each cut is again the cheapest of what is left
			group := similar(left, most, usualOverhead)
			if !slices.Contains(group, left[0]) {
				t.Fatal("the oldest is not in the batch")
			}
			longest := 0
			for _, c := range group {
				longest = max(longest, c.length)
			}
			if padded := longest * len(group); len(group) > 1 && padded > most {
				t.Fatalf("a batch has %d tokens of at most %d", padded, most)
			}
			cost += usualOverhead + longest*len(group)
			left = slices.DeleteFunc(left, func(c *Call[int, int]) bool { return slices.Contains(group, c) })
		}
		lengths := make([]int, n)
		for i, c := range calls {
			lengths[i] = c.length
		}
		slices.Sort(lengths)
		best := 1 << 30
		for mask := range 1 << (n - 1) {
			total, from := 0, 0
			for i := range n {
				if i == n-1 || mask>>i&1 == 1 {
					padded := lengths[i] * (i + 1 - from)
					if padded > most && i > from {
						total = 1 << 30
						break
					}
					total, from = total+usualOverhead+padded, i+1
				}
			}
			best = min(best, total)
		}
		if cost != best {
			t.Fatalf("lengths %v, at most %d: cost %d, the least is %d", lengths, most, cost, best)
		}
	}
}

// TestOverhead: what a batch costs beside its tokens is read off the runs; of few runs, or runs of one size, nothing
// is.
func TestOverhead(t *testing.T) {
	for _, c := range []struct {
		name         string
		runs         int
		batch, token float64
		tokens       func(i int) int
		want         int
	}{
		{"a batch is as 50 tokens", 50, 11e-3, 0.22e-3, func(i int) int { return 8 * (1 + i%32) }, 50},
		{"a batch is as 10 tokens", 50, 2.2e-3, 0.22e-3, func(i int) int { return 8 * (1 + i%32) }, leastOverhead},
		{"many cores", 50, 2e-3, 0.01e-3, func(i int) int { return 8 * (1 + i%32) }, 200},
		{"a device, on which tokens cost nothing", 50, 2e-3, 0, func(i int) int { return 8 * (1 + i%32) }, mostOverhead},
		{"nothing beside the tokens", 50, -1e-4, 1e-3, func(i int) int { return 8 * (1 + i%32) }, leastOverhead},
		{"few runs", 6, 2.2e-3, 0.22e-3, func(i int) int { return 8 * (1 + i%32) }, usualOverhead},
		{"runs of one size", 50, 2.2e-3, 0.22e-3, func(int) int { return 64 }, usualOverhead},
		{"no run", 0, 0, 0, nil, usualOverhead},
	} {
		var k cost
		for i := range c.runs {
			n := c.tokens(i)
			k.add(n, c.batch+c.token*float64(n))
		}
		if got := k.overhead(); got < c.want-1 || got > c.want+1 {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	var k cost
	for i := range 1000 { // a machine that becomes another
		k.add(8*(1+i%32), map[bool]float64{true: 2.2e-3, false: 20e-3}[i < 500]+0.2e-3*float64(8*(1+i%32)))
	}
	if got := k.overhead(); got < 95 || got > 105 {
		t.Errorf("after it became slower to begin: %d, want 100", got)
	}
}

// TestManyCallers: every caller gets its own result, under the race detector too.
func TestManyCallers(t *testing.T) {
	for _, o := range []Options[int]{{}, {Runs: 4}, {MaxTokens: 64, Runs: 2}, {Unpadded: true, MaxQueue: 8}} {
		o.Length = func(v int) int { return 1 + v%17 }
		b := New(func(ctx context.Context, items []int) ([]int, error) {
			out := make([]int, len(items))
			for i, v := range items {
				if v%101 == 100 {
					return nil, errors.New("a bad item")
				}
				out[i] = -v
			}
			runtime.Gosched()
			return out, nil
		}, o)
		var wrong, gone atomic.Int64
		var callers sync.WaitGroup
		for g := range 32 {
			callers.Go(func() {
				for i := range 100 {
					v := g*100 + i
					ctx, cancel := context.WithCancel(context.Background())
					if v%7 == 0 {
						go cancel()
					}
					c, err := b.Start(ctx, v, true)
					got := 0
					if err == nil {
						got, err = c.Wait(ctx)
					}
					cancel()
					switch {
					case errors.Is(err, context.Canceled) && v%7 == 0:
						gone.Add(1)
					case v%101 == 100 && (err == nil || err.Error() != "a bad item"), v%101 != 100 && (err != nil || got != -v):
						wrong.Add(1)
					}
				}
			})
		}
		callers.Wait()
		b.Close()
		if wrong.Load() > 0 {
			t.Errorf("%+v: %d wrong results", o, wrong.Load())
		}
		if m := b.Metrics(); m.Items != m.Computed+m.Failed+m.Cancelled || len(b.room) != 0 || b.tokens != 0 {
			t.Errorf("%+v: metrics %+v, %d in the queue, %d tokens, %d gone", o, m, len(b.room), b.tokens, gone.Load())
		}
	}
}
