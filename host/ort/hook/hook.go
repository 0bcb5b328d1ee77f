// Package hook has sessions that any binding of the process makes be patched: it stands in the functions of ONNX
// Runtime that create and run sessions.
package hook

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/given"
	"github.com/opgraft/graft/host/ort/internal/slot"
	"github.com/opgraft/graft/host/ort/operator"
	"github.com/opgraft/graft/host/ort/session"
)

// A Hook says what happens when a program creates a session while the hook is installed.
type Hook struct {
	Patcher session.Patcher
	// Strict makes a failure of the Patcher, or of the session made from its Patch, the failure
	// of the program's call. Otherwise the session is made from the program's own model, with
	// one warning that says why.
	Strict bool
	// Logger receives the warnings; nil is slog.Default(). A line at which it panics is lost.
	Logger *slog.Logger
	// Same, if not nil, says of an output how the patched session's differs from the plain one's; "" where it does not.
	// Then Run also runs the plain session for the first inputs of each class of shapes, by which axes have a length of
	// 0, 1 or more, and a session that differs is as one that fails. Not for Strict hooks.
	Same func(plain, patched *ort.Value) (difference string)
	// Share is that of all other runs which are compared too, 0 to 1.
	Share float64
	// Differences is how many of a session's runs differ when the plain one takes over; 0 is 1. Of those before, its
	// results are the program's.
	Differences int
	// Named is the hook of a session that asks for another than this one, nil for one that does not. It is Ready.
	Named func(session.Request) *Hook
	// Counts are of this hook's sessions; nil counts nothing.
	Counts *Counts
}

// Counts are those of sessions.
type Counts struct {
	Patched  atomic.Int64 // sessions that were created with a Patch
	Reverted atomic.Int64 // that became plain ones, because one of their runs failed
	Shadowed atomic.Int64 // runs that were compared with plain sessions
	Differed atomic.Int64 // of these
}

// Ready is the hook as Install installs it.
func (h Hook) Ready() *Hook {
	if h.Logger == nil {
		h.Logger = slog.Default()
	}
	if h.Counts == nil {
		h.Counts = &Counts{}
	}
	h.Logger = slog.New(steady{diagnostic.Logger(h.Logger).Handler()})
	return &h
}

// Install puts a hook before every function of the library's C API that creates a session:
//
//   - CreateSession, CreateSessionFromArray and the same two with a container of prepacked
//     weights are patched;
//   - CreateModelEditorSession, CreateModelEditorSessionFromArray and CreateSessionFromModel are
//     seen but pass through, with a debug message: the program goes on to edit that graph by its
//     values' names, which a patch may have removed;
//   - CompileModel passes through likewise: what it writes outlives the process, so it must not
//     depend on operators that only this process registers.
//
// It also watches how session options come by their execution providers, for [session.Request.Appended], and which
// allocators the program registers in its environment, for [session.Patch.ShareArena].
//
// Functions that another library exports beside the table (Python's InferenceSession, C++ inside
// the runtime) are not reached. Installing again replaces the hook. Sessions may be created
// meanwhile by any thread; each sees one hook or the other, entirely.
func Install(l *ort.Library, h Hook) error {
	if h.Patcher == nil {
		return errors.New("onnxruntime: a hook needs a Patcher")
	}
	return hookOf.Of(l).install(h.Ready())
}

// Uninstall takes the hook away and puts ONNX Runtime's own functions back. Sessions that were
// patched stay as they are, with their way back: the functions that run and release them are put back
// after the last such session. What the [session.Patch.Retained] of one without a way back holds stays until the
// process ends, because its release is no longer seen. Without a hook it does nothing.
func Uninstall(l *ort.Library) error { return hookOf.Of(l).uninstall() }

// Installed is the hook that is installed, nil when there is none.
func Installed(l *ort.Library) *Hook { return hookOf.Of(l).active.Load() }

