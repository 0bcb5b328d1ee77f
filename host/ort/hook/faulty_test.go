package hook

import (
	"bytes"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/orttest"
	"github.com/opgraft/graft/host/ort/internal/slot"
	"github.com/opgraft/graft/host/ort/operator"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// How an operator of the tests runs.
const (
	well = iota
	fails
	wrongShape
	lies
)

// faulty is an operator y = relu(x) over float32[n] that does in a run what `how` says of it, and then writes over x
// where it may.
func faulty(t testing.TB, how func() int) []operator.Domain {
	plain := orttest.PlusOne(t)
	op := *(*orttest.CustomOp)(cmem.Pointer(plain))
	op.Functions[orttest.OpKernelCompute] = 0
	op.Functions[orttest.OpKernelComputeV2] = purego.NewCallback(func(kernel, context uintptr) uintptr {
		var in, out, x, y, n uintptr
		if err := errors.Join(library.Try("KernelContext_GetInput", slot.KernelContext_GetInput, context, 0,
			uintptr(unsafe.Pointer(&in))),
			library.Try("GetTensorMutableData", slot.GetTensorMutableData, in, uintptr(unsafe.Pointer(&x))),
			library.Try("GetTensorSizeInBytes", slot.GetTensorSizeInBytes, in, uintptr(unsafe.Pointer(&n)))); err != nil {
			t.Error(err)
		}
		h := how()
		shape := []int64{int64(n / 4)}
		if h == wrongShape {
			shape[0]++
		}
		if err := library.Try("KernelContext_GetOutput", slot.KernelContext_GetOutput, context, 0,
			uintptr(unsafe.Pointer(&shape[0])), 1,
			uintptr(unsafe.Pointer(&out))); err != nil {
			return library.NewStatus(ort.CodeFail, err.Error())
		}
		if err := library.Try("GetTensorMutableData", slot.GetTensorMutableData, out,
			uintptr(unsafe.Pointer(&y))); err != nil {
			t.Error(err)
		}
		given, written := unsafe.Slice((*float32)(cmem.Pointer(x)), n/4), unsafe.Slice((*float32)(cmem.Pointer(y)), n/4)
		for i, v := range given {
			written[i] = max(v, 0)
			if h == fails || h == lies {
				written[i] = 99
			}
		}
		if h == fails {
			return library.NewStatus(ort.CodeFail, "made to fail")
		}
		return 0
	})
	pin := &runtime.Pinner{}
	pin.Pin(&op)
	orttest.Keep(pin)
	return []operator.Domain{{Name: "test.faulty", Operators: []uintptr{uintptr(unsafe.Pointer(&op))}}}
}

// reluTwice is y = x + relu(x), which in a patched session the faulty operator computes.
func reluTwice(op, domain string) *onnx.Model {
	m := orttest.Unary(op)
	m.Graph.Node[0].Output = []string{"r"}
	m.Graph.Node[0].Domain = proto.String(domain)
	m.Graph.Node = append(m.Graph.Node, orttest.Node("Add", []string{"x", "r"}, []string{"y"}))
	if domain != "" {
		m.OpsetImport = append(m.OpsetImport, &onnx.OperatorSet{Domain: proto.String(domain), Version: proto.Int64(1)})
	}
	return m
}

// scene is a hook whose sessions have a faulty operator, and a way back that is counted.
type scene struct {
	how            atomic.Int64 // what the operator does
	log            bytes.Buffer
	mu             sync.Mutex
	opened         int // plain models
	closed         int
	plain          []byte
	fault, changed error // of the plain model
}

func (s *scene) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(b)
}

func stage(t testing.TB, strict bool) *scene {
	s := &scene{plain: orttest.Marshal(t, reluTwice("Relu", ""))}
	domains := faulty(t, func() int { return int(s.how.Load()) })
	patched := orttest.Marshal(t, reluTwice("PlusOne", "test.faulty"))
	install(t, Hook{Strict: strict, Logger: slog.New(slog.NewTextHandler(s, nil)),
		Patcher: func(r session.Request) (*session.Patch, error) {
			p := &session.Patch{Model: patched, Domains: domains}
			if r.WayBack {
				p.Plain = &session.Plain{Model: func() ([]byte, func() error, error) {
					s.opened++
					return s.plain, func() error { return s.changed }, s.fault
				}, Release: func() { s.closed++ }}
				if r.Path != "" {
					p.Plain.Model = func() ([]byte, func() error, error) {
						s.opened++
						return nil, func() error { return s.changed }, s.fault
					}
				}
			}
			return p, nil
		}})
	return s
}

func (s *scene) expectLog(t *testing.T, lines int, texts ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.log.String()
	must.Equal(t, strings.Count(text, "\n"), lines, text)
	for _, x := range texts {
		if !strings.Contains(text, x) {
			t.Errorf("logged %s, want %q", text, x)
		}
	}
}
