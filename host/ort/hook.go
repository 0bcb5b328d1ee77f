package ort

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// A Hook says what happens when a program creates a session while the hook is installed.
type Hook struct {
	Patcher Patcher
	// Strict makes a failure of the Patcher, or of the session made from its Patch, the failure
	// of the program's call. Otherwise the session is made from the program's own model, with
	// one warning that says why.
	Strict bool
	// Logger receives the warnings; nil is slog.Default(). A line at which it panics is lost.
	Logger *slog.Logger
	// Same, if not nil, says of an output how the patched session's differs from the plain one's; "" where it does not.
	// Then Run also runs the plain session for the first inputs of each class of shapes, by which axes have a length of
	// 0, 1 or more, and a session that differs is as one that fails. Not for Strict hooks.
	Same func(plain, patched *Value) (difference string)
	// Share is that of all other runs which are compared too, 0 to 1.
	Share float64
	// Differences is how many of a session's runs differ when the plain one takes over; 0 is 1. Of those before, its
	// results are the program's.
	Differences int
	// Named is the hook of a session that asks for another than this one, nil for one that does not. It is Ready.
	Named func(Request) *Hook
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
// It also watches how session options come by their execution providers, for [Request.Appended], and which allocators
// the program registers in its environment, for [Patch.ShareArena].
//
// Functions that another library exports beside the table (Python's InferenceSession, C++ inside
// the runtime) are not reached. Installing again replaces the hook. Sessions may be created
// meanwhile by any thread; each sees one hook or the other, entirely.
func (l *Library) Install(h Hook) error {
	if h.Patcher == nil {
		return errors.New("onnxruntime: a hook needs a Patcher")
	}
	return l.hook.install(h.Ready())
}

// Uninstall takes the hook away and puts ONNX Runtime's own functions back. Sessions that were
// patched stay as they are, with their way back: the functions that run and release them are put back
// after the last such session. What the [Patch.Retained] of one without a way back holds stays until the
// process ends, because its release is no longer seen. Without a hook it does nothing.
func (l *Library) Uninstall() error { return l.hook.uninstall() }

// Installed is the hook that is installed, nil when there is none.
func (l *Library) Installed() *Hook { return l.hook.active.Load() }

// hook is the state of Install. Callbacks, once made, last for the process: purego cannot
// free them, and a thread may have read a slot just before it was put back.
type hook struct {
	library *Library
	active  atomic.Pointer[Hook]

	mu      sync.Mutex // serialises install and uninstall
	entries []*entry

	originals sync.Map // slot -> address of ONNX Runtime's own function

	retained sync.Map // OrtSession address -> kept
	panels   panelsOf
	arenas   arenas

	appended  appendedTo
	firstRuns firstRuns

	runSites [2]*site // of Run and RunWithBinding; nil where they are not watched
	backs    backs
	bindings sync.Map // OrtIoBinding address -> *bound, of sessions with a way back
}

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
			err = fmt.Errorf("onnxruntime: hooking %s of %s: %w", e.name, h.library.path, err)
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
	defer h.appended.clear()
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
			errs = append(errs, fmt.Errorf("onnxruntime: restoring %s of %s: %w", e.name, h.library.path, err))
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
		e := &entry{name: name, address: table + uintptr(index)*wordSize, callback: purego.NewCallback(callback)}
		e.original = loadWord(table, index)
		entries = append(entries, e)
		return e
	}
	replace := func(name string, s slot, callback any) {
		h.originals.Store(s, add(name, l.api, int(s), callback).original)
	}
	replace("CreateSession", slotCreateSession, func(env, path, options, out uintptr) uintptr {
		return h.create(creation{env: env, path: path, options: options, out: out})
	})
	replace("CreateSessionFromArray", slotCreateSessionFromArray, func(env, model, size, options, out uintptr) uintptr {
		return h.create(creation{env: env, model: model, size: size, options: options, out: out})
	})
	replace("CreateSessionWithPrepackedWeightsContainer", slotCreateSessionWithPrepackedWeightsContainer,
		func(env, path, options, container, out uintptr) uintptr {
			return h.create(creation{env: env, path: path, options: options, container: container, prepacked: true, out: out})
		})
	replace("CreateSessionFromArrayWithPrepackedWeightsContainer", slotCreateSessionFromArrayWithPrepackedWeightsContainer,
		func(env, model, size, options, container, out uintptr) uintptr {
			return h.create(creation{env: env, model: model, size: size, options: options, container: container, prepacked: true,
				out: out})
		})
	replace("ReleaseSession", slotReleaseSession, func(session uintptr) {
		h.firstRuns.began(session)
		after := h.drop(session)
		l.original(slotReleaseSession, session)
		after()
	})
	entries[len(entries)-1].stays = true

	h.watchOptions(add)
	h.watchArenas(add)
	entries = append(entries, h.watchRuns()...)

	// The nested tables are null in a minimal build.
	if editor := l.call(slotGetModelEditorApi); editor != 0 {
		pass := func(name string, s editorSlot) {
			var e *entry
			e = add(name, editor, int(s), func(a, b, c, d, f uintptr) uintptr {
				h.passing(name)
				r, _, _ := purego.SyscallN(e.original, a, b, c, d, f)
				return r
			})
		}
		pass("CreateSessionFromModel", editorCreateSessionFromModel)
		pass("CreateModelEditorSession", editorCreateModelEditorSession)
		pass("CreateModelEditorSessionFromArray", editorCreateModelEditorSessionFromArray)
	}
	if compile := l.call(slotGetCompileApi); compile != 0 {
		var e *entry
		e = add("CompileModel", compile, int(compileCompileModel), func(env, options uintptr) uintptr {
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

// original calls ONNX Runtime's own function, whether or not the hook stands in its slot.
//
//go:uintptrescapes
func (l *Library) original(s slot, args ...uintptr) uintptr {
	fn := l.fn(s) // read first: if it is a callback, its original has been stored before
	if own, ok := l.hook.originals.Load(s); ok {
		fn = own.(uintptr)
	}
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}

// create runs for the functions that are patched. It returns an OrtStatus.
func (h *hook) create(c creation) uintptr {
	status := h.createPatched(c)
	if status == 0 && c.foreign(h.library) {
		h.firstRuns.await(*wordAt(c.out))
	}
	return status
}

func (h *hook) createPatched(c creation) uintptr {
	l := h.library
	active := h.active.Load()
	if active == nil {
		return l.createUnpatched(c)
	}
	l.know(c.env)
	request := c.request(l)
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
		return l.createUnpatched(c)
	case active.Strict:
		return l.newStatus(CodeFail, fmt.Sprintf("graft: %s was not patched: %v", request.name(), err))
	}
	status := l.createUnpatched(c)
	if status == 0 {
		active.Logger.Warn("session made unpatched", "model", request.name(), "reason", err)
	} else {
		// The program gets ONNX Runtime's own refusal, which says more about its model.
		active.Logger.Debug("session neither patched nor made plainly", "model", request.name(), "reason", err)
	}
	return status
}

// patch asks the patcher and makes the session from its answer. A panic becomes an error: it must
// not unwind through C.
func (h *hook) patch(active *Hook, request Request, c creation) (made bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			made, err = false, fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	p, err := active.Patcher(request)
	if p == nil || err != nil {
		return false, err
	}
	if p.Done != nil {
		defer p.Done()
	}
	weights := lent{weights: p.Weights}
	if err := weights.made(func() error { return h.library.createPatched(c, p, &weights) }); err != nil {
		p.Plain.release()
		return false, err
	}
	weights.arena = weights.arena.made(*wordAt(c.out))
	h.keep(*wordAt(c.out), p.Retained, weights)
	active.Counts.Patched.Add(1)
	if p.Plain != nil {
		h.leaveWayBack(*wordAt(c.out), active, request, c, p)
	}
	return true, nil
}
