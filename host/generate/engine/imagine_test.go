package engine_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// A sequence that nothing computed is as long, takes as much and grows as one that was
// fed a prompt and steps, whatever is stored.
func TestImagine(t *testing.T) {
	l, set := open(t)
	ctx := context.Background()
	for _, c := range []struct{ model, strategy string }{
		{"gpt2", "keys_values"}, {"gpt2", "prompt_hidden_states"}, {"gpt2", "hidden_states"}, {"bart", "keys_values"},
		{"bart", "prompt_hidden_states"},
	} {
		folder := filepath.Join(t.TempDir(), c.model)
		must.Succeed(t, models.Small(c.model, folder))
		attention := must.Value(prepare.ParseAttention(c.strategy, nil))(t)
		g, err := decode.Open(t.Context(), folder, decode.Options{Library: l, Plugins: set, CacheBytes: 1 << 28,
			Attention: attention})
		must.Succeed(t, err)
		e := g.Engine()
		var cross *engine.Encoded
		if e.HasEncoder() {
			in := engine.Features{Tokens: []int64{3, 4, 5, 6, 7}}
			if cross, err = e.Encode(ctx, in, 3); err != nil {
				t.Fatal(err)
			}
			copies := 0
			err := e.EncodeCopies(ctx, in, 3, 2, func(c *engine.Encoded) error {
				if copies++; c.Len() != cross.Len() || c.Bytes() != cross.Bytes() {
					t.Errorf("a copy has %d positions in %d bytes, the input %d in %d", c.Len(), c.Bytes(), cross.Len(), cross.Bytes())
				}
				c.Release()
				return nil
			})
			if err != nil || copies != 2 {
				t.Fatalf("%d copies: %v", copies, err)
			}
		}
		const prompt, rows, steps = 20, 3, 4
		fed := e.NewSequence()
		step := func(s *engine.Sequence, isPrompt bool, n int) {
			t.Helper()
			f := engine.Feed{Sequence: s, Cross: cross, Prompt: isPrompt}
			for i := range n {
				f.Tokens = append(f.Tokens, int64(5+i))
			}
			must.Value(e.Step(ctx, []engine.Feed{f}))(t, c.model, c.strategy)
		}
		step(fed, true, prompt)
		must.Succeed(t, fed.Reorder(make([]int, rows)))
		for range steps {
			step(fed, false, rows)
		}
		made := must.Value(e.Imagine(prompt, rows, steps))(t)
		for range 3 {
			if made.Len() != fed.Len() || made.Rows() != fed.Rows() || made.Bytes() != fed.Bytes() {
				t.Errorf("%s, %s: %d positions of %d rows in %d bytes, one that was fed has %d of %d in %d", c.model, c.strategy,
					made.Len(), made.Rows(), made.Bytes(), fed.Len(), fed.Rows(), fed.Bytes())
			}
			step(fed, false, rows)
			step(made, false, rows)
		}
		made.Release()
		fed.Release()
		if cross != nil {
			cross.Release()
		}
		if self, _, enc, _ := e.Memory(); self+enc != 0 {
			t.Errorf("%s, %s: %d bytes stay", c.model, c.strategy, self+enc)
		}
		if _, err := e.Imagine(1<<24, 1, 0); err == nil {
			t.Errorf("%s, %s: a sequence larger than the cache", c.model, c.strategy)
		}
		if self, _, _, _ := e.Memory(); self != 0 {
			t.Errorf("%s, %s: %d bytes stay after an error", c.model, c.strategy, self)
		}
		g.Close()
	}
}
