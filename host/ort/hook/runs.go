package hook

import (
	"runtime/debug"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// watchRuns makes the entries of the functions that run sessions, and of those by which a binding comes to have inputs.
// Without a stub for each, which no process is known to need more of, nothing is watched and no session has a way back.
func (h *hook) watchRuns() (entries []*entry) {
	l := h.library
	add := func(name string, s slot.Slot, code uintptr) {
		e := &entry{name: name, address: l.API() + uintptr(s)*cmem.WordSize, original: l.Function(s), callback: code,
			stays: true}
		h.library.Replaced(s, e.original)
		entries = append(entries, e)
	}
	var sites [2]*site
	var codes [2]uintptr
	for i, run := range []struct {
		slot      slot.Slot
		arguments int
		overlap   func(args [8]uintptr) bool
	}{{slot.Run, 8, func(args [8]uintptr) bool { return runOverlaps(l, args) }},
		{slot.RunWithBinding, 3, h.bindingOverlaps}} {
		original := l.Function(run.slot)
		code, s, ok := stub(original, func(f *frame) uintptr {
			args := f.args()
			return h.ran(f, args, run.slot == slot.Run, func(args [8]uintptr) uintptr {
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
	add("Run", slot.Run, codes[0])
	add("RunWithBinding", slot.RunWithBinding, codes[1])
	add("RunAsync", slot.RunAsync, purego.NewCallback(h.runAsync))
	for _, b := range []struct {
		name     string
		slot     slot.Slot
		callback any
	}{
		{"CreateIoBinding", slot.CreateIoBinding, h.createBinding},
		{"ReleaseIoBinding", slot.ReleaseIoBinding, h.releaseBinding},
		{"BindInput", slot.BindInput, h.bindInput},
		{"ClearBoundInputs", slot.ClearBoundInputs, h.clearBoundInputs},
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
		ort.WithSignals(h.firstRuns.began(args[0]), func() { status = run(args) })
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
	failure := l.ReadStatus("Run", status)
	if ofProgram(failure) {
		return status
	}
	if err := b.open(); err != nil {
		if !b.warned.Swap(true) {
			b.logger.Warn("a patched session failed, and none of the model itself can take over", "model", b.name, "reason",
				failure.Message, "obstacle", err)
		}
		return status
	}
	if b.apart != nil && failure.Code == ort.CodeEngineError && b.apart.Gone() == nil {
		again := b.run(args, run) // no output of it lies in the memory of an input: see instead
		b.apart.Instead()
		l.Call(slot.ReleaseStatus, status)
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
	l.Call(slot.ReleaseStatus, status) // last: a panic returns it
	return again
}
