package trial

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/opgraft/graft/host/measure/statistics"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/sessions"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// benchModels is an environment variable that names files to load instead of GPT-2-124M, with colons between.
const benchModels = "GRAFT_BENCH_MODELS"

// BenchmarkLoad times making a session with and without Verify, and with and without asking operators for their
// shapes, in as many rounds of A B B A as -benchtime 5x says.
func BenchmarkLoad(b *testing.B) {
	l := must.Value(ort.FindAndOpen(""))(b)
	set := must.Value(loaded.Load(nil, true))(b)
	paths := filepath.SplitList(os.Getenv(benchModels))
	if len(paths) == 0 {
		folder := must.Value(models.Cached("gpt2-124m", nil))(b)
		paths = []string{filepath.Join(folder, "model.onnx")}
	}
	for _, path := range paths {
		way := func(all, shapes bool) func() float64 {
			o := set.Plan(plan.Options{Force: true})
			if !shapes {
				o.Kernel = nil
			}
			p := &Patcher{Sessions: &sessions.Patcher{Plugins: set.Plugins, Options: o}, All: all}
			return func() float64 {
				start := time.Now()
				s, err := session.Open(l, path, session.Options{Patcher: p.Patch})
				took := time.Since(start)
				must.Succeed(b, err)
				s.Close()
				return float64(took.Microseconds()) / 1e3
			}
		}
		for name, ways := range map[string][2]func() float64{"verify": {way(false, true), way(true, true)},
			"shapes": {way(false, false), way(false, true)}} {
			b.Run(filepath.Base(path)+"/"+name, func(b *testing.B) {
				var times [2][]float64
				ways[0]() // files come into the system's cache, weights are folded
				for range b.N {
					for _, i := range []int{0, 1, 1, 0} {
						times[i] = append(times[i], ways[i]())
					}
				}
				s := statistics.SpeedupOf(times[1], times[0]) // how many times as long it takes
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(s.Median, "times_as_long")
				b.Logf("%.1f -> %.1f ms, %.3f times as long [%.3f, %.3f], p = %.2g, %d loads each", statistics.Median(times[0]),
					statistics.Median(times[1]),
					s.Median, s.CI95[0], s.CI95[1], s.P, len(times[0]))
			})
		}
	}
}
