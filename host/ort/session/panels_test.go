package session_test

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/hook"
	"github.com/opgraft/graft/host/ort/internal/orttest"
	"github.com/opgraft/graft/host/ort/internal/slot"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// square is the side of the matrices of these tests.
const square = 256

// product is y = x W, with W in no file.
func product(names ...string) *onnx.Model {
	g := &onnx.Graph{Input: []*onnx.ValueInfo{orttest.Value("x", orttest.TensorType(ort.Float32, "n"))},
		Output: []*onnx.ValueInfo{orttest.Value("y", orttest.TensorType(ort.Float32, "n"))},
		Initializer: []*onnx.Tensor{{Name: proto.String("rows"), DataType: proto.Int32(int32(ort.Int64)), Dims: []int64{2},
			Int64Data: []int64{-1, square}},
			{Name: proto.String("line"), DataType: proto.Int32(int32(ort.Int64)), Dims: []int64{1}, Int64Data: []int64{-1}}}}
	g.Node = append(g.Node, orttest.Node("Reshape", []string{"x", "rows"}, []string{"x2"}))
	from := "x2"
	for _, name := range names {
		w := orttest.External(name, "status", 0, square*square)
		w.Dims = []int64{square, square}
		g.Initializer = append(g.Initializer, w)
		g.Node = append(g.Node, orttest.Node("MatMul", []string{from, name}, []string{"of " + name}))
		from = "of " + name
	}
	g.Node = append(g.Node, orttest.Node("Reshape", []string{from, "line"}, []string{"y"}))
	return orttest.Model(g)
}

// matrix is a packed weight of which element (i, j) is i - j + x.
func matrix(t *testing.T, name string, x float32) session.Weight {
	w, _ := weight(t, name, 0, square, square)
	for i := range square {
		for j := range square {
			fill(w.Data[4*(i*square+j):][:4], float32(i-j)/square+x)
		}
	}
	w.InPlace, w.Packed = true, true
	return w
}

// packedSession is one of a model as a program gets it, and how often its weights were released.
func packedSession(t *testing.T, m *onnx.Model, weights ...session.Weight) (*session.Session, []int) {
	t.Helper()
	released := make([]int, len(weights))
	for i := range weights {
		weights[i].Release = func() { released[i]++ }
	}
	content := orttest.Marshal(t, m)
	s := orttest.Session(t, orttest.Marshal(t, orttest.Unary("Relu")),
		session.Options{LogSeverity: session.LogFatal, Patcher: func(session.Request) (*session.Patch, error) {
			return &session.Patch{Model: content, ExternalFolder: "/proc/self", Weights: slices.Clone(weights)}, nil
		}})
	return s, released
}

func line() []float32 {
	x := make([]float32, 2*square)
	for i := range x {
		x[i] = float32(i%17) - 8
	}
	return x
}

// TestSessionsSharePanels: sessions of equal weights share them whatever memory the weights lie in, others do not. The
// weights are released when a session has laid them out, and no answer depends on them or on another session any more.
func TestSessionsSharePanels(t *testing.T) {
	m := product("v", "w")
	own := must.Value(session.FromBytes(library, orttest.Marshal(t, m),
		session.Options{Unpatched: true, Config: map[string]string{session.ConfigExternalFolder: "/proc/self"},
			Weights: []session.Weight{matrix(t, "v", 0.5), matrix(t, "w", -0.25)}}))(t)
	want := orttest.Run(t, own, line()...)
	own.Close()
	if n := session.SessionsOfContainers(library); len(n) > 0 {
		t.Fatalf("a session without packed weights has a container: %v", n)
	}

	var list []*session.Session
	for range 3 {
		weights := []session.Weight{matrix(t, "v", 0.5), matrix(t, "w", -0.25)}
		s, released := packedSession(t, m, weights...)
		must.Equal(t, released, []int{1, 1})
		for _, w := range weights {
			fill(w.Data, 0)
		}
		list = append(list, s)
	}
	other, _ := packedSession(t, m, matrix(t, "v", 0.5), matrix(t, "w", -0.5))
	must.Equal(t, session.SessionsOfContainers(library), []int{1, 3})
	for i, s := range list {
		orttest.Expect(t, "y", orttest.Run(t, s, line()...), want...)
		s.Close()
		if i == 1 {
			orttest.Expect(t, "y of the last", orttest.Run(t, list[2], line()...), want...)
		}
	}
	if slices.Equal(orttest.Run(t, other, line()...), want) {
		t.Error("sessions of other weights answer alike")
	}
	must.Equal(t, session.SessionsOfContainers(library), []int{1})
	other.Close()
	must.Empty(t, session.SessionsOfContainers(library))
}

