package cuda

import (
	"sync"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// life is whether something is open, and how many calls are using it.
type life struct {
	sync.Mutex
	users  int
	closed bool
	idle   chan struct{} // made by end, closed by the last user
}

// enter counts a call, unless it is too late for one. It never waits, so that a call can enter several
// lives in any order.
func (l *life) enter() bool {
	l.Lock()
	defer l.Unlock()
	if l.closed {
		return false
	}
	l.users++
	return true
}

func (l *life) exit() {
	l.Lock()
	defer l.Unlock()
	if l.users--; l.users == 0 && l.idle != nil {
		close(l.idle)
	}
}

// end lets no more calls in and waits for those that are. It reports whether it was the first.
func (l *life) end() bool {
	l.Lock()
	if l.closed {
		l.Unlock()
		return false
	}
	l.closed = true
	if l.users == 0 {
		l.Unlock()
		return true
	}
	l.idle = make(chan struct{})
	l.Unlock()
	<-l.idle
	return true
}

// handle is what a context owns: something that the driver made and has to destroy.
type handle struct {
	context *Context
	kind    string // "a stream"
	value   uintptr
	size    uintptr // of pinned memory, in bytes
	destroy entry
	life    life
}

// close destroys the handle, once.
func (h *handle) close() error {
	if h == nil || !h.context.life.enter() {
		return nil // the context has closed it
	}
	defer h.context.life.exit()
	if !h.life.end() {
		return nil
	}
	h.context.disown(h)
	return h.context.current(func() error { return h.context.driver.call(h.destroy, h.value) })
}

func (h *handle) closed(call string) error {
	return &diagnostic.Error{Kind: ErrClosed, Path: call, Found: "found " + h.kind + " that is closed"}
}
