//go:build linux

package hook

import (
	"syscall"
	"testing"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/orttest"
	"github.com/opgraft/graft/host/ort/internal/slot"
	"github.com/opgraft/graft/host/ort/operator"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// handlerOf asks the kernel for the handler of a signal.
func handlerOf(t testing.TB, signal syscall.Signal) uintptr {
	t.Helper()
	var action [4]uint64 // handler, flags, restorer, mask
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(signal), 0, uintptr(unsafe.Pointer(&action)),
		8, 0, 0); errno != 0 {
		t.Fatal(errno)
	}
	return uintptr(action[0])
}

// TestFirstRunGivesSignalsBack runs sessions of another binding whose operator takes a signal handler from Go,
// as CUDA's driver does: of a session with a provider of a device Go has it back after the first run, and
// no run is watched any more.
func TestFirstRunGivesSignalsBack(t *testing.T) {
	const stolen = syscall.SIGUSR2
	before := handlerOf(t, stolen)
	take := func() {
		action := [4]uint64{1} // SIG_IGN
		if _, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(stolen), uintptr(unsafe.Pointer(&action)), 0,
			8, 0, 0); errno != 0 {
			t.Error(errno)
		}
	}
	m := orttest.Unary("PlusOne")
	m.Graph.Node[0].Domain = proto.String("test.graft")
	m.OpsetImport = append(m.OpsetImport, &onnx.OperatorSet{Domain: proto.String("test.graft"), Version: proto.Int64(1)})
	runs := 0
	content := orttest.Marshal(t, m)
	domains := []operator.Domain{{Name: "test.graft", Operators: []uintptr{orttest.PlusOneThen(t, func() {
		if runs++; runs == 1 {
			take()
		}
	})}}}
	install(t, Hook{Strict: true,
		Patcher: func(session.Request) (*session.Patch, error) {
			return &session.Patch{Model: content, Domains: domains}, nil
		}})
	watched := func() bool { return hookOf.Of(library).runSites[0].watched.Load() > 0 }
	r := orttest.NewRaw(t)
	at, size := r.Bytes(orttest.Marshal(t, orttest.Unary("Relu")))
	create := func(options uintptr) *session.Session {
		s := must.Value(r.Session(slot.CreateSessionFromArray, at, size, options))(t)
		return s
	}
	unpatched := create(r.Options())
	if watched() {
		t.Error("a session without providers is watched")
	}
	foreign := r.Options()
	hookOf.Of(library).given.Add(foreign, ort.Appended{Name: ort.CUDA, Device: 0})
	first, second := create(foreign), create(foreign)
	if !watched() {
		t.Fatal("a session with CUDA is not watched")
	}
	orttest.Expect(t, "the first run", orttest.Run(t, first, 1, 2), 2, 3)
	must.Equal(t, handlerOf(t, stolen), before)
	orttest.Expect(t, "another run", orttest.Run(t, first, 3, 4), 4, 5)
	orttest.Expect(t, "another session", orttest.Run(t, unpatched, 5, 6), 6, 7)
	if !watched() {
		t.Error("the second session is not watched any more")
	}
	second.Close()
	if watched() {
		t.Error("runs are still watched")
	}
}
