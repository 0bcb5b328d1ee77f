package engine_test

import (
	"math"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/fold"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// TestPoolsCountWhatThePlannerPredicts: what an engine's pools count, for prompts,
// generated tokens and encoded inputs, is what the planner's formulas say, for every
// strategy and every kind of model.
func TestPoolsCountWhatThePlannerPredicts(t *testing.T) {
	const keys, beams, steps = 37, 3, 29
	l, set := open(t)
	folds := fold.At(t.TempDir(), nil)
	compared := map[plan.Strategy]int{}
	for _, model := range []string{"gpt2", "llama-mha", "bart", "t5", "t5-wide", "whisper", "marian"} {
		for _, strategy := range plan.StandardStrategies() {
			for _, storage := range []plan.Storage{plan.Float32, plan.Float16, plan.Int8} {
				if storage != plan.Float32 && (strategy == plan.Keys || strategy == plan.FirstLayerKeys) {
					continue // refused by the check of these layers
				}
				t.Run(model+"/"+plan.Candidate{Strategy: strategy, Storage: storage}.String(), func(t *testing.T) {
					dir := t.TempDir()
					must.Succeed(t, models.Small(model, dir))
					g, err := decode.Open(t.Context(), dir, decode.Options{Library: l, Plugins: set,
						CacheBytes: 64 << 20, Folds: folds,
						Attention: prepare.Attention{Self: strategy.Within("self"), Cross: strategy.Within("cross"), Storage: storage}})
					must.Succeed(t, err)
					defer g.Close()
					e := g.Engine()
					for _, c := range g.Choices() {
						l := c.Kind.Layers
						for _, layer := range e.Strategies() {
							if layer.Type == l.Type && layer.Strategy != c.Candidate.Strategy && layer.Strategy != plan.Keys {
								return // another way stands in, with other bytes
							}
						}
						want := c.Candidate.Bytes(l, plan.Shape{Keys: keys, Own: steps, Beams: beams, Batch: 1})
						got, slack := e.EncodedBytes(keys, beams), int64(0)
						if l.Type == "self" {
							got, slack = sequenceBytes(t, e, keys, beams, steps), 2*e.BlockBytes()
						}
						if math.Abs(float64(got-want)) > float64(slack) {
							t.Errorf("%s attention stores %d bytes, the planner says %d", l.Type, got, want)
						}
						compared[c.Candidate.Strategy]++
					}
				})
			}
		}
	}
	for _, strategy := range plan.StandardStrategies() {
		if compared[strategy] == 0 {
			t.Errorf("nothing was compared for %s", strategy)
		}
	}
}

// sequenceBytes is what a sequence stores after a prompt and steps of beams that never
// agree.
func sequenceBytes(t *testing.T, e *engine.Engine, prompt, beams, steps int) int64 {
	t.Helper()
	s := must.Value(e.Imagine(prompt, beams, steps))(t)
	defer s.Release()
	return s.Bytes()
}
