package sessions

import (
	"os"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/internal/must"
)

// TestMemory: what a session says counts before what all are given. Nothing is planned where lengths vary.
func TestMemory(t *testing.T) {
	set := load(t, "cpu")
	l := must.Value(ort.FindAndOpen(""))(t)
	fixed, varying := joining(t), varyingRows(t, joining(t))
	for _, c := range []struct {
		bound, own        bool
		entry             string
		model             []byte
		unplanned, shared bool
	}{
		{false, false, "", varying, true, true},
		{false, false, "", fixed, false, true},
		{true, false, "", fixed, true, true},
		{false, true, "", varying, false, false},
		{true, true, "", varying, true, false},
		{false, false, "1", fixed, true, true},
		{false, true, "1", fixed, true, true},
		{false, false, "0", varying, false, false},
		{true, false, "0", varying, false, false},
		{true, false, "1", varying, true, true},
	} {
		config := map[string]string{}
		if c.entry != "" {
			config[ConfigMemory] = c.entry
		}
		s := &Patcher{Plugins: set.Plugins, Options: plan.Options{Force: true}, BoundMemory: c.bound, OwnArenas: c.own}
		var got *session.Patch
		made := must.Value(session.FromBytes(l, c.model,
			session.Options{Config: config, Patcher: func(r session.Request) (*session.Patch, error) {
				p, err := s.Patch(r)
				got = p
				return p, err
			}}))(t)
		made.Close()
		if got == nil || got.NoMemoryPattern != c.unplanned || got.ShareArena != c.shared {
			t.Errorf("%+v: got %+v", c, got)
		}
	}
}

// varyingRows is a model with any number of rows.
func varyingRows(t *testing.T, content []byte) []byte {
	m := &onnx.Model{}
	must.Succeed(t, proto.Unmarshal(content, m))
	for _, v := range append(m.Graph.Input, m.Graph.Output...) {
		v.Type.GetTensorType().Shape.Dim[0].Value = &onnx.Shape_Dim_DimParam{DimParam: "rows"}
	}
	content = must.Value(proto.Marshal(m))(t)
	return content
}

// TestCyclesLeaveNothing: descriptors and threads are what they were after sessions came and went.
func TestCyclesLeaveNothing(t *testing.T) {
	set := load(t, "cpu")
	cycle := func() {
		made := newSession(t, set, nil)
		made.expectAnswer(t)
		made.session.Close()
	}
	held := func() [2]int {
		var n [2]int
		for i, folder := range []string{"/proc/self/fd", "/proc/self/task"} {
			list := must.Value(os.ReadDir(folder))(t)
			n[i] = len(list)
		}
		return n
	}
	for range 10 {
		cycle()
	}
	before := held()
	for range 100 {
		cycle()
	}
	// Go's runtime may have started threads of its own in the meantime; one a session would be a hundred.
	if after := held(); after[0] != before[0] || after[1] > before[1]+8 {
		t.Errorf("descriptors and threads went from %v to %v in 100 cycles", before, after)
	}
}
