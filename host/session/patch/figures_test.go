package patch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
)

// figures are graphs for which time and memory are measured.
var figures = []struct {
	name, drawn string
	n           int
}{
	{"64-diamonds", "Add(x, x) as scores", 64},
	{"10000-diamonds", "Add(x, x) as scores", 10_000},
	{"20000-softmaxes", "attentions that share a mask", 80_000},
	{"1000000-nodes", "Relus", 1_000_000},
	{"1000000-identities", "Identities", 1_000_000},
}

// figureVariable names a model and lets a test in a process of its own analyse it.
const figureVariable = "GRAFT_TEST_FIGURE"

// BenchmarkBounds measures reading, analysis and rewriting of graphs that are made to take long, each in a
// process of its own: seconds, seconds of processors, and the peak of its memory. `go test -run '^$'
// -bench Bounds -benchtime 1x ./host/session/patch` prints them.
func BenchmarkBounds(b *testing.B) {
	for _, f := range figures {
		b.Run(f.name, func(b *testing.B) {
			path := b.TempDir() + "/model.onnx"
			for _, a := range adversaries {
				if a.name == f.drawn {
					must.Succeed(b, os.WriteFile(path, encoded(b, a.draw, f.n), 0o600))
				}
			}
			for b.Loop() {
				child := exec.Command(os.Args[0], "-test.run", "^TestFigure$", "-test.v")
				child.Env = append(os.Environ(), figureVariable+"="+path)
				out, err := child.CombinedOutput()
				if err != nil {
					b.Fatalf("%v\n%s", err, out)
				}
				used := child.ProcessState.SysUsage().(*syscall.Rusage)
				megabytes := float64(used.Maxrss) / 1e3
				b.ReportMetric(megabytes, "MB")
				b.ReportMetric((child.ProcessState.UserTime() + child.ProcessState.SystemTime()).Seconds(), "cpu-s")
				for _, line := range strings.Split(string(out), "\n") {
					if text, ok := strings.CutPrefix(line, "figure: "); ok {
						b.Log(text)
					}
				}
				if megabytes > 2000 {
					b.Errorf("its analysis takes %.0f MB", megabytes)
				}
			}
		})
	}
}

// TestFigure is the process that BenchmarkBounds measures, and a small figure otherwise.
func TestFigure(t *testing.T) {
	m := parsed(t, encoded(t, adversaries[0].draw, 64))
	if path := os.Getenv(figureVariable); path != "" {
		data := must.Value(os.ReadFile(path))(t)
		m = parsed(t, data)
	}
	start := time.Now()
	ctx, done := context.WithTimeout(t.Context(), patch.DefaultTime)
	defer done()
	a, err := patch.Analyse(ctx, m, manifests(t, "flash-decode", "fused-gelu", "packed-linear"), plan.Options{Force: true})
	if err == nil {
		err = a.Apply(ctx)
	}
	switch {
	case errors.Is(err, graph.ErrBounds):
		fmt.Printf("figure: left alone after %.1f s: %v\n", time.Since(start).Seconds(), err)
	case err != nil:
		t.Fatal(err)
	default:
		steps, parts := a.Graph.Steps()
		fmt.Printf("figure: %.1f s, %.1f steps for each node, input and output, %d of %d blocks replaced\n",
			time.Since(start).Seconds(), float64(steps)/float64(parts), a.Plan.Replaced(), len(a.Plan.Choices))
	}
}
