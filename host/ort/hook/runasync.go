package hook

import (
	"sync"
	"sync/atomic"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/ort/internal/slot"
)

// An asyncRun is a run of RunAsync that is under way. What its arguments name is the program's, which leaves it
// there until its function is called.
type asyncRun struct {
	back           *wayBack
	args           [8]uintptr // as those of Run
	function, user uintptr    // of the program
}

// asyncRuns are those of the process by number, which stands where their functions get an address.
var asyncRuns struct {
	list sync.Map
	last atomic.Uint64
}

// asyncEnded is the function that is called in the place of the program's, on a thread of ONNX Runtime's.
var asyncEnded = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(number, outputs, n, status uintptr) {
		v, ok := asyncRuns.list.LoadAndDelete(number)
		if !ok {
			return
		}
		r := v.(*asyncRun)
		if status != 0 {
			l := r.back.hook.library
			status = r.back.rescue(status, r.args, func(args [8]uintptr) uintptr { return l.Original(slot.Run, args[:]...) },
				func(args [8]uintptr) bool { return runOverlaps(l, args) })
			if status == 0 {
				outputs, n = r.args[7], r.args[6]
			}
		}
		purego.SyscallN(r.function, r.user, outputs, n, status)
	})
})

func (h *hook) runAsync(session, options, inputNames, inputs, n, outputNames, m, outputs, function,
	user uintptr) uintptr {
	run := func(session, function, user uintptr) uintptr {
		return h.library.Original(slot.RunAsync, session, options, inputNames, inputs, n, outputNames, m, outputs, function,
			user)
	}
	back := h.backs.of(session)
	if back == nil {
		return run(session, function, user)
	}
	args := [8]uintptr{session, options, inputNames, inputs, n, outputNames, m, outputs}
	if back.reverted.Load() || back.instead(args, func(args [8]uintptr) bool { return runOverlaps(h.library, args) }) {
		return run(back.session.Load(), function, user)
	}
	number := uintptr(asyncRuns.last.Add(1))
	asyncRuns.list.Store(number, &asyncRun{back, args, function, user})
	status := run(session, asyncEnded(), number)
	if status != 0 {
		asyncRuns.list.Delete(number) // the function is not called
	}
	return status
}
