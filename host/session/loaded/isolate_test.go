package loaded

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/operator"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/session/isolation"
	"github.com/opgraft/graft/internal/must"
)

func TestMain(m *testing.M) {
	worker.Main(isolation.Tasks()) // this executable is its own worker
	os.Exit(m.Run())
}

// built is the set of the plugins of this build, of which the named ones are isolated.
func built(t testing.TB, isolate ...string) (*Set, error) {
	t.Helper()
	var folders []string
	for _, name := range []string{"plugins", "examples"} {
		folder := must.Value(filepath.Abs("../../../build/" + name))(t)
		folders = append(folders, folder)
	}
	t.Setenv("GRAFT_PLUGIN_PATH", "")
	return LoadWith(folders, true, Ways{Isolate: &Isolate{Names: isolate}})
}

// TestPluginsThatCannotBeIsolated: each with the reason.
func TestPluginsThatCannotBeIsolated(t *testing.T) {
	for name, want := range map[string]string{
		"low-rank": "cannot isolate plugin low-rank: its operator LowRankMatMul computes weights from weights, which " +
			"the program would have to do with its code; use it without isolation, or leave it out",
		"el-attention": "cannot isolate plugin el-attention: it has operators over the KV cache of graft generate alone, " +
			"which lies in this process; use it without isolation, or leave it out",
		"plain-decode": "cannot isolate plugin plain-decode: it has operators over the KV cache of graft generate alone, " +
			"which lies in this process; use it without isolation, or leave it out",
	} {
		must.Fail(t, must.Error(built(t, name)), refusal.ErrIncompatible, want)
	}
}

// gelu is a model of one operator, y of x (n, 64).
func gelu(t testing.TB) []byte {
	value := func(name string) *onnx.ValueInfo {
		return &onnx.ValueInfo{Name: proto.String(name), Type: graph.TensorType(onnx.Tensor_FLOAT, "n", 64)}
	}
	b := must.Value(proto.Marshal(&onnx.Model{IrVersion: proto.Int64(8),
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(17)},
			{Domain: proto.String(manifest.Domain), Version: proto.Int64(1)}},
		Graph: &onnx.Graph{Name: proto.String("gelu"), Input: []*onnx.ValueInfo{value("x")},
			Output: []*onnx.ValueInfo{value("y")},
			Node: []*onnx.Node{{OpType: proto.String("FusedGelu"), Domain: proto.String(manifest.Domain), Input: []string{"x"},
				Output: []string{"y"}}}}}))(t)
	return b
}

// sides are a session with the plugin's code here and one with it in a worker.
func sides(t testing.TB, l *ort.Library) map[string]*session.Session {
	t.Helper()
	list := map[string]*session.Session{}
	for name, isolate := range map[string][]string{"here": nil, "isolated": {"fused-gelu"}} {
		set, err := built(t, isolate...)
		must.Succeed(t, err)
		domain := must.Value(Domain(set.Plugins, []string{"fused-gelu"}, []string{"FusedGelu"}, l))(t)
		if list[name], err = session.FromBytes(l, gelu(t),
			session.Options{IntraOpThreads: 1, Unpatched: true, Domains: []operator.Domain{domain}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(list[name].Close)
	}
	return list
}

// TestIsolatedIsTheSame: a plugin of ours has the same bits in a worker.
func TestIsolatedIsTheSame(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	x := make([]float32, 64*33)
	for i := range x {
		x[i] = float32(i-1000) / 300
	}
	in := must.Value(ort.NewTensor(l, []int64{33, 64}, x))(t)
	defer in.Close()
	answers := map[string][]float32{}
	for name, s := range sides(t, l) {
		out := must.Value(s.Run(context.Background(), map[string]*ort.Value{"x": in}))(t)
		y := must.Value(ort.Data[float32](out[0]))(t)
		answers[name] = slices.Clone(y)
		out[0].Close()
	}
	must.Equal(t, answers["here"], answers["isolated"])
}

// BenchmarkIsolated is a run of one FusedGelu, by the bytes of its input and of its output, here and in a worker.
func BenchmarkIsolated(b *testing.B) {
	l := must.Value(ort.FindAndOpen(""))(b)
	list := sides(b, l)
	for _, rows := range []int64{1, 256, 4096, 65536} {
		for _, name := range []string{"here", "isolated"} {
			b.Run(fmt.Sprintf("bytes=%d/%s", rows*256, name), func(b *testing.B) {
				in := must.Value(ort.NewTensor(l, []int64{rows, 64}, make([]float32, rows*64)))(b)
				defer in.Close()
				fed := map[string]*ort.Value{"x": in}
				run := func() {
					out := must.Value(list[name].Run(context.Background(), fed))(b)
					out[0].Close()
				}
				run()
				var times []float64
				for b.Loop() {
					begin := time.Now()
					run()
					times = append(times, float64(time.Since(begin).Microseconds()))
				}
				slices.Sort(times)
				b.ReportMetric(times[len(times)/2], "median-µs")
				b.ReportMetric(times[len(times)/10], "tenth-µs") // a machine under other load
			})
		}
	}
}
