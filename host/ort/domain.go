package ort

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/base/abi"
)

// domains caches the OrtCustomOpDomain objects of a library. ONNX Runtime reads a domain for as
// long as any session made with it lives, and gives no sign when the last one is gone; equal
// domains are therefore made once for the process.
type domains struct {
	mu   sync.Mutex
	made map[string]uintptr

	knowing sync.Mutex
	known   atomic.Bool // see know
}

// OperatorName is what an operator of a domain is called; op is the address of an OrtCustomOp, which begins
// with its version and the functions CreateKernel and GetName.
func OperatorName(op uintptr) string {
	custom := (*struct {
		_       uint32
		_       uintptr
		getName uintptr
	})(pointer(op))
	name, _, _ := purego.SyscallN(custom.getName, op)
	return goString(name)
}

func (l *Library) domain(d Domain) (uintptr, error) {
	key := fmt.Sprintf("%s %x", d.Name, d.Operators)
	c := &l.domainCache
	c.mu.Lock()
	defer c.mu.Unlock()
	if native, ok := c.made[key]; ok {
		return native, nil
	}
	name, err := cString(d.Name)
	if err != nil {
		return 0, err
	}
	var native uintptr
	if err := l.try("CreateCustomOpDomain", slotCreateCustomOpDomain, uintptr(unsafe.Pointer(name)),
		uintptr(unsafe.Pointer(&native))); err != nil {
		return 0, err
	}
	for i, op := range d.Operators {
		if op == 0 {
			err = fmt.Errorf("onnxruntime: operator %d of domain %q is null", i, d.Name)
		} else {
			err = l.try("CustomOpDomain_Add", slotCustomOpDomain_Add, native, op)
		}
		if err != nil {
			l.call(slotReleaseCustomOpDomain, native)
			return 0, err
		}
	}
	if c.made == nil {
		c.made = map[string]uintptr{}
	}
	c.made[key] = native
	return native, nil
}

// addDomains registers domains on an OrtSessionOptions.
func (l *Library) addDomains(options uintptr, list []Domain) error {
	for _, d := range list {
		native, err := l.domain(d)
		if err != nil {
			return err
		}
		if err := l.try("AddCustomOpDomain", slotAddCustomOpDomain, options, native); err != nil {
			return err
		}
	}
	return nil
}

// know has the runtime enter the domain of plugins' operators in its table of domains, before any session that the
// hook sees or that this package makes. The runtime enters a domain while it creates the first session that has it,
// and does not guard the table: of sessions created at once all but one would fail (its issues 22663 and 26366), and
// another would read what is being written. Where it fails, the next session tries again.
func (l *Library) know(env uintptr) {
	c := &l.domainCache
	if c.known.Load() {
		return
	}
	c.knowing.Lock()
	defer c.knowing.Unlock()
	if c.known.Load() {
		return
	}
	if session, err := l.probeSession(env, SessionOptions{Domains: []Domain{{Name: abi.ONNXDomain}}}); err == nil {
		l.original(slotReleaseSession, session)
		c.known.Store(true)
	}
}
