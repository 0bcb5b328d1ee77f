package ort

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// customOp is OrtCustomOp up to ORT API version 18: its version, then functions.
type customOp struct {
	version   uint32
	_         uint32
	functions [26]uintptr
}

// Indices in customOp.functions.
const (
	opCreateKernel = iota
	opGetName
	opGetExecutionProviderType
	opGetInputType
	opGetInputTypeCount
	opGetOutputType
	opGetOutputTypeCount
	opKernelCompute
	opKernelDestroy
	opGetInputCharacteristic
	opGetOutputCharacteristic
	opGetInputMemoryType
	opGetVariadicInputMinArity
	opGetVariadicInputHomogeneity
	opGetVariadicOutputMinArity
	opGetVariadicOutputHomogeneity
	opCreateKernelV2
	opKernelComputeV2
	opInferOutputShape
	opGetStartVersion
	opGetEndVersion
)

// plusOne is an operator written in Go: y = x + 1 over float32[2].
func plusOne(t testing.TB) uintptr { return plusOneThen(t, func() {}) }

// plusOneThen is plusOne, and calls a function in each run.
func plusOneThen(t testing.TB, also func()) uintptr {
	name := []byte("PlusOne\x00")
	constant := func(v uintptr) uintptr { return purego.NewCallback(func(a, b uintptr) uintptr { return v }) }
	zero, one := constant(0), constant(1)
	op := &customOp{version: 16}
	op.functions = [26]uintptr{
		opCreateKernel:                 one, // a kernel without state, but not null
		opGetName:                      constant(address(name)),
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
		opKernelCompute: purego.NewCallback(func(kernel, context uintptr) {
			also()
			const getInput, getOutput slot = 90, 91
			var in, out, x, y uintptr
			shape := []int64{2}
			for _, err := range []error{
				library.try("KernelContext_GetInput", getInput, context, 0, uintptr(unsafe.Pointer(&in))),
				library.try("KernelContext_GetOutput", getOutput, context, 0, uintptr(unsafe.Pointer(&shape[0])), 1,
					uintptr(unsafe.Pointer(&out))),
				library.try("GetTensorMutableData", slotGetTensorMutableData, in, uintptr(unsafe.Pointer(&x))),
				library.try("GetTensorMutableData", slotGetTensorMutableData, out, uintptr(unsafe.Pointer(&y))),
			} {
				if err != nil {
					t.Error(err)
					return
				}
			}
			for i, v := range unsafe.Slice((*float32)(pointer(x)), 2) {
				unsafe.Slice((*float32)(pointer(y)), 2)[i] = v + 1
			}
		}),
	}
	pin := &runtime.Pinner{}
	pin.Pin(op)
	pin.Pin(&name[0])
	operators = append(operators, pin)
	return uintptr(unsafe.Pointer(op))
}

// operators lives as long as the process, as the domains that refer to it.
var operators []any

// TestDomains: custom operators come with the patch, the same domain any number of times, and
// with our own sessions.
func TestDomains(t *testing.T) {
	m := unary("PlusOne")
	m.Graph.Node[0].Domain = proto.String("test.graft")
	m.OpsetImport = append(m.OpsetImport, &onnx.OperatorSet{Domain: proto.String("test.graft"), Version: proto.Int64(1)})
	content := marshal(t, m)
	domains := []Domain{{Name: "test.graft", Operators: []uintptr{plusOne(t)}}}

	session(t, content, SessionOptions{Domains: domains, Unpatched: true})
	before := len(library.domainCache.made)
	install(t, Hook{Strict: true, Patcher: func(Request) (*Patch, error) {
		return &Patch{Model: content, Domains: domains}, nil
	}})
	for range 3 {
		expect(t, "patched", run(t, session(t, marshal(t, unary("Relu")), SessionOptions{}), 1, 2), 2, 3)
	}
	expect(t, "own", run(t, session(t, content, SessionOptions{Domains: domains, Unpatched: true}), 1, 2), 2, 3)
	if made := len(library.domainCache.made) - before; made != 0 {
		t.Errorf("%d domains were made again for four sessions", made)
	}
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
	var all sync.WaitGroup
	var ready atomic.Int32
	const sessions = 8
	for range sessions {
		all.Go(func() {
			ready.Add(1)
			for ready.Load() < sessions { // a channel would wake them one after the other
			}
			s, err := library.NewSessionFromBytes(probeModel,
				SessionOptions{Unpatched: true, IntraOpThreads: 1, Domains: []Domain{{Name: abi.ONNXDomain}}})
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
	known := &library.domainCache.known
	defer known.Store(known.Swap(false))
	must.Succeed(t, library.Install(Hook{Strict: true, Patcher: func(r Request) (*Patch, error) {
		if !known.Load() {
			t.Error("a session is created before the domain is known")
		}
		return nil, nil
	}}))
	defer library.Uninstall()
	env := must.Value(library.env())(t)
	var session uintptr
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&session)
	must.Succeed(t, library.takeStatus("CreateSessionFromArray", library.call(slotCreateSessionFromArray, env,
		uintptr(unsafe.Pointer(unsafe.SliceData(probeModel))), uintptr(len(probeModel)), 0,
		uintptr(unsafe.Pointer(&session)))))
	library.releaseSession(session)

	known.Store(false)
	s := must.Value(library.NewSessionFromBytes(probeModel, SessionOptions{Unpatched: true}))(t)
	defer s.Close()
	if !known.Load() {
		t.Error("a session of this package is created before the domain is known")
	}
}
