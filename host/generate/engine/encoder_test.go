package engine_test

import (
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// TestOutputsOfEncoders: what no layer can attend to is refused, whatever is stored of
// it, and leaves nothing in the pools.
func TestOutputsOfEncoders(t *testing.T) {
	l, set := open(t)
	dir := t.TempDir()
	must.Succeed(t, models.Small("bart", dir))
	for _, strategy := range []plan.Strategy{plan.KeysValues, plan.PromptHiddenStates, plan.Keys} {
		g := must.Value(decode.Open(t.Context(), dir,
			decode.Options{Library: l, Plugins: set, CacheBytes: 1 << 20,
				Attention: prepare.Attention{Self: plan.KeysValues, Cross: strategy}}))(t)
		e := g.Engine()
		for _, c := range []struct {
			shape []int64
			found string // "": it is stored
		}{
			{[]int64{1, 3, 48}, ""},
			{[]int64{1, 0, 48}, "the encoder's output has the shape [1 0 48], needed is one input of at least one position"},
			{[]int64{3, 48}, "the encoder's output has the shape [3 48], needed is one input of at least one position"},
			{[]int64{2, 3, 48}, "the encoder's output has the shape [2 3 48], needed is one input of at least one position"},
			{[]int64{1, 3, 47}, "47"},
			{[]int64{1, 20000, 48}, "the cache is full"},
		} {
			n := int64(1)
			for _, d := range c.shape {
				n *= d
			}
			hidden := must.Value(ort.NewTensor(l, c.shape, make([]float32, n)))(t)
			stored, err := e.Store(t.Context(), hidden, 1)
			hidden.Close()
			if err == nil {
				stored.Release()
			}
			if (err == nil) != (c.found == "") || err != nil && !strings.Contains(err.Error(), c.found) {
				t.Errorf("%s, %v: found %v, want %q", strategy, c.shape, err, c.found)
			}
			if _, _, cross, _ := e.Memory(); cross != 0 {
				t.Errorf("%s, %v: %d bytes are left", strategy, c.shape, cross)
			}
		}
		g.Close()
		g.Close() // once more does nothing
	}
}

// TestPromptBytes: a prompt that is stored apart is read as it is stored.
func TestPromptBytes(t *testing.T) {
	l, set := open(t)
	dir := t.TempDir()
	must.Succeed(t, models.Small("gpt2", dir))
	steps := map[plan.Strategy]int64{}
	for _, strategy := range []plan.Strategy{plan.KeysValues, plan.PromptHiddenStates} {
		g := must.Value(decode.Open(t.Context(), dir,
			decode.Options{Library: l, Plugins: set, CacheBytes: 1 << 20, Attention: prepare.Attention{Self: strategy}}))(t)
		layers := g.Choices()[0].Kind.Layers
		want := plan.Candidate{Strategy: strategy}.Bytes(layers, plan.Shape{Keys: 16, Beams: 1}) / 16
		must.Equal(t, g.Engine().PromptBytes(), want, strategy)
		steps[strategy] = g.Engine().StepBytes()
		g.Close()
	}
	if steps[plan.PromptHiddenStates] <= steps[plan.KeysValues] {
		t.Errorf("a step reads %v bytes of weights: those of attention over inputs are more", steps)
	}
}
