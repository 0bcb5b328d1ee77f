package session_test

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/orttest"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// through sends a tensor through the identity model and gives what comes out.
func through(t *testing.T, in *ort.Value, err error, element ort.ElementType, dims ...any) *ort.Value {
	t.Helper()
	must.Succeed(t, err)
	t.Cleanup(in.Close)
	s := orttest.Session(t, orttest.Marshal(t, orttest.Identity(element, dims...)), session.Options{})
	out := must.Value(s.Run(context.Background(), map[string]*ort.Value{"x": in}))(t)
	t.Cleanup(out[0].Close)
	if out[0].Element() != element || out[0].Kind() != ort.KindTensor || !slices.Equal(out[0].Shape(), in.Shape()) {
		t.Errorf("in: %v %v, out: %v of %v %v", element, in.Shape(), out[0].Kind(), out[0].Element(), out[0].Shape())
	}
	return out[0]
}

func roundTrip[T ort.Element](t *testing.T, data ...T) {
	t.Helper()
	in, err := ort.NewTensor(library, []int64{int64(len(data)), 1}, data)
	must.Succeed(t, err)
	out := through(t, in, err, in.Element(), "n", 1)
	if found, err := ort.Data[T](out); err != nil || !slices.Equal(found, data) {
		t.Errorf("%v: got %v (%v), want %v", in.Element(), found, err, data)
	}
}

func TestTensorsOfGoTypes(t *testing.T) {
	roundTrip[float32](t, 1.5, -2)
	roundTrip[float64](t, 1.5, -2)
	roundTrip[int8](t, -128, 127)
	roundTrip[int16](t, -32768, 5)
	roundTrip[int32](t, -1<<31, 7)
	roundTrip[int64](t, -1<<63, 9)
	roundTrip[uint8](t, 255, 0, 1)
	roundTrip[uint16](t, 65535)
	roundTrip[uint32](t, 1<<32-1)
	roundTrip[uint64](t, 1<<64-1)
	roundTrip(t, true, false)
	roundTrip[float32](t) // empty
}

func TestTensorsOfBytes(t *testing.T) {
	for _, c := range []struct {
		element  ort.ElementType
		elements int64
		data     []byte
	}{
		{ort.Float16, 2, []byte{0, 0x3c, 0, 0xc0}},
		{ort.BFloat16, 1, []byte{0x80, 0x3f}},
		{ort.Bool, 3, []byte{1, 0, 1}},
		{ort.Float8E4M3FN, 1, []byte{0x38}},
		{ort.Float32, 1, []byte{0, 0, 0x80, 0x3f}},
	} {
		in, err := library.NewTensorBytes(c.element, []int64{c.elements}, c.data)
		m := orttest.Identity(c.element, "n")
		m.IrVersion, m.OpsetImport[0].Version = proto.Int64(10), proto.Int64(21)
		if err != nil {
			t.Errorf("%v: %v", c.element, err)
			continue
		}
		s, err := session.FromBytes(library, orttest.Marshal(t, m), session.Options{})
		if err != nil {
			t.Errorf("%v: %v", c.element, err)
			continue
		}
		out, err := s.Run(context.Background(), map[string]*ort.Value{"x": in})
		if err != nil {
			t.Errorf("%v: %v", c.element, err)
			continue
		}
		must.Equal(t, must.Value(out[0].Bytes())(t, c.element), c.data, c.element)
		ort.CloseAll(out)
		in.Close()
		s.Close()
	}
	// Two elements a byte; ONNX Runtime has no Identity for them.
	packed := must.Value(library.NewTensorBytes(ort.Int4, []int64{3}, []byte{0x21, 0x03}))(t)
	if found, err := packed.Bytes(); err != nil || !slices.Equal(found, []byte{0x21, 0x03}) ||
		packed.Element() != ort.Int4 {
		t.Errorf("int4: got %v % x (%v)", packed.Element(), found, err)
	}
	half := must.Value(library.NewTensorBytes(ort.Float16, []int64{1}, []byte{1, 2}))(t)
	if bits, err := ort.Data[uint16](half); err != nil || bits[0] != 0x0201 {
		t.Errorf("float16 as uint16: %x, %v", bits, err)
	}
}

func TestTensorsOfAllTypes(t *testing.T) {
	for e := ort.Float32; e <= ort.Float8E8M0; e++ {
		if e == ort.Complex64 || e == ort.Complex128 {
			continue // ONNX Runtime has no such tensors
		}
		v, err := library.Allocate(e, []int64{7})
		if err != nil {
			t.Errorf("%v: %v", e, err)
			continue
		}
		must.Equal(t, v.Element(), e)
		v.Close()
	}
}

func TestTensorsOfStrings(t *testing.T) {
	want := []string{"past", "", "présent"}
	in, err := library.NewStrings([]int64{3}, want)
	out := through(t, in, err, ort.String, "n")
	must.Equal(t, must.Value(out.Strings())(t), want)
	must.Fail(t, must.Error(out.Bytes()), "string cannot be viewed as bytes")
}

func TestTensorErrors(t *testing.T) {
	good := must.Value(ort.NewTensor(library, []int64{2}, []float32{1, 2}))(t)
	cases := []struct {
		name string
		do   func() error
		want string
	}{
		{"too few elements", func() error { _, err := ort.NewTensor(library, []int64{2, 3}, make([]float32, 5)); return err },
			"20 bytes for a tensor of type float32 and shape [2 3], needed 24"},
		{"negative dimension", func() error {
			_,
				err := ort.NewTensor(library, []int64{2, -3}, make([]float32, 6))
			return err
		},
			"dimension 1 of shape [2 -3] is -3, needed 0 or more"},
		{"overflow", func() error {
			_, err := ort.NewTensor(library, []int64{1 << 32, 1 << 32}, []uint8{})
			return err
		}, "too many elements"},
		{"strings as bytes", func() error { _, err := library.NewTensorBytes(ort.String, []int64{1}, []byte{1}); return err },
			"no fixed width"},
		{"wrong view", func() error { _, err := ort.Data[int64](good); return err },
			"a tensor of float32 cannot be viewed as int64"},
		{"not strings", func() error { _, err := good.Strings(); return err }, "needed a tensor of strings"},
		{"not a sequence", func() error { _, err := good.Items(); return err }, "the value is a tensor, needed a sequence"},
		{"number of strings", func() error { _, err := library.NewStrings([]int64{2}, []string{"a"}); return err },
			"1 strings for shape [2], needed 2"},
		{"closed", func() error { good.Close(); good.Close(); _, err := good.Bytes(); return err }, "used after Close"},
	}
	for _, c := range cases {
		must.Fail(t, c.do(), c.want)
	}
}
