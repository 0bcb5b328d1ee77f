package engine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/fold"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// TestCachesOfEveryType: logits over caches of fewer bits are near those over float32, after a prompt and after
// tokens that read what was stored of it. They are as near as the type has digits: halves of 11 bits lose an eighth
// of what those of 8 bits lose.
func TestCachesOfEveryType(t *testing.T) {
	l, set := open(t)
	folds := fold.At(t.TempDir(), nil)
	for _, c := range []struct {
		model       string
		self, cross plan.Strategy
		loss        float64 // bounds what bfloat16 moves logits by, as a share of their spread
	}{
		{"gpt2", plan.PromptHiddenStates, "", 0.02},
		{"gpt2", plan.HiddenStates, "", 0.02},
		{"bart", plan.HiddenStates, plan.PromptHiddenStates, 0.1},
		{"t5", plan.PromptHiddenStates, plan.PromptHiddenStates, 0.1},
		{"whisper", plan.KeysValues, plan.PromptHiddenStates, 0.4},
	} {
		t.Run(strings.Join([]string{c.model, string(c.self), string(c.cross)}, " "), func(t *testing.T) {
			dir := t.TempDir()
			must.Succeed(t, models.Small(c.model, dir))
			logits := func(s plan.Storage) [][]float32 {
				g := must.Value(decode.Open(t.Context(), dir,
					decode.Options{Library: l, Plugins: set, CacheBytes: 64 << 20, Folds: folds,
						Attention: prepare.Attention{Self: c.self, Cross: c.cross, Storage: s}}))(t)
				defer g.Close()
				for _, kind := range []struct {
					name string
					is   plan.Strategy
				}{{"self", c.self}, {"cross", c.cross}} {
					if kind.is != "" && !slices.ContainsFunc(g.Engine().Strategies(),
						func(x plan.LayerStrategy) bool { return x.Type == kind.name && x.Strategy == kind.is }) {
						t.Fatalf("no layer of %s attention stores %s in %s: %+v", kind.name, kind.is, s, g.Engine().Strategies())
					}
				}
				return scores(t, g, 7)
			}
			want, lost := logits(plan.Float32), map[plan.Storage]float64{}
			for _, s := range []plan.Storage{plan.Float16, plan.BFloat16, plan.Int8} {
				lost[s], _ = distance(logits(s), want)
			}
			t.Logf("shares of the spread of logits: %v", lost)
			if x := lost[plan.BFloat16]; x == 0 || x > c.loss {
				t.Errorf("bfloat16 moves logits by %.2g of their spread, want at most %g, and something", x, c.loss)
			}
			if x := lost[plan.Float16]; x == 0 || x > lost[plan.BFloat16]/4 {
				t.Errorf("float16 moves logits by %.2g of their spread, bfloat16 by %.2g: want at most a quarter of it, and "+
					"something", x, lost[plan.BFloat16])
			}
			if x := lost[plan.Int8]; x == 0 || x > 8*lost[plan.BFloat16] {
				t.Errorf("int8 moves logits by %.2g of their spread, bfloat16 by %.2g: want at most eight times as much, and "+
					"something", x, lost[plan.BFloat16])
			}
		})
	}
}

// TestCacheOfATypeThatIsNone: a type that is none is one error, before anything is opened; so is one that contradicts
// the attention.
func TestCacheOfATypeThatIsNone(t *testing.T) {
	for text, want := range map[string]plan.Storage{"bf16": plan.BFloat16, "fp16": plan.Float16, "float16": plan.Float16,
		"int8": plan.Int8, "float32": plan.Float32} {
		must.Equal(t, must.Value(plan.ParseStorage(text))(t, text), want, text)
	}
	if _, err := plan.ParseStorage("int4"); err == nil ||
		err.Error() != `"int4" is no type of a cache, needed is float32, bf16, fp16 or int8` {
		t.Errorf("int4: %v", err)
	}
	a := prepare.Attention{Storage: plan.Float16}
	must.FailExactly(t, a.Cache(plan.Int8), "the attention is to store float16, and the cache int8")
	if err := a.Cache(plan.Float16); err != nil || a.Storage != plan.Float16 {
		t.Errorf("one type said twice: %v", err)
	}
}
