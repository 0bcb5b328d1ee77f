// Package threads holds a pool of threads that wait awake.
package threads

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Pool is goroutines that wait for work awake, as ONNX Runtime's threads do:
// parallel_for then costs a microsecond and not a wake-up. Its cores are busy
// until it is closed, so it is for measurements. One goroutine at a time may use it.
type Pool struct {
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

// NewPool starts a pool of n threads, the caller's among them.
func NewPool(n int) *Pool {
	p := &Pool{helpers: int64(max(n, 1) - 1)}
	for range p.helpers {
		p.gone.Go(p.help)
	}
	return p
}

// Threads is how many threads it has; 1 of nil.
func (p *Pool) Threads() int {
	if p == nil {
		return 1
	}
	return int(p.helpers) + 1
}

// Close ends the pool.
func (p *Pool) Close() {
	p.closed.Store(true)
	p.gone.Wait()
}

// Do runs task for 0 to count-1 and returns when all are done.
func (p *Pool) Do(count uint64, task func(i uint64)) {
	s := &shift{count: count, task: task}
	p.shift.Store(s)
	s.work()
	spin(func() bool { return s.done.Load() == p.helpers })
}

func (p *Pool) help() {
	var last *shift
	for {
		spin(func() bool { return p.shift.Load() != last || p.closed.Load() })
		if p.closed.Load() {
			return
		}
		last = p.shift.Load()
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
