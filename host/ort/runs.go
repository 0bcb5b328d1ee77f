package ort

import (
	"runtime/debug"

	"github.com/ebitengine/purego"
)

// watchRuns makes the entries of the functions that run sessions, and of those by which a binding comes to have inputs.
// Without a stub for each, which no process is known to need more of, nothing is watched and no session has a way back.
func (h *hook) watchRuns() (entries []*entry) {
	l := h.library
	add := func(name string, s slot, code uintptr) {
		e := &entry{name: name, address: l.api + uintptr(s)*wordSize, original: l.fn(s), callback: code, stays: true}
		h.originals.Store(s, e.original)
		entries = append(entries, e)
	}
	var sites [2]*site
	var codes [2]uintptr
	for i, run := range []struct {
		slot      slot
		arguments int
		overlap   func(args [8]uintptr) bool
	}{{slotRun, 8, l.runOverlaps}, {slotRunWithBinding, 3, h.bindingOverlaps}} {
		original := l.fn(run.slot)
		code, s, ok := stub(original, func(f *frame) uintptr {
			args := f.args()
			return h.ran(f, args, run.slot == slotRun, func(args [8]uintptr) uintptr {
				status, _, _ := purego.SyscallN(original, args[:run.arguments]...)
				return status
			}, run.overlap)
		})
		if !ok {
			return nil
		}
		sites[i], codes[i] = s, code
	}
	h.runSites = sites
	add("Run", slotRun, codes[0])
	add("RunWithBinding", slotRunWithBinding, codes[1])
	add("RunAsync", slotRunAsync, purego.NewCallback(h.runAsync))
	for _, b := range []struct {
		name     string
		slot     slot
		callback any
	}{
		{"CreateIoBinding", slotCreateIoBinding, h.createBinding},
		{"ReleaseIoBinding", slotReleaseIoBinding, h.releaseBinding},
		{"BindInput", slotBindInput, h.bindInput},
		{"ClearBoundInputs", slotClearBoundInputs, h.clearBoundInputs},
	} {
		add(b.name, b.slot, purego.NewCallback(b.callback))
	}
	return entries
}

// watch has every run told from now on, or no longer, by as many as asked for it.
func (h *hook) watch(by int64) {
	for _, s := range h.runSites {
		if s != nil {
			s.watched.Add(by)
		}
	}
}

// ran is told of a run that failed, or is in the place of one that is watched.
func (h *hook) ran(f *frame, args [8]uintptr, shadows bool, run func([8]uintptr) uintptr,
	overlaps func([8]uintptr) bool) (status uintptr) {
	back := h.backs.of(args[0])
	status = f.status
	if f.ran == 0 {
		if back != nil && (back.reverted.Load() || back.instead(args, overlaps)) {
			return back.run(args, run)
		}
		shadows = shadows && back != nil && back.same != nil
		var places []uintptr
		if shadows {
			places = words(args[7], args[6])
		}
		withSignals(h.firstRuns.began(args[0]), func() { status = run(args) })
		if shadows && status == 0 {
			return back.shadow(args, places, run)
		}
	}
	if status == 0 || back == nil {
		return status
	}
	return back.rescue(status, args, run, overlaps)
}

// rescue repeats a run that failed in the plain session. What it returns is the program's: 0, or an OrtStatus. A panic
// leaves the first failure: it must not unwind through C.
func (b *wayBack) rescue(status uintptr, args [8]uintptr, run func([8]uintptr) uintptr,
	overlaps func([8]uintptr) bool) (result uintptr) {
	defer func() {
		if p := recover(); p != nil {
			b.logger.Warn("a patched session failed, and so did its way back", "model", b.name, "reason", p, "stack",
				string(debug.Stack()))
			result = status
		}
	}()
	l := b.hook.library
	failure := l.readStatus("Run", status)
	if failure.ofProgram() {
		return status
	}
	if err := b.open(); err != nil {
		if !b.warned.Swap(true) {
			b.logger.Warn("a patched session failed, and none of the model itself can take over", "model", b.name, "reason",
				failure.Message, "obstacle", err)
		}
		return status
	}
	if b.apart != nil && failure.Code == CodeEngineError && b.apart.Gone() == nil {
		again := b.run(args, run) // no output of it lies in the memory of an input: see instead
		b.apart.Instead()
		l.call(slotReleaseStatus, status)
		return again
	}
	if overlaps(args) {
		b.revert(didFail, failure.Message, "run", "lost: an output lies in the memory of an input")
		return status
	}
	again := b.run(args, run)
	if again == 0 {
		b.revert(didFail, failure.Message, "run", "repeated")
	}
	l.call(slotReleaseStatus, status) // last: a panic returns it
	return again
}
