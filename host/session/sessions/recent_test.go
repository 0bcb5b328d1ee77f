package sessions

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
)

// TestPlannedOnce: sessions of one file with the same entries are made of one analysis, and others of their own.
func TestPlannedOnce(t *testing.T) {
	set := load(t, "cpu")
	l := must.Value(ort.FindAndOpen(""))(t)
	keptFor = time.Hour // a busy machine may take longer than it otherwise is
	defer func() { keptFor = 10 * time.Second }()
	path := filepath.Join(t.TempDir(), "model.onnx")
	must.Succeed(t, os.WriteFile(path, joining(t), 0o644))
	var lock sync.Mutex
	var last *patch.Analysis
	s := &Patcher{Plugins: set.Plugins, Options: plan.Options{Force: true}}
	patcher := watched(s, func(a *patch.Analysis) {
		lock.Lock()
		defer lock.Unlock()
		last = a
	})
	analysis := func(config map[string]string) *patch.Analysis {
		t.Helper()
		m := &made{}
		m.session, m.err = session.Open(l, path, session.Options{Config: config, Patcher: patcher})
		m.expectAnswer(t)
		m.session.Close()
		return last
	}
	first := analysis(nil)
	if first.Plan.Replaced() == 0 {
		t.Fatal("nothing is replaced")
	}
	if analysis(nil) != first {
		t.Error("planned twice")
	}
	if analysis(map[string]string{ConfigNoise: "1"}) == first {
		t.Error("one plan for other entries")
	}
	var several sync.WaitGroup
	for range 8 {
		several.Go(func() {
			if s, err := session.Open(l, path, session.Options{Patcher: patcher}); err != nil {
				t.Error(err)
			} else {
				s.Close()
			}
		})
	}
	several.Wait()

	// A file that was written again is another.
	must.Succeed(t, os.WriteFile(path, append(joining(t), 0x3a, 0), 0o644))
	second := analysis(nil)
	if second == first {
		t.Error("one plan for two files")
	}

	// When its time is over, a model is closed with the last session that is made of it.
	key := ""
	for k, p := range recent.plans {
		if p.analysis == second {
			key = k
		}
	}
	a, done := planKeptFor(key)
	if a == nil {
		t.Fatal("no plan is there")
	}
	p := recent.plans[key]
	recent.Lock()
	forget(key, p)
	recent.Unlock()
	must.Equal(t, p.users, 1)
	done()
	done()
	must.Equal(t, p.users, 0)
	if analysis(nil) == second {
		t.Error("planned with a model that is closed")
	}
	third := recent.plans[key]
	if Forget(); len(recent.plans) != 0 || third.users != 0 {
		t.Errorf("%d plans are there and %d users of one when all are forgotten", len(recent.plans), third.users)
	}
}
