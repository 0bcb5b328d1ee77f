package session_test

import (
	"encoding/binary"
	"math"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/orttest"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// outside is memory outside of Go's heap with n copies of x, for as long as the test runs.
func outside(t *testing.T, n int, x float32) []byte {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, 4*n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	must.Succeed(t, err)
	t.Cleanup(func() { syscall.Munmap(b) })
	fill(b, x)
	return b
}

func fill(b []byte, x float32) {
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], math.Float32bits(x))
	}
}

// weight is one of n copies of x, and how often it was released.
func weight(t *testing.T, name string, x float32, shape ...int64) (session.Weight, *atomic.Int32) {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	released := new(atomic.Int32)
	return session.Weight{Name: name, Element: ort.Float32, Shape: shape, Data: outside(t, int(n), x),
		Release: func() { released.Add(1) }}, released
}

const wide = 1 << 10

// TestWeights are given to sessions in each way: those in place are read where they lie and released with the
// session, of the others there is a copy and they are released when it is made.
func TestWeights(t *testing.T) {
	content := orttest.Marshal(t, orttest.Sum(orttest.External("v", "status", 0, wide),
		orttest.External("w", "status", 0, wide)))
	x := make([]float32, wide)
	for _, way := range []string{"session options", "patch"} {
		t.Run(way, func(t *testing.T) {
			v, vReleased := weight(t, "v", 10, wide)
			w, wReleased := weight(t, "w", 1, wide)
			w.InPlace = true
			o := session.Options{Unpatched: true, Config: map[string]string{session.ConfigExternalFolder: "/proc/self"},
				Weights: []session.Weight{v, w}}
			given := content
			if way == "patch" {
				given = orttest.Marshal(t, orttest.Unary("Relu"))
				o = session.Options{Patcher: func(session.Request) (*session.Patch, error) {
					return &session.Patch{Model: content, ExternalFolder: "/proc/self", Weights: []session.Weight{v, w}}, nil
				}}
			}
			s := must.Value(session.FromBytes(library, given, o))(t)
			if vReleased.Load() != 1 || wReleased.Load() != 0 {
				t.Errorf("released %d times where there is a copy and %d where there is none, want once and never",
					vReleased.Load(), wReleased.Load())
			}
			fill(v.Data, 20)
			orttest.Expect(t, "y", orttest.Run(t, s, x...), slices.Repeat([]float32{11}, wide)...)
			fill(w.Data, 2)
			orttest.Expect(t, "y", orttest.Run(t, s, x...), slices.Repeat([]float32{12}, wide)...)
			s.Close()
			if vReleased.Load() != 1 || wReleased.Load() != 1 {
				t.Errorf("released %d and %d times by the session's end, want once each", vReleased.Load(), wReleased.Load())
			}
		})
	}
}

// TestSharedWeightsAreReleasedBySession: two sessions on the same bytes.
func TestSharedWeightsAreReleasedBySession(t *testing.T) {
	content := orttest.Marshal(t, orttest.Sum(orttest.External("w", "status", 0, wide)))
	w, released := weight(t, "w", 3, wide)
	w.InPlace = true
	var list []*session.Session
	for range 2 {
		list = append(list, orttest.Session(t, content,
			session.Options{Unpatched: true, Config: map[string]string{session.ConfigExternalFolder: "/proc/self"},
				Weights: []session.Weight{w}}))
	}
	list[0].Close()
	must.Equal(t, released.Load(), 1)
	orttest.Expect(t, "y", orttest.Run(t, list[1], make([]float32, wide)...), slices.Repeat([]float32{3}, wide)...)
	list[1].Close()
	must.Equal(t, released.Load(), 2)
}

// TestWeightsThatONNXRuntimeLooksInto are copied after all, where they were to be read in place: here it transposes one
// ahead of the first run.
func TestWeightsThatONNXRuntimeLooksInto(t *testing.T) {
	m := orttest.Model(&onnx.Graph{
		Node: []*onnx.Node{orttest.Node("Transpose", []string{"w"}, []string{"wt"}),
			orttest.Node("Gather", []string{"wt", "i"}, []string{"r"}),
			orttest.Node("Add", []string{"x", "r"}, []string{"y"})},
		Input:  []*onnx.ValueInfo{orttest.Value("x", orttest.TensorType(ort.Float32, 2*wide))},
		Output: []*onnx.ValueInfo{orttest.Value("y", orttest.TensorType(ort.Float32, 2*wide))},
		Initializer: []*onnx.Tensor{orttest.External("w", "status", 0, 2*wide*2),
			{Name: proto.String("i"), DataType: proto.Int32(int32(ort.Int64)), Int64Data: []int64{1}}},
	})
	m.Graph.Initializer[0].Dims = []int64{2 * wide, 2}
	m.Graph.Initializer[1].Dims = nil
	w, released := weight(t, "w", 3, 2*wide, 2)
	w.InPlace = true
	content := orttest.Marshal(t, m)
	s := orttest.Session(t, orttest.Marshal(t, orttest.Unary("Relu")),
		session.Options{LogSeverity: session.LogFatal, Patcher: func(session.Request) (*session.Patch, error) {
			return &session.Patch{Model: content, ExternalFolder: "/proc/self", Weights: []session.Weight{w}}, nil
		}})
	must.Equal(t, released.Load(), 1)
	fill(w.Data, 0)
	orttest.Expect(t, "y", orttest.Run(t, s, make([]float32, 2*wide)...), slices.Repeat([]float32{3}, 2*wide)...)
	s.Close()
	must.Equal(t, released.Load(), 1)
}

// TestWeightsThatAreRefusedAreReleased lists what makes no session.
func TestWeightsThatAreRefusedAreReleased(t *testing.T) {
	good := orttest.Marshal(t, orttest.Sum(orttest.External("w", "status", 0, wide)))
	for name, c := range map[string]struct {
		model  []byte
		change func(*session.Weight)
	}{
		"a name that the model does not have": {good, func(w *session.Weight) { w.Name = "v" }},
		"another shape":                       {good, func(w *session.Weight) { w.Shape = []int64{2, wide / 2} }},
		"too few bytes":                       {good, func(w *session.Weight) { w.Data = w.Data[:8] }},
		"a name with a zero byte":             {good, func(w *session.Weight) { w.Name = "a\x00" }},
		"no model":                            {nil, func(*session.Weight) {}},
		"a damaged model":                     {[]byte("damaged"), func(*session.Weight) {}},
		"an initializer with data of its own": {orttest.Marshal(t,
			orttest.Sum(&onnx.Tensor{Name: proto.String("w"), DataType: proto.Int32(int32(ort.Float32)),
				Dims: []int64{wide}, RawData: orttest.Floats(make([]float32, wide)...)})), func(*session.Weight) {}},
	} {
		for _, way := range []string{"session options", "patch"} {
			w, released := weight(t, "w", 3, wide)
			c.change(&w)
			o, given := session.Options{Unpatched: true, Config: map[string]string{session.ConfigExternalFolder: "/proc/self"},
				Weights: []session.Weight{w}}, c.model
			if way == "patch" {
				o, given = session.Options{Patcher: func(session.Request) (*session.Patch,
					error) {
					return &session.Patch{Model: c.model, Weights: []session.Weight{w}}, nil
				}}, good
			}
			if s, err := session.FromBytes(library, given, o); err == nil {
				s.Close()
				t.Errorf("%s: a session was made from %s", name, way)
			}
			must.Equal(t, released.Load(), 1, name, way)
		}
	}
}
