package operator

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/probe"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// A Domain is a set of custom operators under one ONNX domain name. ONNX Runtime registers a
// domain name once a session, so operators of several plugins share one Domain.
type Domain struct {
	Name string
	// Operators are addresses of OrtCustomOp structs, which must stay valid for the process:
	// static data of a library that is never unmapped.
	Operators []uintptr
}

// domains caches the OrtCustomOpDomain objects of a library. ONNX Runtime reads a domain for as
// long as any session made with it lives, and gives no sign when the last one is gone; equal
// domains are therefore made once for the process.
type domains struct {
	library *ort.Library

	mu   sync.Mutex
	made map[string]uintptr

	knowing sync.Mutex
	known   atomic.Bool // see Know
}

// domainsOf has those of each library.
var domainsOf = ort.NewEach(func(l *ort.Library) *domains { return &domains{library: l} })

// Name is what an operator of a domain is called; op is the address of an OrtCustomOp, which begins
// with its version and the functions CreateKernel and GetName.
func Name(op uintptr) string {
	custom := (*struct {
		_       uint32
		_       uintptr
		getName uintptr
	})(cmem.Pointer(op))
	name, _, _ := purego.SyscallN(custom.getName, op)
	return cmem.GoString(name)
}

func (c *domains) domain(d Domain) (uintptr, error) {
	l := c.library
	key := fmt.Sprintf("%s %x", d.Name, d.Operators)
	c.mu.Lock()
	defer c.mu.Unlock()
	if native, ok := c.made[key]; ok {
		return native, nil
	}
	name, err := cmem.CString(d.Name)
	if err != nil {
		return 0, err
	}
	var native uintptr
	if err := l.Try("CreateCustomOpDomain", slot.CreateCustomOpDomain, uintptr(unsafe.Pointer(name)),
		uintptr(unsafe.Pointer(&native))); err != nil {
		return 0, err
	}
	for i, op := range d.Operators {
		if op == 0 {
			err = fmt.Errorf("onnxruntime: operator %d of domain %q is null", i, d.Name)
		} else {
			err = l.Try("CustomOpDomain_Add", slot.CustomOpDomain_Add, native, op)
		}
		if err != nil {
			l.Call(slot.ReleaseCustomOpDomain, native)
			return 0, err
		}
	}
	if c.made == nil {
		c.made = map[string]uintptr{}
	}
	c.made[key] = native
	return native, nil
}

// AddDomains registers domains on an OrtSessionOptions.
func AddDomains(l *ort.Library, options uintptr, list []Domain) error {
	for _, d := range list {
		native, err := domainsOf.Of(l).domain(d)
		if err != nil {
			return err
		}
		if err := l.Try("AddCustomOpDomain", slot.AddCustomOpDomain, options, native); err != nil {
			return err
		}
	}
	return nil
}

// Know has the runtime enter the domain of plugins' operators in its table of domains, before any session that the
// hook sees or that package session makes. The runtime enters a domain while it creates the first session that has it,
// and does not guard the table: of sessions created at once all but one would fail (its issues 22663 and 26366), and
// another would read what is being written. Where it fails, the next session tries again.
func Know(l *ort.Library, env uintptr) {
	c := domainsOf.Of(l)
	if c.known.Load() {
		return
	}
	c.knowing.Lock()
	defer c.knowing.Unlock()
	if c.known.Load() {
		return
	}
	if session, err := probe.Session(l, env, func(options uintptr) error {
		return AddDomains(l, options, []Domain{{Name: abi.ONNXDomain}})
	}); err == nil {
		l.Original(slot.ReleaseSession, session)
		c.known.Store(true)
	}
}
