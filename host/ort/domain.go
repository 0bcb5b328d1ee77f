package ort

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// domains caches the OrtCustomOpDomain objects of a library. ONNX Runtime reads a domain for as
// long as any session made with it lives, and gives no sign when the last one is gone; equal
// domains are therefore made once for the process.
type domains struct {
	mu   sync.Mutex
	made map[string]uintptr
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
	if err := l.try("CreateCustomOpDomain", slotCreateCustomOpDomain, uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&native))); err != nil {
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
