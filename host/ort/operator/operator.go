// Package operator gives ONNX Runtime custom operators: those of plugins, and those whose kernels are Go values.
package operator

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// An Operator is a custom operator whose kernels are Go values. ONNX Runtime takes one element type a parameter: an
// operator of several is as many of one name.
type Operator struct {
	Name            string
	Since           int // version of the operator
	Inputs, Outputs []Parameter
	// Create makes the kernel of a node, on the thread that creates the session. What it is given is valid until it
	// returns.
	Create func(*Node) (Kernel, error)
}

// A Parameter is an input or output of an Operator.
type Parameter struct {
	Element            ort.ElementType // Undefined for any, which outputs cannot have
	Optional, Variadic bool
	OneType            bool // variadic only: all its tensors are of one type
	MinCount           int  // variadic only
}

// A Kernel computes a node. Runs come from any thread, several at once. An error of type *[ort.Error] fails the run
// with its code, any other with [ort.CodeFail]. ONNX Runtime closes it with its session.
type Kernel interface {
	Run(*Call) error
	Close()
}

// nativeOperator is OrtCustomOp up to API version 18: its version, then functions. What comes after is this package's.
type nativeOperator struct {
	version   uint32
	_         uint32
	functions [26]uintptr

	library *ort.Library
	of      Operator
	name    *byte
}

// operatorVersion is that of OrtCustomOp which nativeOperator has.
const operatorVersion = 18

// goOperators are all that were made. ONNX Runtime gives no sign when it reads one no more.
var goOperators struct {
	sync.Mutex
	list []*nativeOperator
}

// New makes an OrtCustomOp, for a [Domain]. It lives as long as the process.
func New(l *ort.Library, o Operator) (uintptr, error) {
	name, err := cmem.CString(o.Name)
	if err != nil {
		return 0, err
	}
	op := &nativeOperator{version: operatorVersion, functions: operatorFunctions(), library: l, of: o, name: name}
	var pin runtime.Pinner // C reads them at their addresses for ever
	pin.Pin(op)
	pin.Pin(name)
	goOperators.Lock()
	defer goOperators.Unlock()
	goOperators.list = append(goOperators.list, op)
	goPins = append(goPins, &pin)
	return uintptr(unsafe.Pointer(op)), nil
}

// goPins would unpin when they are garbage.
var goPins []*runtime.Pinner

func operatorAt(address uintptr) *nativeOperator { return (*nativeOperator)(cmem.Pointer(address)) }

// last is the parameter that may be variadic.
func last(list []Parameter) Parameter {
	if len(list) == 0 {
		return Parameter{OneType: true}
	}
	return list[len(list)-1]
}

func (p Parameter) characteristic() uintptr {
	switch {
	case p.Variadic:
		return 2
	case p.Optional:
		return 1
	}
	return 0
}

func truth(b bool) uintptr {
	if b {
		return 1
	}
	return 0
}

// operatorFunctions are the functions of every nativeOperator, in the order of OrtCustomOp.
var operatorFunctions = sync.OnceValue(func() (f [26]uintptr) {
	one := func(get func(*nativeOperator) uintptr) uintptr {
		return purego.NewCallback(func(op uintptr) uintptr { return get(operatorAt(op)) })
	}
	at := func(get func(*nativeOperator, uintptr) uintptr) uintptr {
		return purego.NewCallback(func(op, i uintptr) uintptr { return get(operatorAt(op), i) })
	}
	f[1] = one(func(op *nativeOperator) uintptr { return uintptr(unsafe.Pointer(op.name)) })
	f[2] = one(func(*nativeOperator) uintptr { return 0 }) // the CPU
	f[3] = at(func(op *nativeOperator, i uintptr) uintptr { return uintptr(op.of.Inputs[i].Element) })
	f[4] = one(func(op *nativeOperator) uintptr { return uintptr(len(op.of.Inputs)) })
	f[5] = at(func(op *nativeOperator, i uintptr) uintptr { return uintptr(op.of.Outputs[i].Element) })
	f[6] = one(func(op *nativeOperator) uintptr { return uintptr(len(op.of.Outputs)) })
	f[8] = purego.NewCallback(destroyKernel)
	f[9] = at(func(op *nativeOperator, i uintptr) uintptr { return op.of.Inputs[i].characteristic() })
	f[10] = at(func(op *nativeOperator, i uintptr) uintptr { return op.of.Outputs[i].characteristic() })
	f[11] = at(func(*nativeOperator, uintptr) uintptr { return 0 }) // inputs lie where the provider has them
	f[12] = one(func(op *nativeOperator) uintptr { return uintptr(last(op.of.Inputs).MinCount) })
	f[13] = one(func(op *nativeOperator) uintptr { return truth(last(op.of.Inputs).OneType) })
	f[14] = one(func(op *nativeOperator) uintptr { return uintptr(last(op.of.Outputs).MinCount) })
	f[15] = one(func(op *nativeOperator) uintptr { return truth(last(op.of.Outputs).OneType) })
	f[16] = purego.NewCallback(createKernel)
	f[17] = purego.NewCallback(runKernel)
	f[19] = one(func(op *nativeOperator) uintptr { return uintptr(op.of.Since) })
	f[20] = one(func(*nativeOperator) uintptr { return math.MaxInt32 })
	return f
})

// A handle is what ONNX Runtime holds of a kernel: a number, which is never an address of Go's.
var handles struct {
	list sync.Map // uintptr -> *goKernel
	last atomic.Uint64
}

type goKernel struct {
	library         *ort.Library
	kernel          Kernel
	inputs, outputs int // of the node
}

// guarded makes an OrtStatus of an error, or of a panic, which must not unwind through C.
func guarded(l *ort.Library, f func() error) (status uintptr) {
	defer func() {
		if p := recover(); p != nil {
			status = l.NewStatus(ort.CodeFail, fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	err := f()
	if err == nil {
		return 0
	}
	var e *ort.Error
	if errors.As(err, &e) && e.Call == "" {
		return l.NewStatus(e.Code, e.Message)
	}
	return l.NewStatus(ort.CodeFail, err.Error())
}

func createKernel(op, _, info, out uintptr) uintptr {
	o := operatorAt(op)
	l := o.library
	return guarded(l, func() error {
		n := &Node{library: l, info: info}
		var inputs, outputs uintptr
		if err := errors.Join(l.Try("KernelInfo_GetInputCount", slot.KernelInfo_GetInputCount, info,
			uintptr(unsafe.Pointer(&inputs))),
			l.Try("KernelInfo_GetOutputCount", slot.KernelInfo_GetOutputCount, info,
				uintptr(unsafe.Pointer(&outputs)))); err != nil {
			return err
		}
		n.Inputs, n.Outputs = int(inputs), int(outputs)
		k, err := o.of.Create(n)
		if err != nil {
			return err
		}
		handle := uintptr(handles.last.Add(1))
		handles.list.Store(handle, &goKernel{l, k, n.Inputs, n.Outputs})
		*cmem.WordAt(out) = handle
		return nil
	})
}

func runKernel(handle, context uintptr) uintptr {
	v, _ := handles.list.Load(handle)
	k := v.(*goKernel)
	return guarded(k.library, func() error {
		return k.kernel.Run(&Call{library: k.library, context: context, Inputs: k.inputs, Outputs: k.outputs})
	})
}

func destroyKernel(handle uintptr) {
	if v, ok := handles.list.LoadAndDelete(handle); ok {
		v.(*goKernel).kernel.Close()
	}
}
