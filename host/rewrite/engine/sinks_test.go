package engine

import (
	"fmt"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/internal/must"
)

// TestBiasBesideSinks: what is added to all scores of a query alike is nothing to a softmax, but beside a sink, which
// has its part of it.
func TestBiasBesideSinks(t *testing.T) {
	for _, c := range []struct {
		name      string
		bias      func(i, j int64) float32 // of the query and the key at these positions
		sinks     bool
		different bool
	}{
		{"by the key", func(_, j int64) float32 { return float32(j) }, false, false},
		{"by the key, beside sinks", func(_, j int64) float32 { return float32(j) }, true, true},
		{"by the distance, beside sinks", func(i, j int64) float32 { return float32(j - i) }, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, shapes := blockstest.Graph(t, "in bias f32[1, 1, s, t]\nout y f32[1, 1, s, t]\ny = Identity(bias)")
			b := &blocks.Block{Attention: &blocks.Attention{Type: "self", Heads: 1, Sinks: c.sinks},
				Wiring: &blocks.Wiring{Graph: g, Biases: []blocks.Bias{{Value: g.Inputs[0], Factor: 1}}}}
			d := &Decoder{Graph: g, Shapes: shapes, Report: &blocks.Report{Blocks: []*blocks.Block{b}}, Positions: 16,
				Answers: Answers{}}
			for _, at := range d.maskLengths(b) {
				e := Evaluated{Shape: []int64{1, 1, at.New, at.Past + at.New}}
				for i := range at.New {
					for j := range at.Past + at.New {
						x := float32(-1e9)
						if j <= at.Past+i {
							x = c.bias(at.Past+i, j)
						}
						e.Data = append(e.Data, x)
					}
				}
				d.Answers.Add(Question{d.maskNames(b), at}, []Evaluated{e}, nil)
			}
			_, _, _, err := (&builder{Decoder: d}).biasTable(b)
			if !c.different {
				must.Succeed(t, err)
				return
			}
			want := fmt.Sprintf("its bias at distance %d is %g for one query and %g for another: it is no function of the "+
				"distance", 0, 0.0, 15.0)
			if err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}
