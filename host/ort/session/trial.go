package session

import (
	"runtime"
	"unsafe"

	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// Session makes a session besides the one that was requested, of the program's model and options: from a patch, or as
// it would be without one where that is nil. It writes no profile and no optimised model. It is for a Patcher to try
// what it is about to return, and is to be closed.
func (r Request) Session(p *Patch) (*Session, error) {
	options, err := r.Library.Options(r.options).Silent()
	if err != nil {
		return nil, err
	}
	if options != 0 {
		defer r.Library.Call(slot.ReleaseSessionOptions, options)
	}
	return r.session(p, options)
}

// session makes a session with other options than those of the request.
func (r Request) session(p *Patch, options uintptr) (_ *Session, err error) {
	l := r.Library
	var native uintptr
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&native)
	c := Creation{Library: l, Env: r.env, Options: options, own: r.own, Out: uintptr(unsafe.Pointer(&native))}
	if r.Path != "" {
		path, err := cmem.CString(r.Path)
		if err != nil {
			return nil, err
		}
		pin.Pin(path)
		c.Path = uintptr(unsafe.Pointer(path))
	} else {
		pin.Pin(&r.Model[0])
		c.Model, c.Size = uintptr(unsafe.Pointer(&r.Model[0])), uintptr(len(r.Model))
	}
	if p == nil {
		err = l.TakeStatus("CreateSession", c.Unpatched())
	} else {
		_, err = c.Patched(func(Request) (*Patch, error) { return p, nil }, r, nil)
	}
	if err != nil {
		return nil, err
	}
	made, err := Own(l, native)
	if err == nil {
		made.foreign.Store(c.Foreign())
	}
	return made, err
}