// TestPanelsLieInMemoryOnce: a further session of large weights takes a small part of them.
func TestPanelsLieInMemoryOnce(t *testing.T) {
	names := make([]string, 128)
	weights := make([]session.Weight, len(names))
	for i := range names {
		names[i] = fmt.Sprint("w", i)
		weights[i] = matrix(t, names[i], float32(i))
	}
	m := product(names...)
	const bytes = 128 * square * square * 4 // 32 MiB
	for i := range 5 {
		before := resident(t)
		packedSession(t, m, weights...)
		grown := resident(t) - before
		if i == 0 && grown < bytes*3/4 { // what the tests before left free takes part of it
			t.Fatalf("the first session took %d bytes, of %d of weights: the figure says nothing", grown, bytes)
		}
		if i > 0 && grown > bytes/2 {
			t.Errorf("session %d took %d bytes, of %d of weights", i, grown, bytes)
		}
	}
}

// resident is how many bytes the process has in memory after free ones were given back.
func resident(t *testing.T) int {
	t.Helper()
	session.Trim()
	debug.FreeOSMemory()
	b := must.Value(os.ReadFile("/proc/self/statm"))(t)
	var all, in int
	must.Value(fmt.Sscan(string(b), &all, &in))(t)
	return in * os.Getpagesize()
}

// TestOwnContainer: a program's own container is the one that its sessions have.
func TestOwnContainer(t *testing.T) {
	r := orttest.NewRaw(t)
	content := orttest.Marshal(t, product("w"))
	var released int
	install(t, hook.Hook{Strict: true, Patcher: func(session.Request) (*session.Patch, error) {
		w := matrix(t, "w", 1)
		w.Release = func() { released++ }
		return &session.Patch{Model: content, ExternalFolder: "/proc/self", Weights: []session.Weight{w}}, nil
	}})
	at, size := r.Bytes(orttest.Marshal(t, orttest.Unary("Relu")))
	container := r.Container()
	var first []float32
	for i := range 2 {
		s, err := r.Session(slot.CreateSessionFromArrayWithPrepackedWeightsContainer, at, size, r.Options(), container)
		must.Succeed(t, err)
		y := orttest.Run(t, s, line()...)
		if first == nil {
			first = y
		}
		orttest.Expect(t, "y", y, first...)
		if n := session.SessionsOfContainers(library); len(n) > 0 || released != i+1 {
			t.Errorf("containers beside the program's: %v; weights released %d times by %d sessions", n, released, i+1)
		}
	}
}

// TestPackedWeightsThatONNXRuntimeLooksInto are copied, and others stay in place.
func TestPackedWeightsThatONNXRuntimeLooksInto(t *testing.T) {
	m := product("w")
	m.Graph.Node[1].Input[1] = "wt"
	m.Graph.Node = slices.Insert(m.Graph.Node, 1, orttest.Node("Transpose", []string{"w"}, []string{"wt"}))
	m.Graph.Node[len(m.Graph.Node)-1].Output[0] = "z"
	m.Graph.Node = append(m.Graph.Node, orttest.Node("Add", []string{"z", "b"}, []string{"y"}))
	m.Graph.Initializer = append(m.Graph.Initializer, orttest.External("b", "status", 0, 2*square))
	b, _ := weight(t, "b", 100, 2*square)
	b.InPlace = true
	w := matrix(t, "w", 1)
	s, released := packedSession(t, m, w, b)
	must.Equal(t, released, []int{1, 0})
	must.Empty(t, session.SessionsOfContainers(library))
	before := orttest.Run(t, s, line()...)
	fill(w.Data, 0)
	orttest.Expect(t, "y", orttest.Run(t, s, line()...), before...)
	s.Close()
	must.Equal(t, released, []int{1, 1})
}

// TestPackedWeightsThatNoOneLaysOut stay where they are as long as the session does.
func TestPackedWeightsThatNoOneLaysOut(t *testing.T) {
	content := orttest.Marshal(t, product("w"))
	w := matrix(t, "w", 1)
	released := 0
	w.Release = func() { released++ }
	s := orttest.Session(t, orttest.Marshal(t, orttest.Unary("Relu")),
		session.Options{Config: map[string]string{"session.disable_prepacking": "1"},
			Patcher: func(session.Request) (*session.Patch, error) {
				return &session.Patch{Model: content, ExternalFolder: "/proc/self", Weights: []session.Weight{w}}, nil
			}})
	if released != 0 {
		t.Fatalf("released %d times while the session reads it", released)
	}
	orttest.Run(t, s, line()...)
	s.Close()
	must.Equal(t, released, 1)
}

// TestRefusedPackedWeightsLeaveNothing: no session, no container.
func TestRefusedPackedWeightsLeaveNothing(t *testing.T) {
	w := matrix(t, "w", 1)
	released := 0
	w.Release = func() { released++ }
	_, err := session.FromBytes(library, orttest.Marshal(t, orttest.Unary("Relu")),
		session.Options{Patcher: func(session.Request) (*session.Patch, error) {
			return &session.Patch{Model: []byte("damaged"), Weights: []session.Weight{w}}, nil
		}})
	if n := session.SessionsOfContainers(library); err == nil || released != 1 || len(n) > 0 {
		t.Errorf("error %v, released %d times, containers %v", err, released, n)
	}
}
