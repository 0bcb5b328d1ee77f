package hook

import (
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
	"github.com/opgraft/graft/host/ort/session"
)

// A wayBack is how a patched session becomes a plain one: where a run of it fails, a session is made from the program's
// own model and options, once, and the run is repeated there. If that does better, it takes over. The patched session
// is there until the program releases it, which knows no other.
type wayBack struct {
	hook   *hook
	logger *slog.Logger
	counts *Counts // of Hook
	name   string  // of the model
	path   *byte   // absolute; nil for a model given as bytes
	plain  *session.Plain
	as     session.Creation // options are a clone of our own, or null

	mu       sync.Mutex // held while the plain session is made
	session  atomic.Uintptr
	foreign  atomic.Bool // has a provider of a device, and has not run
	reverted atomic.Bool
	warned   atomic.Bool

	same   func(plain, patched *ort.Value) (difference string) // of Hook
	share  float64                                             // of Hook
	bears  int64                                               // differences before the plain session takes over
	differ atomic.Int64                                        // runs that did
	seen   sync.Map                                            // classes of shapes that were compared
	hidden *session.Hidden                                     // of Patch
	apart  session.Apart                                       // of Patch
}

// watches reports that it is told of every run.
func (b *wayBack) watches() bool { return b.same != nil || b.apart != nil }

// reverted counts sessions.
var reverted atomic.Int64

// Reverted is how many patched sessions of the process became plain ones, because one of their runs failed.
func Reverted() int64 { return reverted.Load() }

// backs are the ways back of patched sessions by the addresses of these.
type backs struct {
	list sync.Map
	n    atomic.Int64
}

func (b *backs) none() bool { return b.n.Load() == 0 }

func (b *backs) of(session uintptr) *wayBack {
	if v, ok := b.list.Load(session); ok {
		return v.(*wayBack)
	}
	return nil
}

func (b *backs) take(session uintptr) *wayBack {
	if v, ok := b.list.LoadAndDelete(session); ok {
		return v.(*wayBack)
	}
	return nil
}

// leaveWayBack gives a patched session one. Where that fails, it has none.
func (h *hook) leaveWayBack(session uintptr, active *Hook, request session.Request, c session.Creation,
	p *session.Patch) {
	plain := p.Plain
	if h.active.Load() == nil || h.given.Lends(c.Options) { // copies of those are ONNX Runtime's only
		plain.Close()
		return
	}
	b := &wayBack{hook: h, logger: active.Logger, counts: active.Counts, name: request.Name(), plain: plain, as: c,
		same:  active.Same,
		share: active.Share, bears: int64(max(active.Differences, 1)) - 1, hidden: p.Hidden, apart: p.Apart}
	b.foreign.Store(c.Foreign())
	err := b.remember(request)
	if err != nil {
		active.Logger.Warn("a patched session has no way back", "model", b.name, "reason", err)
		plain.Close()
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.active.Load() == nil { // meanwhile: runs of this session are seen no more, nor is its end
		b.forget()
		return
	}
	if b.watches() {
		h.watch(1)
	}
	h.backs.n.Add(1)
	h.backs.list.Store(session, b)
}

// forget releases what the plain session would be made from.
func (b *wayBack) forget() {
	if b.as.Options != 0 {
		b.hook.library.Call(slot.ReleaseSessionOptions, b.as.Options)
	}
	b.plain.Close()
}

// remember copies what the program may take away.
func (b *wayBack) remember(request session.Request) (err error) {
	l := b.hook.library
	b.as.Path, b.as.Model, b.as.Size, b.as.Out = 0, 0, 0, 0
	if request.Path != "" {
		path, err := filepath.Abs(request.Path)
		if err != nil {
			return err
		}
		if b.path, err = cmem.CString(path); err != nil {
			return err
		}
	}
	// Files that the patched session writes are not to be written over.
	b.as.Options, err = l.Options(b.as.Options).Silent()
	return err
}

// open makes the plain session, once.
func (b *wayBack) open() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session.Load() != 0 {
		return nil
	}
	model, ready, err := b.plain.Model()
	if err != nil {
		return err
	}
	c := b.as
	var made uintptr
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&made)
	c.Out = uintptr(unsafe.Pointer(&made))
	if len(model) > 0 {
		pin.Pin(&model[0])
		c.Model, c.Size = uintptr(unsafe.Pointer(&model[0])), uintptr(len(model))
	} else {
		pin.Pin(b.path)
		c.Path = uintptr(unsafe.Pointer(b.path))
	}
	l := b.hook.library
	var status uintptr
	ort.WithSignals(b.foreign.Load(), func() { status = c.Create() })
	err = l.TakeStatus("CreateSession", status)
	if changed := ready(); changed != nil {
		if made != 0 {
			l.Original(slot.ReleaseSession, made)
		}
		return changed // says more
	}
	if err == nil {
		b.session.Store(made)
	}
	return err
}

// run runs the plain session.
func (b *wayBack) run(args [8]uintptr, run func([8]uintptr) uintptr) (status uintptr) {
	args[0] = b.session.Load()
	ort.WithSignals(b.foreign.CompareAndSwap(true, false), func() { status = run(args) })
	return status
}

// What a session did that is reverted.
const (
	didFail   = "a patched session failed, and runs unpatched from now on"
	didDiffer = "a patched session answered otherwise than its model, and runs unpatched from now on"
)

// revert has the plain session take over, with one warning.
func (b *wayBack) revert(did, reason string, also ...any) {
	if b.reverted.Swap(true) {
		return
	}
	b.hook.watch(1)
	reverted.Add(1)
	b.counts.Reverted.Add(1)
	b.logger.Warn(did, append([]any{"model", b.name, "reason", reason}, also...)...)
}

// close releases what the session had, which is no more.
func (b *wayBack) close() {
	if b == nil {
		return
	}
	if session := b.session.Load(); session != 0 {
		b.hook.library.Original(slot.ReleaseSession, session)
	}
	b.forget()
	if b.reverted.Load() {
		b.hook.watch(-1)
	}
	if b.watches() {
		b.hook.watch(-1)
	}
	b.hook.lastGone()
}

// lastGone puts ONNX Runtime's functions back that stayed after Uninstall, when no session is left that needs them.
func (h *hook) lastGone() {
	if h.backs.n.Add(-1) > 0 || h.active.Load() != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.active.Load() == nil && h.backs.none() {
		_ = h.restore(func(e *entry) bool { return e.stays }) // what stays passes every call on
	}
}

// ofProgram reports a failure of which the patch has no part: the program asked the run to end, or gave inputs that the
// model does not take, of which ONNX Runtime convinces itself before any operator runs. That only spares a second
// session; what is not found here is found by running it.
func ofProgram(e *ort.Error) bool {
	if strings.Contains(e.Message, "terminate flag") {
		return true
	}
	return e.Code == ort.CodeInvalidArgument && !strings.Contains(e.Message, "while running ")
}
