package decode_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plan/tune"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// A table makes keys alone look fastest, which one layer's weights rule out: the planner
// then chooses among the rest, and its choice holds in every layer.
func TestPlanIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	must.Succeed(t, models.Small("bart", dir))
	for _, file := range []string{"decoder_with_past_model.onnx", "decoder_model.onnx"} {
		edit(t, filepath.Join(dir, file), func(g *onnx.Graph) { singular(t, g, "layers.1/self_attn/k_proj") })
	}
	user := os.Getenv("XDG_CACHE_HOME")
	for _, c := range []struct {
		attention prepare.Attention
		want      plan.Strategy
		refused   string
	}{
		{prepare.Attention{}, plan.HiddenStates, "singular"},
		{prepare.Attention{Prefer: plan.PreferMemory}, plan.Keys, ""},
	} {
		t.Run(string(c.want), func(t *testing.T) {
			g := open(t, dir, func(o *decode.Options) {
				o.Attention = c.attention
				t.Setenv("XDG_CACHE_HOME", t.TempDir())
				table := &tune.Table{SchemaVersion: 3, Machine: tune.Identify(o.Plugins.Plugins, plan.Implementations{}, 0),
					Layers: plan.Layers{Type: "self", Layers: 2, Heads: 4, KVHeads: 4, HeadSize: 12, ValueSize: 12, Width: 48,
						Positions: "learned"},
					Axes: tune.Axes{Keys: []int64{1, 4}, Own: []int64{0, 64}, Beams: []int64{1, 8}, Batch: []int64{1, 8}}}
				for strategy, seconds := range map[plan.Strategy]float64{plan.KeysValues: 1, plan.Keys: 0.1, plan.HiddenStates: 0.5,
					plan.PromptHiddenStates: 2} {
					table.Rows = append(table.Rows,
						tune.Row{Strategy: strategy, Implementation: plan.Implementations{}.Among(o.Plugins.Manifests()).Of(strategy),
							Seconds: slices.Repeat([]float64{seconds}, table.Axes.Size())})
				}
				must.Value(table.Save(""))(t)
			})
			choice := g.Choices()[slices.IndexFunc(g.Choices(),
				func(x plan.CacheChoice) bool { return x.Kind.Layers.Type == "self" })]
			must.Equal(t, choice.Candidate.Strategy, c.want, choice.Candidate, choice.Reason)
			for _, o := range choice.Options {
				if o.Candidate.Strategy == plan.Keys && (o.Refused == "") != (c.refused == "") ||
					!strings.Contains(o.Refused, c.refused) && o.Candidate.Strategy == plan.Keys {
					t.Errorf("%s is refused because %q, want %q", o.Name, o.Refused, c.refused)
				}
			}
			for _, x := range g.Engine().Strategies() {
				if c.refused != "" && x.Type == "self" && (x.Strategy != c.want || x.Reason != "") {
					t.Errorf("%s uses %s: %s", x.Node, x.Strategy, x.Reason)
				}
			}
			t.Setenv("XDG_CACHE_HOME", user) // which has the runtime
			likeExported(t, g, dir)
		})
	}
}
