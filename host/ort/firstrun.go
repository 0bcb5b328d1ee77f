package ort

import (
	"sync"

	"github.com/ebitengine/purego"
)

// firstRuns watches the first run of sessions that other bindings made with a provider of a device: CUDA's
// driver takes Go's signal handlers once more then. The functions that run sessions are replaced only while
// such a session has not run yet, so that all others go their own way.
type firstRuns struct {
	library *Library

	mu      sync.Mutex
	entries []*entry
	pending map[uintptr]bool // OrtSession addresses
}

// await watches for a session's first run.
func (f *firstRuns) await(session uintptr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.entries == nil {
		f.entries = f.makeEntries()
	}
	if f.pending == nil {
		f.pending = map[uintptr]bool{}
	}
	f.pending[session] = true
	for _, e := range f.entries {
		if err := replaceWord(e.address, e.original, e.callback); err != nil {
			return err
		}
	}
	return nil
}

// began reports that a session is about to run for the first time, and stops watching after the last.
func (f *firstRuns) began(session uintptr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.pending[session] {
		return false
	}
	delete(f.pending, session)
	f.rest()
	return true
}

// forget drops a session that is released.
func (f *firstRuns) forget(session uintptr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pending[session] {
		delete(f.pending, session)
		f.rest()
	}
}

// clear stops watching.
func (f *firstRuns) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.pending)
	f.rest()
}

// rest puts ONNX Runtime's functions back when no session is left. A failure leaves the callbacks, which
// pass every call on.
func (f *firstRuns) rest() {
	if len(f.pending) > 0 {
		return
	}
	for _, e := range f.entries {
		_ = replaceWord(e.address, e.callback, e.original)
	}
}

func (f *firstRuns) makeEntries() []*entry {
	var entries []*entry
	add := func(s slot, callback func(original func(args ...uintptr) uintptr) any) {
		e := &entry{address: f.library.api + uintptr(s)*wordSize, original: f.library.fn(s)}
		e.callback = purego.NewCallback(callback(func(args ...uintptr) (status uintptr) {
			withSignals(f.began(args[0]), func() { status, _, _ = purego.SyscallN(e.original, args...) })
			return status
		}))
		entries = append(entries, e)
	}
	add(slotRun, func(original func(...uintptr) uintptr) any {
		return func(session, options, inputNames, inputs, numInputs, outputNames, numOutputs, outputs uintptr) uintptr {
			return original(session, options, inputNames, inputs, numInputs, outputNames, numOutputs, outputs)
		}
	})
	add(slotRunWithBinding, func(original func(...uintptr) uintptr) any {
		return func(session, options, binding uintptr) uintptr { return original(session, options, binding) }
	})
	return entries
}
