package decode

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/decode/engine"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/models"
)

func TestParseAttention(t *testing.T) {
	for _, c := range []struct {
		text  string
		want  Attention
		found string // the error
	}{
		{text: "flash-decode", want: Attention{Self: plan.KeepKeysAndValues, Cross: plan.KeepKeysAndValues}},
		{text: "slim-attention", want: Attention{Self: plan.KeepKeys, Cross: plan.KeepKeys}},
		{text: "slim-inputs", want: Attention{Self: plan.KeepInputs, Cross: plan.KeepLatent}},
		{text: "slim-hybrid", want: Attention{Self: plan.KeepKeys, Cross: plan.KeepFirstKeys}},
		{text: "cross=el-attention", want: Attention{Cross: plan.KeepLatent}},
		{text: "self=slim-keys:skip=1e-3,cross=slim-hybrid:float16", want: Attention{Self: plan.KeepKeys, Cross: plan.KeepFirstKeys, Skip: 1e-3, Storage: plan.Float16}},
		{text: "self=flash-decode:bfloat16", want: Attention{Self: plan.KeepKeysAndValues, Storage: plan.BFloat16}}, // of cross attention
		{text: "flash-decode:float32", want: Attention{Self: plan.KeepKeysAndValues, Cross: plan.KeepKeysAndValues, Storage: plan.Float32}},
		{text: "", found: `"" is no way of keeping a cache, needed is one of [flash-decode el-attention slim-keys slim-inputs slim-hybrid]`},
		{text: "slim-keys,", found: `"" is no way of keeping a cache, needed is one of [flash-decode el-attention slim-keys slim-inputs slim-hybrid]`},
		{text: "plain", found: "an engine keeps nothing as the model was exported; compare with --baseline"},
		{text: "self=slim-hybrid", found: "self attention cannot keep what slim-hybrid does"},
		{text: "cross=slim-inputs", found: "cross attention cannot keep what slim-inputs does"},
		{text: "both=slim-keys", found: `"both" is no kind of attention, needed is self or cross`},
		{text: "slim-keys,self=slim-inputs", found: "slim-keys and slim-inputs are both named for the same layers"},
		{text: "cross=slim-keys,cross=el-attention", found: "slim-keys and el-attention are both named for the same layers"},
		{text: "slim-keys:float8", found: `"float8" is not understood, needed is float32, float16, bfloat16 or skip=P`},
		{text: "slim-keys:skip=1", found: `skip is "1", needed is a probability below 1`},
		{text: "slim-keys:skip=NaN", found: `skip is "NaN", needed is a probability below 1`},
		{text: "slim-keys:skip=", found: `skip is "", needed is a probability below 1`},
		{text: "el-attention:skip=0.1", found: "skip leaves out values of keys that are kept alone, and neither el-attention nor el-attention keeps those"},
		{text: "flash-decode:float16", found: "flash-decode keeps keys and values, which are float32 always, not float16"},
	} {
		got, err := ParseAttention(c.text, nil)
		switch {
		case c.found != "" && (err == nil || err.Error() != c.found):
			t.Errorf("%q: found %v, want %s", c.text, err, c.found)
		case c.found == "" && err != nil:
			t.Errorf("%q: %v", c.text, err)
		case c.found == "" && (got.Self != c.want.Self || got.Cross != c.want.Cross || got.Storage != c.want.Storage || got.Skip != c.want.Skip):
			t.Errorf("%q: %+v, want %+v", c.text, got, c.want)
		}
	}
}

