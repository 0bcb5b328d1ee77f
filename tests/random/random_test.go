package random

import (
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
)

var (
	first = flag.Uint64("first", 1, "the first seed")
	keep  = flag.String("keep", "", "folder that graphs which fail are written to, made smaller")
)

// graphs is how many are made: GRAFT_RANDOM_GRAPHS, or 150.
func graphs(t *testing.T) uint64 {
	text := os.Getenv("GRAFT_RANDOM_GRAPHS")
	if text == "" {
		return 150
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 {
		t.Fatalf("GRAFT_RANDOM_GRAPHS is %q, needed is a number of graphs", text)
	}
	return n
}

func newBench(t *testing.T) *bench {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	return &bench{library: l, set: set}
}

func TestRandomGraphs(t *testing.T) {
	b := newBench(t)
	n := graphs(t)
	blocks, replaced := map[string]int{}, map[string]int{}
	refused, served, failed, runs, unrun, broken := uint64(0), uint64(0), 0, 0, 0, 0
	for seed := *first; seed < *first+n; seed++ {
		g := Make(seed, Limits{})
		if seed%3 == 0 {
			v := must.Value(g.Vary(t.Context(), seed))(t, "seed", seed)
			g = v
		}
		threads := 1 + 2*int(seed%2)
		c, err := b.check(t.Context(), g, threads)
		if errors.Is(err, errRefused) {
			t.Logf("seed %d: %v", seed, err)
			refused++
			continue
		}
		if err != nil {
			failed++
			t.Errorf("seed %d: %v", seed, err)
			if *keep != "" {
				err := b.shrink(t.Context(), g, threads).Write(filepath.Join(*keep, strconv.FormatUint(seed, 10)))
				must.Succeed(t, err)
			}
		}
		if len(c.Replaced) > 0 {
			served++
		}
		add(blocks, c.Blocks)
		add(replaced, c.Replaced)
		runs, unrun, broken = runs+c.Runs, unrun+c.Refused, broken+c.Broken
	}
	t.Logf("%d graphs, %d of them refused by ONNX Runtime alone, %d with something replaced; %d runs, %d refused by "+
		"ONNX Runtime alone; %d sessions that its own optimisations break; %d failed", n, refused, served, runs, unrun,
		broken, failed)
	t.Logf("recognised: %v; replaced: %v", blocks, replaced)
	if n >= 100 && refused*20 >= n {
		t.Errorf("ONNX Runtime alone refuses %d of %d graphs, needed are fewer than one of twenty", refused, n)
	}
	if broken > 2+int(n/500) {
		t.Errorf("ONNX Runtime's optimisations break %d patched models, needed are one of 500 at most", broken)
	}
	if n >= 100 && served*2 < n {
		t.Errorf("%d of %d graphs had something replaced, needed is half of them", served, n)
	}
}

func add(to, from map[string]int) {
	for _, k := range slices.Sorted(maps.Keys(from)) {
		to[k] += from[k]
	}
}

// TestFound holds graphs that were answered wrongly once: folders of testdata, each named after what was wrong.
func TestFound(t *testing.T) {
	b := newBench(t)
	folders, err := filepath.Glob("testdata/*/model.onnx")
	if err != nil || len(folders) == 0 {
		t.Fatalf("there is no graph under testdata: %v", err)
	}
	for _, f := range folders {
		t.Run(filepath.Base(filepath.Dir(f)), func(t *testing.T) {
			g := must.Value(Read(filepath.Dir(f)))(t)
			for _, threads := range []int{1, 3} {
				must.Value(b.check(t.Context(), g, threads))(t, threads, "threads")
			}
		})
	}
}
