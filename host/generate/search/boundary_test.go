package search

import (
	"slices"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestBoundaries: a probability on a warper's boundary stays where it does in PyTorch's float32, and of equals the same
// ones go. testdata/boundary.py made the cases. A few stand on the last bit of PyTorch's own exp.
func TestBoundaries(t *testing.T) {
	var cases []struct {
		Warper string
		Number float64
		Logits []float32
		Kept   []int
	}
	readGolden(t, "boundary.json.gz", &cases)
	must.Equal(t, len(cases), 600)
	different := map[string]int{}
	for _, c := range cases {
		x := float32(c.Number)
		g := map[string]*Group{"top_p": {TopP: x}, "min_p": {MinP: x}, "typical_p": {TypicalP: x}}[c.Warper]
		p := Reference{row: slices.Clone(c.Logits)}
		p.warp(g)
		var kept []int
		for j, l := range p.row {
			if l > negInf {
				kept = append(kept, j)
			}
		}
		if !slices.Equal(kept, c.Kept) {
			different[c.Warper]++
		}
	}
	if different["top_p"] > 4 || different["min_p"] > 0 || different["typical_p"] > 4 {
		t.Errorf("of 600 cases differ %v", different)
	}
}