// hook is the state of Install. Callbacks, once made, last for the process: purego cannot
// free them, and a thread may have read a slot just before it was put back.
type hook struct {
	library *ort.Library
	active  atomic.Pointer[Hook]

	mu      sync.Mutex // serialises install and uninstall
	entries []*entry

	given     *given.Notes
	firstRuns firstRuns

	runSites [2]*site // of Run and RunWithBinding; nil where they are not watched
	backs    backs
	bindings sync.Map // OrtIoBinding address -> *bound, of sessions with a way back
}

// hookOf has that of each library.
var hookOf = ort.NewEach(func(l *ort.Library) *hook {
	h := &hook{library: l, given: given.To(l)}
	h.firstRuns.hook = h
	return h
})

// An entry is one replaced function pointer.
type entry struct {
	name               string
	address            uintptr // of the pointer in its table
	original, callback uintptr
	stays              bool // as long as a session has a way back
}

func (h *hook) install(active *Hook) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.entries == nil {
		h.entries = h.makeEntries()
	}
	previous := h.active.Swap(active)
	for i, e := range h.entries {
		// A pointer that is neither ours nor the original belongs to somebody who came after us
		// and calls us: writing over it would remove them, or make a circle.
		if err := replaceWord(e.address, e.original, e.callback); err != nil {
			err = fmt.Errorf("onnxruntime: hooking %s of %s: %w", e.name, h.library.Path(), err)
			if previous == nil {
				h.active.Store(nil)
				for _, done := range h.entries[:i] {
					err = errors.Join(err, replaceWord(done.address, done.callback, done.original))
				}
			}
			return err
		}
	}
	return nil
}

func (h *hook) uninstall() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.active.Swap(nil) == nil {
		return nil
	}
	defer h.firstRuns.clear()
	defer h.given.Clear()
	return h.restore(func(e *entry) bool { return !e.stays || h.backs.none() })
}

// restore puts ONNX Runtime's own functions back. The lock is held.
func (h *hook) restore(which func(*entry) bool) error {
	var errs []error
	for _, e := range h.entries {
		if !which(e) {
			continue
		}
		if err := replaceWord(e.address, e.callback, e.original); err != nil {
			errs = append(errs, fmt.Errorf("onnxruntime: restoring %s of %s: %w", e.name, h.library.Path(), err))
		}
	}
	return errors.Join(errs...)
}

