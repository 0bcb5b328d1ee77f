package isolation

import (
	"context"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/operator"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/internal/must"
)

// TestRegions: nobody cuts shared memory short or makes it longer, no child of the program's has it, and constants
// cannot be mapped for writing by who gets the file.
func TestRegions(t *testing.T) {
	for _, constants := range []bool{false, true} {
		r, err := newRegion("graft-test", 1<<20, constants)
		must.Succeed(t, err)
		defer r.close()
		fd := int(r.file.Fd())
		for _, size := range []int64{0, 2 << 20} {
			if err := unix.Ftruncate(fd, size); err != unix.EPERM {
				t.Errorf("its size became %d: %v", size, err)
			}
		}
		_, err = mapped(fd, 1<<20, protReadWrite)
		must.Equal(t, constants, err != nil)
		again := must.Value(mapped(fd, 1<<20, protRead))(t)
		if constants && unix.Mprotect(again, protReadWrite) == nil {
			t.Error("constants can be made writable")
		}
		r.bytes[5] = 7
		must.Equal(t, again[5], 7)
		smaps := must.Value(os.ReadFile("/proc/self/smaps"))(t)
		flags := regexp.MustCompile(`(?s)memfd:graft-test .*?VmFlags: ([^\n]*)`).FindAllStringSubmatch(string(smaps), -1)
		held := slices.ContainsFunc(flags,
			func(m []string) bool { return strings.Contains(m[1], "dc") && strings.Contains(m[1], "dd") })
		if !held {
			t.Errorf("children and core files have it: %v", flags)
		}
	}
}

// TestRoom: places do not overlap, and when all are given back nothing is taken.
func TestRoom(t *testing.T) {
	draw := rand.New(rand.NewPCG(3, 4))
	const limit = 1 << 14
	var r room
	var taken []span
	full := 0
	for range 20000 {
		if len(taken) > 0 && draw.IntN(2) == 0 {
			i := draw.IntN(len(taken))
			r.give(taken[i].at, taken[i].size)
			taken = slices.Delete(taken, i, i+1)
			continue
		}
		size := int64(draw.IntN(1000))
		at, ok := r.take(size, limit)
		if !ok {
			full++
			continue
		}
		for _, s := range taken {
			if at < s.at+max(s.size, 1) && s.at < at+max(size, 1) {
				t.Fatalf("%d bytes at %d, where %v is", size, at, s)
			}
		}
		if at%alignment != 0 || at+size > limit {
			t.Fatalf("%d bytes at %d", size, at)
		}
		taken = append(taken, span{at, size})
	}
	for _, s := range taken {
		r.give(s.at, s.size)
	}
	if r.top != 0 || len(r.free) != 0 || full == 0 {
		t.Errorf("%+v is taken after all was given back; %d did not fit", r, full)
	}
}

// constantly is y = x + 2c, with c as weights of the model.
func constantly(t testing.TB, c []float32) []byte {
	tensor := &onnx.Tensor{Name: proto.String("c"), DataType: proto.Int32(int32(onnx.Tensor_FLOAT)),
		Dims: []int64{int64(len(c))}, FloatData: c}
	value := func(name string) *onnx.ValueInfo {
		return &onnx.ValueInfo{Name: proto.String(name), Type: graph.TensorType(onnx.Tensor_FLOAT, len(c))}
	}
	b := must.Value(proto.Marshal(&onnx.Model{IrVersion: proto.Int64(8),
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(17)},
			{Domain: proto.String(manifest.Domain), Version: proto.Int64(1)}},
		Graph: &onnx.Graph{Name: proto.String("constantly"), Initializer: []*onnx.Tensor{tensor},
			Input: []*onnx.ValueInfo{value("x")}, Output: []*onnx.ValueInfo{value("y")},
			Node: []*onnx.Node{{OpType: proto.String("Scale"), Domain: proto.String(manifest.Domain), Input: []string{"c"},
				Output: []string{"d"}},
				{OpType: proto.String("Add"), Input: []string{"x", "d"}, Output: []string{"y"}}}}}))(t)
	return b
}

// TestConstants: weights lie where a worker reads them, are there for the next worker, and go with their session.
func TestConstants(t *testing.T) {
	x := toy(t, Options{Crashes: 100})
	l := must.Value(ort.FindAndOpen(""))(t)
	operators := must.Value(x.Operators(l))(t)
	var list []*session.Session
	for i := range 3 {
		s := must.Value(session.FromBytes(l, constantly(t, []float32{float32(i), 2, 3}),
			session.Options{Unpatched: true, IntraOpThreads: 1, Optimization: session.OptimizeNone,
				Domains: []operator.Domain{{Name: manifest.Domain, Operators: operators}}}))(t)
		list = append(list, s)
	}
	x.mu.Lock()
	taken := x.room.top
	x.mu.Unlock()
	must.Equal(t, taken, 3*alignment)
	for range 3 {
		for i, s := range list {
			in := must.Value(ort.NewTensor(l, []int64{3}, []float32{10, 10, 10}))(t)
			out, err := s.Run(context.Background(), map[string]*ort.Value{"x": in})
			in.Close()
			must.Succeed(t, err)
			y, err := ort.Data[float32](out[0])
			if want := []float32{10 + 2*float32(i), 14, 16}; err != nil || !slices.Equal(y, want) {
				t.Errorf("session %d: %v, %v, want %v", i, y, err, want)
			}
			out[0].Close()
		}
		x.mu.Lock()
		child := x.link.child
		x.mu.Unlock()
		child.Kill()
		<-child.Ended()
		ready(t, x)
	}
	for _, s := range list {
		s.Close()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.room.top != 0 || x.kernels != 0 {
		t.Errorf("after the sessions %d bytes are taken, by %d kernels", x.room.top, x.kernels)
	}
}

// TestManyCalls: the number of a call begins again.
func TestManyCalls(t *testing.T) {
	x := toy(t, Options{})
	s := newSession(t, x, true)
	right(t, s, 1)
	x.mu.Lock()
	l := x.link
	x.mu.Unlock()
	slot := l.free[len(l.free)-1]
	l.state[slot] = lost - 3
	atomic.StoreUint32(&headerAt(l.at(slot)).state, lost-3)
	for i := range 4 {
		right(t, s, float32(i))
	}
	must.Equal(t, l.state[slot], 6)
}
