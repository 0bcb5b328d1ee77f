package plugin

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Crew is goroutines that wait for work awake, as ONNX Runtime's threads do:
// parallel_for then costs a microsecond and not a wake-up. It keeps its cores busy
// until it is closed, so it is for measurements. One goroutine at a time may use it.
type Crew struct {
	helpers int64
	shift   atomic.Pointer[shift] // the last that began
	closed  atomic.Bool
	gone    sync.WaitGroup
}

// shift is one parallel_for.
type shift struct {
	count uint64
	task  func(i uint64)
	next  atomic.Uint64
	done  atomic.Int64 // helpers that found nothing more to do
}

// NewCrew starts a crew of so many threads, the caller's among them.
func NewCrew(threads int) *Crew {
	c := &Crew{helpers: int64(max(threads, 1) - 1)}
	for range c.helpers {
		c.gone.Go(c.help)
	}
	return c
}

// Threads is how many threads it has; 1 of nil.
func (c *Crew) Threads() int {
	if c == nil {
		return 1
	}
	return int(c.helpers) + 1
}

// Close ends the crew.
func (c *Crew) Close() {
	c.closed.Store(true)
	c.gone.Wait()
}

// Do runs task for 0 to count-1 and returns when all are done.
func (c *Crew) Do(count uint64, task func(i uint64)) {
	s := &shift{count: count, task: task}
	c.shift.Store(s)
	s.work()
	spin(func() bool { return s.done.Load() == c.helpers })
}

func (c *Crew) help() {
	var last *shift
	for {
		spin(func() bool { return c.shift.Load() != last || c.closed.Load() })
		if c.closed.Load() {
			return
		}
		last = c.shift.Load()
		last.work()
		last.done.Add(1)
	}
}

func (s *shift) work() {
	for i := s.next.Add(1) - 1; i < s.count; i = s.next.Add(1) - 1 {
		s.task(i)
	}
}

// spin waits for something: awake for about a millisecond, then with short naps, so
// that a core for which there is other work is not kept from it for long.
func spin(ready func() bool) {
	const (
		glance   = 1 << 12 // looks between two offers to let others run
		patience = 1 << 18
		nap      = 20 * time.Microsecond
	)
	for n := 1; !ready(); n++ {
		if n%glance == 0 {
			runtime.Gosched()
			if n >= patience {
				time.Sleep(nap)
			}
		}
	}
}
