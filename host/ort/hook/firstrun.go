package hook

import (
	"sync"
)

// firstRuns watches the first run of sessions that other bindings made with a provider of a device: CUDA's
// driver takes Go's signal handlers once more then. Runs are watched only while such a session has not run yet,
// so that all others go their own way.
type firstRuns struct {
	hook *hook

	mu      sync.Mutex
	pending map[uintptr]bool // OrtSession addresses
}

// await watches for a session's first run.
func (f *firstRuns) await(session uintptr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pending == nil {
		f.pending = map[uintptr]bool{}
	}
	if !f.pending[session] {
		f.pending[session] = true
		f.hook.watch(1)
	}
}

// began reports that a session is about to run for the first time, or is released, and stops watching for it.
func (f *firstRuns) began(session uintptr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.pending[session] {
		return false
	}
	delete(f.pending, session)
	f.hook.watch(-1)
	return true
}

// clear stops watching.
func (f *firstRuns) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook.watch(-int64(len(f.pending)))
	clear(f.pending)
}
