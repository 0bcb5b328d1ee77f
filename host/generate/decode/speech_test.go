package decode_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/fold"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// The language is detected before the prompt is whole, with every KV-cache strategy, while
// other requests are in flight.
func TestLanguageIsDetectedWithEveryStrategy(t *testing.T) {
	dir := t.TempDir()
	must.Succeed(t, models.Small("whisper", dir))
	const multilingual = `{"decoder_start_token_id": 3, "eos_token_id": 297, "pad_token_id": 0, "is_multilingual": true,
		"no_timestamps_token_id": 40, "lang_to_id": {"<|en|>": 11, "<|de|>": 12, "<|fr|>": 13, "<|yue|>": 14},
		"task_to_id": {"transcribe": 20, "translate": 21}, "task": "translate", "max_new_tokens": 12, "num_beams": 3}`
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(multilingual), 0o600))
	folds := fold.At(t.TempDir(), nil)
	var want []decode.Output
	for _, strategy := range plan.StandardStrategies() {
		g := open(t, dir, func(o *decode.Options) {
			o.Attention, o.Folds, o.Batch = prepare.Attention{Self: strategy.Within("self"), Cross: strategy.Within("cross")},
				folds, 3
		})
		shape := g.Config().FeatureShape()
		var inputs []*decode.Input
		for i := range 5 {
			inputs = append(inputs, &decode.Input{Features: &engine.Features{Values: models.Normal(uint64(i), "features",
				int(shape[1]*shape[2])), Shape: shape}})
		}
		got := run(t, g, g.Search(), inputs)
		if want == nil {
			want = got
		}
		for i, out := range got {
			if out.Prompt != 4 || len(out.Hypotheses[0].Tokens) == 0 {
				t.Errorf("%s, input %d: a prompt of %d tokens, and %d new ones", strategy, i, out.Prompt,
					len(out.Hypotheses[0].Tokens))
			}
			for j, h := range out.Hypotheses {
				must.Equal(t, h.Tokens, want[i].Hypotheses[j].Tokens, strategy)
			}
		}
		if self, _, cross, _ := g.Engine().Memory(); self != 0 || cross != 0 {
			t.Errorf("%s: %d and %d bytes of cache are in use after the run", strategy, self, cross)
		}
	}
}
