package isolation

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/opgraft/graft/host/ort/hook"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// runsVariable is how many runs TestCrashesOften does: 10000 is the long version, `make test-longest`.
const runsVariable = "GRAFT_ISOLATION_RUNS"

// TestCrashesOften: of a plugin that ends its worker in one run of ten, in one of four ways, no run ends the program
// and none has a wrong answer. Each run finds a worker there, and is done by it where it does not end.
func TestCrashesOften(t *testing.T) {
	runs := 100
	if text := os.Getenv(runsVariable); text != "" {
		var err error
		if runs, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	x := toy(t, Options{Crashes: 1 << 30})
	s := newSession(t, x, false)
	draw := rand.New(rand.NewPCG(1, 2))
	ways := []float32{crash, aborts, exits, 1007}
	ended, before := int64(0), hook.Reverted()
	for i := range runs {
		ready(t, x)
		list := make([]float32, 1+draw.IntN(300))
		for j := range list {
			list[j] = float32(draw.IntN(1000) - 500)
		}
		if i%10 == 3 {
			list[0] = ways[draw.IntN(len(ways))]
			ended++
		}
		right(t, s, list...)
		if t.Failed() {
			t.Fatalf("in run %d", i)
		}
	}
	got := stat(x)
	if got.Calls != int64(runs)-ended || got.Crashes != ended || got.Instead != ended || got.Gone ||
		hook.Reverted() != before {
		t.Errorf("of %d runs, %d of which ended a worker: %+v, %d reverted", runs, ended, got, hook.Reverted()-before)
	}
	t.Logf("%d runs, %d workers ended: %+v", runs, ended, got)
}

// below are the processes below this one that are workers or their guards, the guards first.
func below(t testing.TB) (list []int) {
	t.Helper()
	parent := map[int]int{}
	stats := must.Value(filepath.Glob("/proc/[0-9]*/stat"))(t)
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if len(fields) > 1 && fields[0] != "Z" {
			parent[pid], _ = strconv.Atoi(fields[1])
		}
	}
	for pid := range parent {
		if parent[pid] == os.Getpid() {
			list = append(list, pid)
		}
	}
	for pid := range parent {
		if slices.Contains(list, parent[pid]) {
			list = append(list, pid)
		}
	}
	return list
}

// TestKilledAtAnyTime: while several sessions run from several goroutines, come and go, workers and their guards are
// killed. No answer is wrong.
func TestKilledAtAnyTime(t *testing.T) {
	kills := 12
	if testing.Short() {
		kills = 4
	}
	x := toy(t, Options{Crashes: 1 << 30})
	var stop atomic.Bool
	var group sync.WaitGroup
	sessions := []*session.Session{newSession(t, x, false), newSession(t, x, false)}
	for i := range 6 {
		group.Go(func() {
			for n := float32(0); !stop.Load() && !t.Failed(); n++ {
				right(t, sessions[i%2], n, float32(i), 7)
			}
		})
	}
	for i := range kills {
		ready(t, x)
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		list := below(t)
		if len(list) > 0 {
			_ = syscall.Kill(list[rand.IntN(len(list))], syscall.SIGKILL)
		}
		if i%3 == 0 {
			s := newSession(t, x, false)
			right(t, s, 1, 2)
			s.Close()
		}
	}
	stop.Store(true)
	group.Wait()
	if got := stat(x); got.Crashes == 0 || got.Calls == 0 {
		t.Errorf("counted %+v", got)
	}
}

// TestManyAtOnce: more calls at once than a worker has windows for.
func TestManyAtOnce(t *testing.T) {
	x := toy(t, Options{})
	s := newSession(t, x, false)
	var group sync.WaitGroup
	for i := range slots + 20 {
		group.Go(func() {
			for n := range 20 {
				right(t, s, float32(i), float32(n))
			}
		})
	}
	group.Wait()
	if got := stat(x); got.Calls != (slots+20)*20 || got.Crashes != 0 || got.Instead != 0 {
		t.Errorf("counted %+v", got)
	}
}

// TestMemory: a worker that takes memory without end is ended, and nothing else.
func TestMemory(t *testing.T) {
	x := toy(t, Options{Memory: 256 << 20})
	s := newSession(t, x, false)
	right(t, s, endless)
	ready(t, x)
	right(t, s, 1)
	if got := stat(x); got.Crashes != 1 {
		t.Errorf("counted %+v", got)
	}
}

// TestNothingLeft: a worker goes when no session has had its plugin for a while, with its memory, and comes again.
func TestNothingLeft(t *testing.T) {
	defer func(d time.Duration) { idle = d }(idle)
	idle = 50 * time.Millisecond
	x := toy(t, Options{})
	for range 2 {
		s := newSession(t, x, false)
		right(t, s, 1, 2)
		x.mu.Lock()
		l := x.link
		x.mu.Unlock()
		s.Close()
		select {
		case <-l.child.Ended():
		case <-time.After(time.Minute):
			t.Fatal("after a minute the worker is there")
		}
		given := func() bool {
			x.mu.Lock()
			defer x.mu.Unlock()
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.given && x.link == nil && x.constants == nil
		}
		for deadline := time.Now().Add(time.Minute); !given(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("after a minute its memory is there")
			}
		}
	}
	if got := stat(x); got.Crashes != 0 || got.Calls != 2 {
		t.Errorf("counted %+v", got)
	}
}
