package orttest

import (
	"testing"
	"unsafe"

	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// A Raw calls the C API as another binding would.
type Raw struct {
	testing.TB
	Env  uintptr
	Pins []any // Go memory that C is told of by address
}

// NewRaw calls in the environment that all sessions of the process have.
func NewRaw(t testing.TB) *Raw {
	env := must.Value(Library().Environment())(t)
	r := &Raw{TB: t, Env: env}
	t.Cleanup(func() { clear(r.Pins) }) // holds r, and with it what it pins, through the test
	return r
}

// Text is the address of a C string.
func (r *Raw) Text(s string) uintptr {
	p, err := cmem.CString(s)
	if err != nil {
		r.Fatal(err)
	}
	r.Pins = append(r.Pins, p)
	return uintptr(unsafe.Pointer(p))
}

// Bytes gives the address and size of a model's bytes.
func (r *Raw) Bytes(b []byte) (uintptr, uintptr) {
	r.Pins = append(r.Pins, b)
	return Address(b), uintptr(len(b))
}

// Word is a place that C writes an address to. It is on the heap: a stack may move.
func (r *Raw) Word() *uintptr {
	p := new(uintptr)
	r.Pins = append(r.Pins, p)
	return p
}

// Session creates a session by way of a slot; args are the arguments after env and before out.
func (r *Raw) Session(s slot.Slot, args ...uintptr) (*session.Session, error) {
	out := r.Word()
	args = append(append([]uintptr{r.Env}, args...), uintptr(unsafe.Pointer(out)))
	if err := Library().Try("create", s, args...); err != nil {
		return nil, err
	}
	made, err := session.Own(Library(), *out)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(made.Close)
	return made, nil
}

// Container is for prepacked weights.
func (r *Raw) Container() uintptr {
	out := r.Word()
	if err := Library().Try("container", slot.CreatePrepackedWeightsContainer, uintptr(unsafe.Pointer(out))); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { Library().Call(slot.ReleasePrepackedWeightsContainer, *out) })
	return *out
}

// Options are an OrtSessionOptions of one thread.
func (r *Raw) Options() uintptr {
	out := r.Word()
	must.Succeed(r, Library().Try("CreateSessionOptions", slot.CreateSessionOptions, uintptr(unsafe.Pointer(out))))
	options := *out
	must.Succeed(r, Library().Try("SetIntraOpNumThreads", slot.SetIntraOpNumThreads, options, 1))
	r.Cleanup(func() { Library().Call(slot.ReleaseSessionOptions, options) })
	return options
}

// Address is the address of a Go slice's first element, 0 when it is empty.
func Address[T any](s []T) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(s))) }
