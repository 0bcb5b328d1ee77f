package ort

import (
	"runtime"
	"unsafe"
)

// Session makes a session besides the one that was requested, of the program's model and options: from a patch, or as
// it would be without one where that is nil. It writes no profile and no optimised model. It is for a Patcher to try
// what it is about to return, and is to be closed.
func (r Request) Session(p *Patch) (*Session, error) {
	options, err := r.Library.silent(r.options)
	if err != nil {
		return nil, err
	}
	if options != 0 {
		defer r.Library.call(slotReleaseSessionOptions, options)
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
	c := creation{env: r.env, options: options, own: r.own, out: uintptr(unsafe.Pointer(&native))}
	if r.Path != "" {
		path, err := cString(r.Path)
		if err != nil {
			return nil, err
		}
		pin.Pin(path)
		c.path = uintptr(unsafe.Pointer(path))
	} else {
		pin.Pin(&r.Model[0])
		c.model, c.size = uintptr(unsafe.Pointer(&r.Model[0])), uintptr(len(r.Model))
	}
	if p == nil {
		err = l.takeStatus("CreateSession", l.createUnpatched(c))
	} else {
		_, err = l.hook.patch(Hook{Patcher: func(Request) (*Patch, error) { return p, nil }}.Ready(), r, c)
	}
	if err != nil {
		return nil, err
	}
	made, err := l.wrapSession(native)
	if err == nil {
		made.foreign.Store(c.foreign(l))
	}
	return made, err
}

// silent is a clone of options with which a session writes no files; null for null.
func (l *Library) silent(of uintptr) (options uintptr, err error) {
	if of == 0 {
		return 0, nil
	}
	if err := l.try("CloneSessionOptions", slotCloneSessionOptions, of, uintptr(unsafe.Pointer(&options))); err != nil {
		return 0, err
	}
	none := new(byte)
	if err = l.try("DisableProfiling", slotDisableProfiling, options); err == nil {
		err = l.try("SetOptimizedModelFilePath", slotSetOptimizedModelFilePath, options, uintptr(unsafe.Pointer(none)))
	}
	if err != nil {
		l.call(slotReleaseSessionOptions, options)
		return 0, err
	}
	return options, nil
}
