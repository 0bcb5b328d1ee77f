package operator_test

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort/hook"
	"github.com/opgraft/graft/host/ort/internal/orttest"
	"github.com/opgraft/graft/host/ort/internal/slot"
	"github.com/opgraft/graft/host/ort/operator"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// TestDomains: custom operators come with the patch, the same domain any number of times, and
// with our own sessions.
func TestDomains(t *testing.T) {
	m := orttest.Unary("PlusOne")
	m.Graph.Node[0].Domain = proto.String("test.graft")
	m.OpsetImport = append(m.OpsetImport, &onnx.OperatorSet{Domain: proto.String("test.graft"), Version: proto.Int64(1)})
	content := orttest.Marshal(t, m)
	domains := []operator.Domain{{Name: "test.graft", Operators: []uintptr{orttest.PlusOne(t)}}}

	orttest.Session(t, content, session.Options{Domains: domains, Unpatched: true})
	before := operator.Made(library)
	install(t, hook.Hook{Strict: true, Patcher: func(session.Request) (*session.Patch, error) {
		return &session.Patch{Model: content, Domains: domains}, nil
	}})
	for range 3 {
		orttest.Expect(t, "patched", orttest.Run(t,
			orttest.Session(t, orttest.Marshal(t, orttest.Unary("Relu")), session.Options{}), 1, 2), 2, 3)
	}
	orttest.Expect(t, "own", orttest.Run(t,
		orttest.Session(t, content, session.Options{Domains: domains, Unpatched: true}), 1, 2), 2, 3)
	must.Equal(t, operator.Made(library)-before, 0)
}

// markAtOnce says to a child of TestDomainsAtOnce that it is one.
const markAtOnce = "GRAFT_TEST_SESSIONS_AT_ONCE"

// TestDomainsAtOnce makes a process's first sessions with operators in several threads at once. A process has one
// try: where the domain is not known before, one in five fails.
func TestDomainsAtOnce(t *testing.T) {
	if os.Getenv(markAtOnce) == "" {
		for range 12 {
			child := exec.Command(os.Args[0], "-test.run=^TestDomainsAtOnce$")
			child.Env = append(os.Environ(), markAtOnce+"=1")
			if out, err := child.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		return
	}
	content := orttest.Marshal(t, orttest.Unary("Relu"))
	var all sync.WaitGroup
	var ready atomic.Int32
	const sessions = 8
	for range sessions {
		all.Go(func() {
			ready.Add(1)
			for ready.Load() < sessions { // a channel would wake them one after the other
			}
			s, err := session.FromBytes(library, content,
				session.Options{Unpatched: true, IntraOpThreads: 1, Domains: []operator.Domain{{Name: abi.ONNXDomain}}})
			if err != nil {
				t.Error(err)
			}
			s.Close()
		})
	}
	all.Wait()
}

// TestDomainKnown has sessions made by a program, of which the hook alone is told, and by this package.
func TestDomainKnown(t *testing.T) {
	content := orttest.Marshal(t, orttest.Unary("Relu"))
	known := operator.Known(library)
	defer known.Store(known.Swap(false))
	must.Succeed(t, hook.Install(library,
		hook.Hook{Strict: true, Patcher: func(r session.Request) (*session.Patch, error) {
			if !known.Load() {
				t.Error("a session is created before the domain is known")
			}
			return nil, nil
		}}))
	defer hook.Uninstall(library)
	env := must.Value(library.Environment())(t)
	var native uintptr
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&native)
	must.Succeed(t, library.TakeStatus("CreateSessionFromArray", library.Call(slot.CreateSessionFromArray, env,
		orttest.Address(content), uintptr(len(content)), 0,
		uintptr(unsafe.Pointer(&native)))))
	library.Call(slot.ReleaseSession, native)

	known.Store(false)
	s := must.Value(session.FromBytes(library, content, session.Options{Unpatched: true}))(t)
	defer s.Close()
	if !known.Load() {
		t.Error("a session of this package is created before the domain is known")
	}
}
