package random

import (
	"errors"
	"github.com/opgraft/graft/internal/must"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// reason matches what differs between reasons of one kind: names of nodes and values.
var reason = regexp.MustCompile(`(\w+ -> )?\b\w*[_nv]\d+\w*`)

// TestRandomEncoders: encoders of random masks, positions, windows, heads and padding give ONNX Runtime's answers
// without hidden tokens where nothing of these can be seen, with them else and, where they are to be ignored, zeros
// in their rows and ONNX Runtime's answers in all others.
func TestRandomEncoders(t *testing.T) {
	b := newBench(t)
	n := graphs(t)
	rows, kept := map[string]int{}, map[string]int{}
	refused, failed, runs, unrun, broken := uint64(0), 0, 0, 0, 0
	for seed := *first; seed < *first+n; seed++ {
		g := MakeEncoder(seed, Limits{})
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
				if err := b.shrink(t.Context(), g, threads).Write(filepath.Join(*keep, strconv.FormatUint(seed, 10))); err != nil {
					t.Error(err)
				}
			}
		}
		add(rows, c.Rows)
		kept[reason.ReplaceAllString(c.Kept, "X")]++
		runs, unrun, broken = runs+c.Runs, unrun+c.Refused, broken+c.Broken
	}
	t.Logf("%d encoders, %d of them refused by ONNX Runtime alone; %d runs, %d refused by ONNX Runtime alone; %d "+
		"sessions that its own optimisations break; %d failed", n, refused, runs, unrun, broken, failed)
	t.Logf("tokens that are computed: %v", rows)
	for _, why := range slices.SortedFunc(maps.Keys(kept), func(a, b string) int { return kept[b] - kept[a] }) {
		t.Logf("%5d %s", kept[why], why)
	}
	if n >= 100 && refused*20 >= n {
		t.Errorf("ONNX Runtime alone refuses %d of %d encoders, needed are fewer than one of twenty", refused, n)
	}
	for _, way := range []string{"exact visible", "exact masked", "ignore visible"} {
		if n >= 100 && uint64(rows[way])*10 < n {
			t.Errorf("%d of %d encoders are patched as %q, needed is one of ten", rows[way], n, way)
		}
	}
}

// TestMaskThatTheGraphTurns: a graph hides each key by the mask of the one before. A program takes a token for
// visible that is so in the mask which it gives, and gets the model's row of it.
func TestMaskThatTheGraphTurns(t *testing.T) {
	const seed = 3673 // with axes of one in the mask that it is given
	b := newBench(t)
	must.Value(b.check(t.Context(), MakeEncoder(seed, Limits{}), 1+2*(seed%2)))(t)
}