// The machine is measured where there is a choice, or when its figures are asked for.
func TestMachineIsMeasuredForAChoice(t *testing.T) {
	user := os.Getenv("XDG_CACHE_HOME")
	for _, c := range []struct {
		name      string
		attention Attention
		explain   bool
		measured  bool
	}{
		{"open", Attention{}, false, true},
		{"one kind is open", Attention{Self: plan.KeepKeysAndValues}, false, true},
		{"named", Attention{Self: plan.KeepKeysAndValues, Cross: plan.KeepKeysAndValues}, false, false},
		{"named, to be explained", Attention{Self: plan.KeepKeysAndValues, Cross: plan.KeepKeysAndValues}, true, true},
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

// As many samples as memory holds are planned for as many as may come to be under way.
func TestPlanOfAutoBatch(t *testing.T) {
	for _, c := range []struct{ batch, beams, want int }{{AutoBatch, 4, 32}, {AutoBatch, 0, 16}, {5, 4, 5}, {0, 0, 8}} {
		g := opened(t, "bart", Options{CacheBytes: 64 << 20, Batch: c.batch, Attention: Attention{Beams: c.beams}})
		for _, x := range g.Choices() {
			if got := x.Kind.Range.Batch; got != [2]int64{1, int64(c.want)} {
				t.Errorf("batch %d, %d beams: %s attention is planned for %v samples, want up to %d", c.batch, c.beams, x.Kind.Layers.Type, got, c.want)
			}
		}
	}
}

// What the pools hold is not promised twice: no sample is begun that could not end.
func TestSamplesEndInTheMemoryThatIsLeft(t *testing.T) {
	const length, more = 124, 110
	g := opened(t, "bart", Options{Batch: 2, CacheBytes: 64 << 20, Attention: Attention{Self: plan.KeepKeysAndValues, Cross: plan.KeepKeysAndValues}})
	set, err := json.Marshal(map[string]any{"num_beams": 1, "max_new_tokens": more, "eos_token_id": []int{}, "forced_eos_token_id": nil})
	if err != nil {
		t.Fatal(err)
	}
	o, err := g.SearchWith(set)
	if err != nil {
		t.Fatal(err)
	}
	inputs := prompts(3)
	for i, in := range inputs {
		in.Tokens = make([]int32, length)
		for j := range in.Tokens {
			in.Tokens[j] = int32(5 + (i+j)%80)
		}
	}
	own, encoded := g.engine.Need(1, 1, more), g.engine.EncodedBytes(length, 1)
	for _, c := range []struct {
		bytes int64
		most  int
	}{{own + encoded + max(own, encoded), 1}, {2 * (own + encoded), 2}} {
		g := opened(t, "bart", Options{Batch: 2, CacheBytes: c.bytes, Attention: g.options.Attention})
		steps := g.advance
		most := 0
		g.advance = func(ctx context.Context, feeds []engine.Feed) (*engine.Scores, error) {
			most = max(most, len(feeds))
			scores, err := steps(ctx, feeds)
			if err != nil {
				t.Errorf("%d bytes, %d samples: %v", c.bytes, len(feeds), err)
			}
			return scores, err
		}
		if _, err := tokens(t, g, o, inputs); err != nil {
			t.Error(err)
		}
		if most != c.most || g.Batch() != 2 {
			t.Errorf("%d bytes: %d samples at once, want %d; the batch is %d", c.bytes, most, c.most, g.Batch())
		}
	}
}

// Plugins that the caller rules out are used neither by choice nor in place of another.
func TestPluginsThatAreRuledOut(t *testing.T) {
	for _, c := range []struct {
		plan  plan.Options
		keeps []plan.Keep // what is used at all
	}{
		{plan.Options{Except: []string{"el-attention", "slim-attention"}}, []plan.Keep{plan.KeepKeysAndValues}},
		{plan.Options{Plugins: []string{"packed-linear"}}, []plan.Keep{plan.KeepKeysAndValues}},
		{plan.Options{Except: []string{"el-attention"}}, []plan.Keep{plan.KeepKeys, plan.KeepInputs, plan.KeepFirstKeys}},
	} {
		g := opened(t, "bart", Options{CacheBytes: 64 << 20, Plan: c.plan, Attention: Attention{Prefer: plan.PreferMemory}})
		for _, served := range g.engine.Served() {
			if !slices.Contains(c.keeps, served.Keep) {
				t.Errorf("%+v: %s keeps %s", c.plan, served.Node, served.Keep)
			}
		}
	}
	dir := t.TempDir()
	if err := models.Small("bart", dir); err != nil {
		t.Fatal(err)
	}
	o := Options{CacheBytes: 64 << 20, Plan: plan.Options{Except: []string{"el-attention"}}, Attention: Attention{Cross: plan.KeepLatent}}
	load(t, &o)
	if _, err := Open(dir, o); err == nil || !strings.HasSuffix(err.Error(), ": cross attention is to keep what el-attention does, and el-attention is excepted") {
		t.Errorf("found %v", err)
	}
}
