package decode

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// The machine is measured where there is a choice, or when its figures are wanted.
func TestMachineIsMeasuredForAChoice(t *testing.T) {
	user := os.Getenv("XDG_CACHE_HOME")
	for _, c := range []struct {
		name      string
		attention prepare.Attention
		explain   bool
		measured  bool
	}{
		{"open", prepare.Attention{}, false, true},
		{"one kind is open", prepare.Attention{Self: plan.KeysValues}, false, true},
		{"named", prepare.Attention{Self: plan.KeysValues, Cross: plan.KeysValues}, false, false},
		{"named, to be explained", prepare.Attention{Self: plan.KeysValues, Cross: plan.KeysValues}, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			o := Options{CacheBytes: 64 << 20, Attention: c.attention, Explain: c.explain}
			load(t, &o)
			t.Setenv("XDG_CACHE_HOME", folder)
			openSmall(t, "bart", o)
			t.Setenv("XDG_CACHE_HOME", user)
			if _, err := os.Stat(filepath.Join(folder, "graft", "machine.json")); (err == nil) != c.measured {
				t.Errorf("figures of the machine: %v", err)
			}
		})
	}
}

// As many requests as memory holds are planned for as many as may come to be in flight.
func TestPlanOfAutoBatch(t *testing.T) {
	for _, c := range []struct{ batch, beams, want int }{{AutoBatch, 4, 32}, {AutoBatch, 0, 16}, {5, 4, 5}, {0, 0, 8}} {
		g := opened(t, "bart", Options{CacheBytes: 64 << 20, Batch: c.batch, Attention: prepare.Attention{Beams: c.beams}})
		for _, x := range g.Choices() {
			if got := x.Kind.Range.Batch; got != [2]int64{1, int64(c.want)} {
				t.Errorf("batch %d, %d beams: %s attention is planned for %v requests, want up to %d", c.batch, c.beams,
					x.Kind.Layers.Type, got, c.want)
			}
		}
	}
}

// What the pools hold is not promised twice: no request is started that could not end.
func TestRequestsEndInTheMemoryThatIsLeft(t *testing.T) {
	const length, more = 124, 110
	g := opened(t, "bart", Options{Batch: 2, CacheBytes: 64 << 20,
		Attention: prepare.Attention{Self: plan.KeysValues, Cross: plan.KeysValues}})
	set := must.Value(json.Marshal(
		map[string]any{"num_beams": 1, "max_new_tokens": more, "eos_token_id": []int{}, "forced_eos_token_id": nil}))(t)
	o := must.Value(g.SearchWith(set))(t)
	inputs := prompts(3)
	for i, in := range inputs {
		in.Tokens = make([]int32, length)
		for j := range in.Tokens {
			in.Tokens[j] = int32(5 + (i+j)%80)
		}
	}
	own, encoded := g.engine.Need(1, 1, more), g.engine.EncodedBytes(length, 1)
	for _, c := range []struct {
		bytes   int64
		largest int
	}{{own + encoded + max(own, encoded), 1}, {2 * (own + encoded), 2}} {
		g := opened(t, "bart", Options{Batch: 2, CacheBytes: c.bytes, Attention: g.options.Attention})
		steps := g.advance
		largest := 0
		g.advance = func(ctx context.Context, feeds []engine.Feed) (*engine.Scores, error) {
			largest = max(largest, len(feeds))
			scores, err := steps(ctx, feeds)
			if err != nil {
				t.Errorf("%d bytes, %d requests: %v", c.bytes, len(feeds), err)
			}
			return scores, err
		}
		must.Value(tokens(t, g, o, inputs))(t)
		if largest != c.largest || g.Batch() != 2 {
			t.Errorf("%d bytes: %d requests at once, want %d; the batch is %d", c.bytes, largest, c.largest, g.Batch())
		}
	}
}

// Plugins that the caller rules out are used neither by choice nor in place of another.
func TestPluginsThatAreRuledOut(t *testing.T) {
	for _, c := range []struct {
		plan plan.Options
		used []plan.Strategy // by any layer
	}{
		{plan.Options{Except: []string{"el-attention", "slim-attention"}}, []plan.Strategy{plan.KeysValues}},
		{plan.Options{Plugins: []string{"packed-linear"}}, []plan.Strategy{plan.KeysValues}},
		{plan.Options{Except: []string{"el-attention"}}, []plan.Strategy{plan.Keys, plan.HiddenStates, plan.FirstLayerKeys}},
	} {
		g := opened(t, "bart", Options{CacheBytes: 64 << 20, Plan: c.plan,
			Attention: prepare.Attention{Prefer: plan.PreferMemory}})
		for _, layer := range g.engine.Strategies() {
			if !slices.Contains(c.used, layer.Strategy) {
				t.Errorf("%+v: %s uses %s", c.plan, layer.Node, layer.Strategy)
			}
		}
	}
	dir := t.TempDir()
	must.Succeed(t, models.Small("bart", dir))
	o := Options{CacheBytes: 64 << 20, Plan: plan.Options{Except: []string{"el-attention"}},
		Attention: prepare.Attention{Cross: plan.PromptHiddenStates}}
	load(t, &o)
	if _, err := Open(t.Context(), dir, o); err == nil ||
		!strings.HasSuffix(err.Error(), ": cross attention is to use prompt_hidden_states, and el-attention is excepted") {
		t.Errorf("found %v", err)
	}
}
