package ort

import (
	"testing"
	"unsafe"

	"github.com/opgraft/graft/internal/must"
)

// raw calls the C API as another binding would.
type raw struct {
	testing.TB
	env  uintptr
	pins []any // Go memory that C is told of by address
}

func newRaw(t testing.TB) *raw {
	env := must.Value(library.env())(t)
	r := &raw{TB: t, env: env}
	t.Cleanup(func() { clear(r.pins) }) // holds r, and with it what it pins, through the test
	return r
}

func (r *raw) text(s string) uintptr {
	p, err := cString(s)
	if err != nil {
		r.Fatal(err)
	}
	r.pins = append(r.pins, p)
	return uintptr(unsafe.Pointer(p))
}

// bytes gives the address and size of a model's bytes.
func (r *raw) bytes(b []byte) (uintptr, uintptr) {
	r.pins = append(r.pins, b)
	return address(b), uintptr(len(b))
}

// word is a place that C writes an address to. It is on the heap: a stack may move.
func (r *raw) word() *uintptr {
	p := new(uintptr)
	r.pins = append(r.pins, p)
	return p
}

// session creates a session by way of a slot; args are the arguments after env and before out.
func (r *raw) session(s slot, args ...uintptr) (*Session, error) {
	out := r.word()
	args = append(append([]uintptr{r.env}, args...), uintptr(unsafe.Pointer(out)))
	if err := library.try("create", s, args...); err != nil {
		return nil, err
	}
	made, err := library.wrapSession(*out)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(made.Close)
	return made, nil
}

func (r *raw) container() uintptr {
	out := r.word()
	if err := library.try("container", slotCreatePrepackedWeightsContainer, uintptr(unsafe.Pointer(out))); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { library.call(slotReleasePrepackedWeightsContainer, *out) })
	return *out
}

func (r *raw) options() uintptr {
	options, err := library.newOptions(SessionOptions{IntraOpThreads: 1})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { library.call(slotReleaseSessionOptions, options) })
	return options
}

// address is the address of a Go slice's first element, 0 when it is empty.
func address[T any](s []T) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(s))) }
