package cuda

import (
	"errors"
	"fmt"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// The kinds of error. A caller tells them apart with errors.Is.
var (
	// ErrNoDriver: no libcuda.so.1 where one is looked for. Most machines have none.
	ErrNoDriver = errors.New("no CUDA driver")
	// ErrDriverTooOld: the driver supports only a CUDA older than RequiredVersion.
	ErrDriverTooOld = errors.New("CUDA driver too old")
	// ErrNoDevice: the driver sees no device, or none of the number asked for.
	ErrNoDevice = errors.New("no CUDA device")
	// ErrDriver: a library that is there and cannot be used: not a driver, a stub, or at odds with the
	// kernel's module.
	ErrDriver = errors.New("CUDA driver unusable")
	// ErrClosed: use of a handle after Close, its own or its context's.
	ErrClosed = errors.New("closed")
	// ErrArgument: an argument that cannot be right, found before the driver was asked.
	ErrArgument = errors.New("bad argument")
)

// Result is a CUresult. Results that callers act on have names here; errors.Is finds them in a *CallError.
type Result int32

// Results that a program can meet without a mistake of its own.
const (
	Success            Result = 0
	InvalidValue       Result = 1
	OutOfMemory        Result = 2
	StubLibrary        Result = 34
	DeviceUnavailable  Result = 46
	NoDevice           Result = 100
	InvalidDevice      Result = 101
	InvalidImage       Result = 200
	InvalidContext     Result = 201
	NoBinaryForGPU     Result = 209
	InvalidPTX         Result = 218
	UnsupportedPTX     Result = 222
	InvalidHandle      Result = 400
	NotFound           Result = 500
	NotReady           Result = 600
	IllegalAddress     Result = 700
	OutOfResources     Result = 701 // a launch that needs more registers, threads or shared memory than there are
	LaunchFailed       Result = 719
	NotSupported       Result = 801
	SystemNotReady     Result = 802
	DriverMismatch     Result = 803
	CompatNotSupported Result = 804
	Unknown            Result = 999
)

// Error is "CUDA result 2"; a *CallError has CUDA's name and text.
func (r Result) Error() string { return fmt.Sprintf("CUDA result %d", int32(r)) }

// CallError is a result other than success of one of the driver's functions. An asynchronous failure, such
// as an illegal address in a kernel, is reported by whichever call comes next, and leaves the context
// unusable: every call after it fails with the same result until the process ends.
type CallError struct {
	Function string // "cuMemAlloc"
	Result   Result
	Name     string // "CUDA_ERROR_OUT_OF_MEMORY"
	Text     string // "out of memory"
	Detail   string // what was asked for, or the compiler's log; may be empty
}

// Error is "cuMemAlloc: out of memory (CUDA_ERROR_OUT_OF_MEMORY): 1099511627776 bytes".
func (e *CallError) Error() string {
	text := fmt.Sprintf("%s: %s (%s)", e.Function, e.Text, e.Name)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// Unwrap gives the Result.
func (e *CallError) Unwrap() error { return e.Result }

// detail adds to a failed call what was asked for.
func detail(err error, format string, args ...any) error {
	if call, ok := err.(*CallError); ok {
		call.Detail = fmt.Sprintf(format, args...)
	}
	return err
}

// badArgument is a refusal before the driver is asked.
func badArgument(call, found, need string) error {
	return &diagnostic.Error{Kind: ErrArgument, Path: call, Found: "found " + found, Needed: need}
}
