package sessions

import (
	"log/slog"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
)

// TestSessionsOfQuantizedModels: before what rounds as the model runs, operators stand where the options or the session
// accept it; the session's word counts.
func TestSessionsOfQuantizedModels(t *testing.T) {
	set := load(t, "cpu")
	l := must.Value(ort.FindAndOpen(""))(t)
	m := &onnx.Model{}
	must.Succeed(t, proto.Unmarshal(joining(t), m))
	m.Graph.Node = append(m.Graph.Node,
		&onnx.Node{OpType: proto.String("DynamicQuantizeLinear"), Input: []string{"y"},
			Output: []string{"q", "scale", "zero"}},
		&onnx.Node{OpType: proto.String("DequantizeLinear"), Input: []string{"q", "scale", "zero"}, Output: []string{"z"}})
	m.Graph.Output[0].Name = proto.String("z")
	b := must.Value(proto.Marshal(m))(t)
	for _, c := range []struct {
		option bool
		config map[string]string
		want   int
	}{
		{false, nil, 0},
		{true, nil, 1},
		{false, map[string]string{ConfigNoise: "1"}, 1},
		{true, map[string]string{ConfigNoise: "0"}, 0},
		{true, map[string]string{ConfigNoise: ""}, 0},
	} {
		replaced := -1
		p := &Patcher{Plugins: set.Plugins, Options: plan.Options{Force: true, QuantizationNoise: c.option},
			Logger: slog.New(slog.DiscardHandler)}
		s := must.Value(session.FromBytes(l, b, session.Options{Config: c.config,
			Patcher: watched(p, func(a *patch.Analysis) { replaced = a.Plan.Replaced() })}))(t)
		s.Close()
		if replaced != c.want {
			t.Errorf("option %v, session %v: %d replaced, want %d", c.option, c.config, replaced, c.want)
		}
	}
}
