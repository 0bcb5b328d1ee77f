package session_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/orttest"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

func cpu(t testing.TB) *ort.Memory {
	t.Helper()
	m := must.Value(library.Memory("Cpu", 0))(t)
	return m
}

// TestRunInto: results land in the caller's memory.
func TestRunInto(t *testing.T) {
	s := orttest.Session(t, orttest.Marshal(t, orttest.Unary("Neg")), session.Options{})
	x, y := []float32{1, 2}, make([]float32, 2)
	in, err1 := ort.NewTensor(library, []int64{2}, x)
	out, err2 := ort.NewTensor(library, []int64{2}, y)
	must.Succeed(t, errors.Join(err1, err2))
	for i := range 3 {
		x[0] = float32(i)
		must.Succeed(t, s.RunInto(context.Background(), map[string]*ort.Value{"x": in}, []string{"y"}, []*ort.Value{out}))
		orttest.Expect(t, "y", y, float32(-i), -2)
	}
	must.Fail(t, s.RunInto(context.Background(), nil, []string{"y"}, nil), "0 places for 1 outputs")
}

// TestBinding: runs reuse memory, and an output becomes the next input without a copy.
func TestBinding(t *testing.T) {
	w := &onnx.Tensor{Name: proto.String("w"), DataType: proto.Int32(int32(ort.Float32)), Dims: []int64{2},
		RawData: orttest.Floats(1, 10)}
	s := orttest.Session(t, orttest.Marshal(t, orttest.Sum(w)), session.Options{})
	b, err := s.NewBinding()
	must.Succeed(t, err)
	defer b.Close()
	buffers := [2][]float32{{0, 0}, {0, 0}}
	var values [2]*ort.Value
	for i := range values {
		if values[i], err = ort.NewTensor(library, []int64{2}, buffers[i]); err != nil {
			t.Fatal(err)
		}
	}
	for step := range 4 {
		from, to := values[step%2], values[1-step%2]
		must.Succeed(t, errors.Join(b.Input("x", from), b.Output("y", to), b.Run(context.Background())))
	}
	orttest.Expect(t, "after four steps", buffers[0], 4, 40)

	must.Succeed(t, b.OutputTo("y", cpu(t)))
	must.Succeed(t, b.Run(context.Background()))
	outputs := must.Value(b.Outputs())(t)
	y := must.Value(ort.Data[float32](outputs["y"]))(t)
	orttest.Expect(t, "allocated output", y, 4, 40)
	if device, id, err := outputs["y"].Device(); err != nil || device != ort.DeviceCPU || id != 0 {
		t.Errorf("device %v %d, %v", device, id, err)
	}
	outputs["y"].Close()

	must.Fail(t, b.Input("nope", values[0]), `"nope"`)
	b.Close()
	must.Fail(t, b.Run(context.Background()), ort.ErrClosed)
}
