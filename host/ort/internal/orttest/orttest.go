// Package orttest has what the tests of ONNX Runtime's packages share: the runtime, models, and calls as other bindings
// make them.
package orttest

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// Library is the runtime that all tests of a process run on.
var Library = sync.OnceValue(func() *ort.Library {
	l, err := ort.FindAndOpen("")
	if err != nil {
		panic(err)
	}
	return l
})

// Run runs a session of y = f(x) over float32[n].
func Run(t testing.TB, s *session.Session, x ...float32) []float32 {
	t.Helper()
	in := must.Value(ort.NewTensor(Library(), []int64{int64(len(x))}, x))(t)
	defer in.Close()
	results := must.Value(s.Run(context.Background(), map[string]*ort.Value{"x": in}))(t)
	defer ort.CloseAll(results)
	y := must.Value(ort.Data[float32](results[0]))(t)
	return slices.Clone(y)
}

// Session makes a session that is closed with the test.
func Session(t testing.TB, model []byte, o session.Options) *session.Session {
	t.Helper()
	s := must.Value(session.FromBytes(Library(), model, o))(t)
	t.Cleanup(s.Close)
	return s
}

// Expect compares exactly.
func Expect(t testing.TB, what string, found []float32, want ...float32) {
	t.Helper()
	if !slices.Equal(found, want) {
		t.Errorf("%s: got %v, want %v", what, found, want)
	}
}

// Negate is a Patcher whose work shows: Relu becomes Neg. Models without Relu stay as they are.
func Negate(r session.Request) (*session.Patch, error) {
	content := r.Model
	if r.Path != "" {
		var err error
		if content, err = os.ReadFile(r.Path); err != nil {
			return nil, err
		}
	}
	m := &onnx.Model{}
	if err := proto.Unmarshal(content, m); err != nil {
		return nil, err
	}
	patched := false
	for _, n := range m.Graph.Node {
		if n.GetOpType() == "Relu" {
			n.OpType, patched = proto.String("Neg"), true
		}
	}
	if !patched {
		return nil, nil
	}
	content, err := proto.Marshal(m)
	return &session.Patch{Model: content, Retained: "kept"}, err
}
