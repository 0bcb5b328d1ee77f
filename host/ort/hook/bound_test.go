package hook

import (
	"testing"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/ort/internal/orttest"
	"github.com/opgraft/graft/host/ort/internal/slot"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// TestPatchWithoutMemoryPattern: the session's options have none, and those of the program are as they were.
func TestPatchWithoutMemoryPattern(t *testing.T) {
	r := orttest.NewRaw(t)
	at, size := r.Bytes(orttest.Marshal(t, orttest.Unary("Relu")))
	own, disabled := library.Function(slot.DisableMemPattern), []uintptr{}
	replaced(t, slot.DisableMemPattern, func(options uintptr) uintptr {
		disabled = append(disabled, options)
		status, _, _ := purego.SyscallN(own, options)
		return status
	})
	for _, without := range []bool{false, true} {
		given := r.Options()
		disabled = nil
		install(t, Hook{Strict: true, Patcher: func(session.Request) (*session.Patch, error) {
			return &session.Patch{Model: orttest.Marshal(t, orttest.Unary("Neg")), NoMemoryPattern: without}, nil
		}})
		s := must.Value(r.Session(slot.CreateSessionFromArray, at, size, given))(t)
		orttest.Expect(t, "y", orttest.Run(t, s, -1, 2), 1, -2)
		must.Equal(t, len(disabled), map[bool]int{true: 1}[without], without)
		if len(disabled) > 0 && disabled[0] == given {
			t.Error("switched off in the program's own options")
		}
	}
}