// makeEntries makes the callbacks. They run on threads of the program, so each begins by loading
// h.active, which orders it after everything here.
func (h *hook) makeEntries() []*entry {
	l := h.library
	var entries []*entry
	add := func(name string, table uintptr, index int, callback any) *entry {
		e := &entry{name: name, address: table + uintptr(index)*cmem.WordSize, callback: purego.NewCallback(callback)}
		e.original = cmem.LoadWord(table, index)
		entries = append(entries, e)
		return e
	}
	replace := func(name string, s slot.Slot, callback any) {
		h.library.Replaced(s, add(name, l.API(), int(s), callback).original)
	}
	replace("CreateSession", slot.CreateSession, func(env, path, options, out uintptr) uintptr {
		return h.create(session.Creation{Library: l, Env: env, Path: path, Options: options, Out: out})
	})
	replace("CreateSessionFromArray", slot.CreateSessionFromArray, func(env, model, size, options, out uintptr) uintptr {
		return h.create(session.Creation{Library: l, Env: env, Model: model, Size: size, Options: options, Out: out})
	})
	replace("CreateSessionWithPrepackedWeightsContainer", slot.CreateSessionWithPrepackedWeightsContainer,
		func(env, path, options, container, out uintptr) uintptr {
			return h.create(session.Creation{Library: l, Env: env, Path: path, Options: options, Container: container,
				Prepacked: true, Out: out})
		})
	replace("CreateSessionFromArrayWithPrepackedWeightsContainer",
		slot.CreateSessionFromArrayWithPrepackedWeightsContainer,
		func(env, model, size, options, container, out uintptr) uintptr {
			return h.create(session.Creation{Library: l, Env: env, Model: model, Size: size, Options: options,
				Container: container, Prepacked: true,
				Out: out})
		})
	replace("ReleaseSession", slot.ReleaseSession, func(native uintptr) {
		h.firstRuns.began(native)
		after := h.drop(native)
		l.Original(slot.ReleaseSession, native)
		after()
	})
	entries[len(entries)-1].stays = true

	h.watchOptions(add)
	h.watchArenas(add)
	entries = append(entries, h.watchRuns()...)

	// The nested tables are null in a minimal build.
	if editor := l.Call(slot.GetModelEditorApi); editor != 0 {
		pass := func(name string, s slot.EditorSlot) {
			var e *entry
			e = add(name, editor, int(s), func(a, b, c, d, f uintptr) uintptr {
				h.passing(name)
				r, _, _ := purego.SyscallN(e.original, a, b, c, d, f)
				return r
			})
		}
		pass("CreateSessionFromModel", slot.EditorCreateSessionFromModel)
		pass("CreateModelEditorSession", slot.EditorCreateModelEditorSession)
		pass("CreateModelEditorSessionFromArray", slot.EditorCreateModelEditorSessionFromArray)
	}
	if compile := l.Call(slot.GetCompileApi); compile != 0 {
		var e *entry
		e = add("CompileModel", compile, int(slot.CompilerCompileModel), func(env, options uintptr) uintptr {
			h.passing("CompileModel")
			r, _, _ := purego.SyscallN(e.original, env, options)
			return r
		})
	}
	return entries
}

func (h *hook) passing(name string) {
	if active := h.active.Load(); active != nil {
		active.Logger.Debug("not patched: a model that the program edits or compiles is left as it is", "call", name)
	}
}

// create runs for the functions that are patched. It returns an OrtStatus.
func (h *hook) create(c session.Creation) uintptr {
	status := h.createPatched(c)
	if status == 0 && c.Foreign() {
		h.firstRuns.await(*cmem.WordAt(c.Out))
	}
	return status
}

func (h *hook) createPatched(c session.Creation) uintptr {
	l := h.library
	active := h.active.Load()
	if active == nil {
		return c.Unpatched()
	}
	operator.Know(l, c.Env)
	request := c.Request()
	if active.Named != nil {
		if named := active.Named(request); named != nil {
			active = named
		}
	}
	request.WayBack = !active.Strict && h.runSites[0] != nil
	made, err := h.patch(active, request, c)
	switch {
	case made:
		return 0
	case err == nil:
		return c.Unpatched()
	case active.Strict:
		return l.NewStatus(ort.CodeFail, fmt.Sprintf("graft: %s was not patched: %v", request.Name(), err))
	}
	status := c.Unpatched()
	if status == 0 {
		active.Logger.Warn("session made unpatched", "model", request.Name(), "reason", err)
	} else {
		// The program gets ONNX Runtime's own refusal, which says more about its model.
		active.Logger.Debug("session neither patched nor made plainly", "model", request.Name(), "reason", err)
	}
	return status
}

// patch makes the session from the patcher's answer, if it has one.
func (h *hook) patch(active *Hook, request session.Request, c session.Creation) (made bool, err error) {
	p, err := c.Patched(active.Patcher, request, func(p *session.Patch) {
		active.Counts.Patched.Add(1)
		if p.Plain != nil {
			h.leaveWayBack(*cmem.WordAt(c.Out), active, request, c, p)
		}
	})
	return p != nil, err
}

// drop takes what a session has from the lists, before its address can name another session. What is returned is
// called when the session is no more.
func (h *hook) drop(native uintptr) (after func()) {
	back, dropped := h.backs.take(native), session.Drop(h.library, native)
	return func() {
		back.close()
		dropped()
	}
}
