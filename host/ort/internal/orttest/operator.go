package orttest

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// A CustomOp is OrtCustomOp up to ORT API version 18: its version, then functions.
type CustomOp struct {
	version   uint32
	_         uint32
	Functions [26]uintptr
}

// Indices in CustomOp.Functions.
const (
	opCreateKernel = iota
	opGetName
	opGetExecutionProviderType
	opGetInputType
	opGetInputTypeCount
	opGetOutputType
	opGetOutputTypeCount
	OpKernelCompute
	opKernelDestroy
	opGetInputCharacteristic
	opGetOutputCharacteristic
	opGetInputMemoryType
	opGetVariadicInputMinArity
	opGetVariadicInputHomogeneity
	opGetVariadicOutputMinArity
	opGetVariadicOutputHomogeneity
	opCreateKernelV2
	OpKernelComputeV2
	opInferOutputShape
	opGetStartVersion
	opGetEndVersion
)

// PlusOne is an operator written in Go: y = x + 1 over float32[2].
func PlusOne(t testing.TB) uintptr { return PlusOneThen(t, func() {}) }

// PlusOneThen is PlusOne, and calls a function in each run.
func PlusOneThen(t testing.TB, also func()) uintptr {
	name := []byte("PlusOne\x00")
	constant := func(v uintptr) uintptr { return purego.NewCallback(func(a, b uintptr) uintptr { return v }) }
	zero, one := constant(0), constant(1)
	op := &CustomOp{version: 16}
	op.Functions = [26]uintptr{
		opCreateKernel:                 one, // a kernel without state, but not null
		opGetName:                      constant(Address(name)),
		opGetExecutionProviderType:     zero, // the CPU
		opGetInputType:                 one,  // float32
		opGetInputTypeCount:            one,
		opGetOutputType:                one,
		opGetOutputTypeCount:           one,
		opKernelDestroy:                zero,
		opGetInputCharacteristic:       zero,
		opGetOutputCharacteristic:      zero,
		opGetInputMemoryType:           zero,
		opGetVariadicInputMinArity:     zero,
		opGetVariadicInputHomogeneity:  zero,
		opGetVariadicOutputMinArity:    zero,
		opGetVariadicOutputHomogeneity: zero,
		OpKernelCompute: purego.NewCallback(func(kernel, context uintptr) {
			also()
			var in, out, x, y uintptr
			shape := []int64{2}
			for _, err := range []error{
				Library().Try("KernelContext_GetInput", slot.KernelContext_GetInput, context, 0, uintptr(unsafe.Pointer(&in))),
				Library().Try("KernelContext_GetOutput", slot.KernelContext_GetOutput, context, 0,
					uintptr(unsafe.Pointer(&shape[0])), 1,
					uintptr(unsafe.Pointer(&out))),
				Library().Try("GetTensorMutableData", slot.GetTensorMutableData, in, uintptr(unsafe.Pointer(&x))),
				Library().Try("GetTensorMutableData", slot.GetTensorMutableData, out, uintptr(unsafe.Pointer(&y))),
			} {
				if err != nil {
					t.Error(err)
					return
				}
			}
			for i, v := range unsafe.Slice((*float32)(cmem.Pointer(x)), 2) {
				unsafe.Slice((*float32)(cmem.Pointer(y)), 2)[i] = v + 1
			}
		}),
	}
	pin := &runtime.Pinner{}
	pin.Pin(op)
	pin.Pin(&name[0])
	Keep(pin)
	return uintptr(unsafe.Pointer(op))
}

// Keep holds what domains refer to as long as the process.
func Keep(pin *runtime.Pinner) { operators = append(operators, pin) }

var operators []any
