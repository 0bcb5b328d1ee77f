package hook

import (
	"context"
	"errors"
	"testing"

	"github.com/ebitengine/purego"
	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/orttest"
	"github.com/opgraft/graft/host/ort/internal/slot"
	"github.com/opgraft/graft/host/ort/operator"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// through is a kernel that is never run.
type through struct{}

func (through) Run(*operator.Call) error { return errors.New("ran") }
func (through) Close()                   {}

// TestLoadIsCanceled: a context that ends while ONNX Runtime makes the first kernel of a model's ends the load, in
// each way that a session is made.
func TestLoadIsCanceled(t *testing.T) {
	own, told := library.Function(slot.SessionOptionsSetLoadCancellationFlag), make(chan struct{}, 9)
	replaced(t, slot.SessionOptionsSetLoadCancellationFlag, func(options, cancel uintptr) uintptr {
		status, _, _ := purego.SyscallN(own, options, cancel)
		told <- struct{}{}
		return status
	})
	var end context.CancelFunc
	kernels := 0
	float := []operator.Parameter{{Element: ort.Float32}}
	op := must.Value(operator.New(library, operator.Operator{Name: "Through", Since: 1, Inputs: float, Outputs: float,
		Create: func(*operator.Node) (operator.Kernel, error) {
			if kernels++; kernels == 1 {
				end()
				<-told
			}
			return through{}, nil
		}}))(t)
	domains := []operator.Domain{{Name: "test.through", Operators: []uintptr{op}}}
	m := orttest.Unary("Through")
	m.OpsetImport = append(m.OpsetImport, &onnx.OperatorSet{Domain: proto.String("test.through"),
		Version: proto.Int64(1)})
	first := m.Graph.Node[0]
	first.Domain, first.Output = proto.String("test.through"), []string{"between"}
	second := orttest.Node("Through", []string{"between"}, []string{"y"})
	second.Domain = first.Domain
	m.Graph.Node = append(m.Graph.Node, second)
	content, relu := orttest.Marshal(t, m), orttest.Marshal(t, orttest.Unary("Relu"))
	path, done := orttest.Write(t, m), 0
	patcher := func(session.Request) (*session.Patch, error) {
		return &session.Patch{Model: content, Domains: domains, Done: func() { done++ }}, nil
	}
	for name, open := range map[string]func(context.Context) (*session.Session, error){
		"a file": func(ctx context.Context) (*session.Session, error) {
			return session.OpenContext(ctx, library, path, session.Options{Unpatched: true, Domains: domains})
		},
		"bytes": func(ctx context.Context) (*session.Session, error) {
			return session.FromBytesContext(ctx, library, content, session.Options{Unpatched: true, Domains: domains})
		},
		"a patch of its own": func(ctx context.Context) (*session.Session, error) {
			return session.FromBytesContext(ctx, library, relu, session.Options{Patcher: patcher})
		},
		"a hook's patch": func(ctx context.Context) (*session.Session, error) {
			must.Succeed(t, Install(library, Hook{Patcher: patcher}))
			defer Uninstall(library)
			return session.FromBytesContext(ctx, library, relu, session.Options{})
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		end, kernels = cancel, 0
		var e *ort.Error
		if s, err := open(ctx); !errors.Is(err, context.Canceled) || !errors.As(err, &e) ||
			e.Code != ort.CodeLoadCanceled || s != nil {
			t.Errorf("%s: found %v, needed ONNX Runtime's word that the load was canceled", name, err)
		}
		kernels = 0
		if _, err := open(ctx); !errors.Is(err, context.Canceled) || kernels != 0 {
			t.Errorf("%s, with a context that has ended: %v, %d kernels", name, err, kernels)
		}
		kernels = 1 // none ends it now
		must.Value(open(t.Context()))(t).Close()
	}
	if done == 0 {
		t.Error("no patch was asked for")
	}
}
