package sessions

import (
	"os"
	"testing"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
)

// TestBoundMemory: what a session says counts before what all are given.
func TestBoundMemory(t *testing.T) {
	set := load(t, "cpu")
	l, err := ort.FindAndOpen("")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		all   bool
		entry string
		want  bool
	}{{false, "", false}, {true, "", true}, {false, "1", true}, {true, "0", false}, {true, "1", true}, {false, "0", false}} {
		config := map[string]string{}
		if c.entry != "" {
			config[ConfigMemory] = c.entry
		}
		s := &Patcher{Plugins: set.Plugins, Options: plan.Options{Force: true}, BoundMemory: c.all}
		var got, patched bool
		made, err := l.NewSessionFromBytes(joining(t), ort.SessionOptions{Config: config, Patcher: func(r ort.Request) (*ort.Patch, error) {
			p, err := s.Patch(r)
			if p != nil {
				got, patched = p.NoMemoryPattern, true
			}
			return p, err
		}})
		if err != nil {
			t.Fatal(err)
		}
		made.Close()
		if !patched || got != c.want {
			t.Errorf("all %v, %s %q: patched %v, without memory patterns %v, want %v", c.all, ConfigMemory, c.entry, patched, got, c.want)
		}
	}
}

// TestCyclesLeaveNothing: descriptors and threads are what they were after sessions came and went.
func TestCyclesLeaveNothing(t *testing.T) {
	set := load(t, "cpu")
	cycle := func() {
		made := session(t, set, nil)
		made.expectAnswer(t)
		made.session.Close()
	}
	held := func() [2]int {
		var n [2]int
		for i, folder := range []string{"/proc/self/fd", "/proc/self/task"} {
			list, err := os.ReadDir(folder)
			if err != nil {
				t.Fatal(err)
			}
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
