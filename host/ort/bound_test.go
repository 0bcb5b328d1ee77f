package ort

import (
	"testing"

	"github.com/ebitengine/purego"
)

// TestPatchWithoutMemoryPattern: the session's options have none, and those of the program are as they were.
func TestPatchWithoutMemoryPattern(t *testing.T) {
	own, disabled := library.fn(slotDisableMemPattern), []uintptr{}
	replaced(t, slotDisableMemPattern, func(options uintptr) uintptr {
		disabled = append(disabled, options)
		status, _, _ := purego.SyscallN(own, options)
		return status
	})
	for _, without := range []bool{false, true} {
		var given uintptr
		disabled = nil
		s := session(t, marshal(t, unary("Relu")), SessionOptions{Patcher: func(r Request) (*Patch, error) {
			given = r.options
			return &Patch{Model: marshal(t, unary("Neg")), NoMemoryPattern: without}, nil
		}})
		expect(t, "y", run(t, s, -1, 2), 1, -2)
		if want := map[bool]int{true: 1}[without]; len(disabled) != want {
			t.Errorf("NoMemoryPattern %v: switched off %d times, want %d", without, len(disabled), want)
		}
		if len(disabled) > 0 && disabled[0] == given {
			t.Error("switched off in the program's own options")
		}
	}
}
