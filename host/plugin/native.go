package plugin

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// codeNames are the error codes of graft_plugin.h in words.
var codeNames = map[int32]string{
	1: "invalid argument", 2: "not supported", 3: "out of memory", 4: "device failure", 5: "internal error", 6: "refused",
}

// message is the buffer into which a plugin's function writes why it failed.
type message struct {
	header abi.Message
	text   [1024]byte
}

// newMessage makes one on the heap: C holds its address during a call, in which a callback may move this
// goroutine's stack.
//
//go:noinline
func newMessage() *message {
	m := &message{}
	m.header = abi.Message{Size: uint64(unsafe.Sizeof(m.header)), Text: &m.text[0], Capacity: uint64(len(m.text))}
	return m
}

// string is what was written, made safe to print.
func (m *message) string() string {
	text := string(m.text[:])
	if end := strings.IndexByte(text, 0); end >= 0 {
		text = text[:end]
	}
	return diagnostic.Printable(strings.TrimSpace(text))
}

// invoke calls a plugin's function that ends with a message pointer, and turns its code into an error.
// What args point to is on the heap and alive until it returns: that is what the directive asks of the
// compiler.
//
//go:uintptrescapes
func (p *Plugin) invoke(what string, function uintptr, m *message, args ...uintptr) error {
	r, _, _ := purego.SyscallN(function, append(args, uintptr(unsafe.Pointer(&m.header)))...)
	code := int32(r)
	runtime.KeepAlive(m)
	if code == abi.OK {
		return nil
	}
	name, known := codeNames[code]
	if !known {
		name = fmt.Sprintf("code %d, which the ABI does not have", code)
	}
	text := m.string()
	if text == "" {
		text = "no reason given"
	}
	kind := refusal.ErrKernel
	if code == abi.Refused {
		kind = refusal.ErrFold
	}
	return &diagnostic.Error{Kind: kind, Path: p.Path, Found: fmt.Sprintf("%s failed: %s (%s)", what, text, name)}
}

// pointer turns an address that C returned into a pointer. The memory is C's, so the collector does not
// care; the indirection is what spares vet's warning of the general case.
func pointer[T any](address uintptr) *T {
	return *(**T)(unsafe.Pointer(&address))
}

// cAttributes builds an array of attributes; the pins keep alive what only C would see.
func cAttributes(attributes []manifest.Attribute) ([]*abi.Attribute, error) {
	out := make([]*abi.Attribute, len(attributes))
	for i, a := range attributes {
		c := &abi.Attribute{Size: uint64(unsafe.Sizeof(abi.Attribute{})), Name: abi.CString(a.Name)}
		switch v := a.Value.(type) {
		case int64:
			c.Kind, c.IntValue = abi.AttributeInt, v
		case int:
			c.Kind, c.IntValue = abi.AttributeInt, int64(v)
		case float64:
			c.Kind, c.FloatValue = abi.AttributeFloat, v
		case string:
			c.Kind, c.Data, c.Count = abi.AttributeString, unsafe.Pointer(abi.CString(v)), uint64(len(v))
		case []int64:
			c.Kind, c.Data, c.Count = abi.AttributeInts, unsafe.Pointer(unsafe.SliceData(v)), uint64(len(v))
		case []float64:
			narrow := make([]float32, len(v))
			for i, f := range v {
				narrow[i] = float32(f)
			}
			c.Kind, c.Data, c.Count = abi.AttributeFloats, unsafe.Pointer(unsafe.SliceData(narrow)), uint64(len(v))
		default:
			return nil, fmt.Errorf("attribute %s: found a value of type %T, needed int64, float64, string, []int64 or []float64",
				a.Name, a.Value)
		}
		out[i] = c
	}
	return out, nil
}

// cTensors builds an array of DLTensor pointers.
func cTensors(tensors []*tensor.Tensor, what string) ([]*abi.Tensor, error) {
	out := make([]*abi.Tensor, len(tensors))
	for i, t := range tensors {
		var err error
		if out[i], err = t.ABI(); err != nil {
			return nil, fmt.Errorf("%s %d: %w", what, i, err)
		}
	}
	return out, nil
}
