package decode_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// plainDecode is the example's folder: an operator over keys and values.
const plainDecode = "../../../build/examples/plain-decode"

// loadedFrom loads the plugins of these folders alone.
func loadedFrom(t *testing.T, folders ...string) *loaded.Set {
	t.Helper()
	path, data := os.Getenv("GRAFT_PLUGIN_PATH"), os.Getenv("XDG_DATA_HOME")
	t.Setenv("GRAFT_PLUGIN_PATH", "")
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	set, err := loaded.Load(folders, true)
	if err != nil || len(set.Plugins) != len(folders) {
		t.Fatalf("%v: run make plugins", err)
	}
	t.Setenv("GRAFT_PLUGIN_PATH", path)
	t.Setenv("XDG_DATA_HOME", data)
	return set
}

// built are the folders of plugins that were just built.
func built(names ...string) (folders []string) {
	for _, name := range names {
		folders = append(folders, filepath.Join("../../../build/plugins", name))
	}
	return folders
}

// Where graft's own operator over keys and values is not installed, a stranger's that
// reads them is used without being named, and gives the tokens of the model as exported.
func TestStrangersOperatorAlone(t *testing.T) {
	for _, c := range []struct {
		model  string
		others []string
		cross  plan.Strategy
	}{
		{"gpt2", nil, ""},
		{"gpt2", []string{"packed-linear", "logits-top-k"}, ""},
		// which plain-decode has no operator to store for
		{"bart", []string{"el-attention", "packed-linear"}, plan.PromptHiddenStates},
	} {
		dir := filepath.Join(t.TempDir(), c.model)
		must.Succeed(t, models.Small(c.model, dir))
		alone := loadedFrom(t, append(built(c.others...), plainDecode)...)
		g := open(t, dir, func(o *decode.Options) {
			o.Plugins, o.ReferenceSelector = alone, true
			o.Attention.Self = plan.KeysValues
		})
		for _, s := range g.Engine().Strategies() {
			if s.Type == "self" && (s.Plugin != "plain-decode" || s.Strategy != plan.KeysValues) ||
				s.Type == "cross" && s.Strategy != c.cross {
				t.Errorf("%s: %+v", c.model, s)
			}
		}
		if c.cross != "" {
			likeExported(t, g, dir)
			continue
		}
		own := open(t, dir, func(o *decode.Options) { o.Attention.Self = plan.KeysValues })
		o := g.Search()
		o.NumBeams, o.MaxNewTokens = 3, 12
		inputs := func() []*decode.Input {
			return []*decode.Input{{Tokens: []int32{5, 6, 7, 8, 9}}, {Tokens: []int32{11, 12}},
				{Tokens: []int32{9, 30, 7, 21, 14, 6, 40}}}
		}
		a, b := run(t, own, o, inputs()), run(t, g, o, inputs())
		for i := range a {
			if !slices.EqualFunc(a[i].Hypotheses, b[i].Hypotheses,
				func(x, y search.Hypothesis) bool { return slices.Equal(x.Tokens, y.Tokens) }) {
				t.Errorf("%s with %v, input %d: %v with flash-decode, %v with plain-decode", c.model, c.others, i, a[i].Hypotheses,
					b[i].Hypotheses)
			}
		}
	}
}

// What a stranger's manifest says of its operator's cost is what the planner predicts
// and chooses by.
func TestStrangersCost(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	dir := filepath.Join(t.TempDir(), "gpt2")
	must.Succeed(t, models.Small("gpt2", dir))
	user := os.Getenv("XDG_CACHE_HOME")
	defer t.Setenv("XDG_CACHE_HOME", user)
	prepared := func(folder string) plan.CacheChoice {
		set := loadedFrom(t, append(built("slim-attention", "packed-linear"), folder)...)
		t.Setenv("XDG_CACHE_HOME", t.TempDir()) // without what was measured before
		g := must.Value(decode.Prepare(t.Context(), dir,
			decode.Options{Library: l, Plugins: set, CacheBytes: 64 << 20, Attention: prepare.Attention{Beams: 4}}))(t)
		defer g.Close()
		return g.Choices[0]
	}
	slow := t.TempDir()
	must.Succeed(t, os.CopyFS(slow, os.DirFS(plainDecode)))
	manifest := filepath.Join(slow, "plugin.yaml")
	text := must.Value(os.ReadFile(manifest))(t)
	changed := strings.Replace(string(text), "    kv_cache: {strategy: keys_values}\n",
		"    kv_cache: {strategy: keys_values}\n    cost: {bandwidth: 0.01, flops: 0.01, overhead_us: 900}\n", 1)
	if changed == string(text) {
		t.Fatal("the manifest declares no strategy")
	}
	must.Succeed(t, os.WriteFile(manifest, []byte(changed), 0o600))
	usual, costly := prepared(plainDecode), prepared(slow)
	if a, b := usual.Options[0].Largest.Model, costly.Options[0].Largest.Model; b < a+2*800e-6 {
		t.Errorf("the operator is predicted to take %g s, and %g s with another cost", a, b)
	}
	// What the usual cost leads to depends on what this machine was measured at.
	if costly.Candidate.Strategy == plan.KeysValues {
		t.Errorf("chose %s because %s, and with another cost %s because %s", usual.Candidate, usual.Reason, costly.Candidate,
			costly.Reason)
	}
}

// An operator of a stranger's that reads float32 alone cannot have a cache of another type, and says so before
// anything is opened.
func TestStrangersTypeOfCache(t *testing.T) {
	l, err := ort.FindAndOpen("")
	must.Succeed(t, err)
	dir := filepath.Join(t.TempDir(), "gpt2")
	must.Succeed(t, models.Small("gpt2", dir))
	set := loadedFrom(t, append(built("slim-attention", "packed-linear"), plainDecode)...)
	_, err = decode.Prepare(t.Context(), dir,
		decode.Options{Library: l, Plugins: set, CacheBytes: 64 << 20,
			Attention: prepare.Attention{Self: plan.KeysValues, Storage: plan.Int8}})
	want := "self attention is to store keys_values in int8, and PlainDecode of the plugin plain-decode reads float32 " +
		"alone: it has no attribute storage, needed operators that store it; leave the type of the cache out, or the plugin"
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	g := must.Value(decode.Prepare(t.Context(), dir,
		decode.Options{Library: l, Plugins: set, CacheBytes: 64 << 20,
			Attention: prepare.Attention{Self: plan.KeysValues, Storage: plan.Float32}}))(t)
	g.Close()
}

// An operator of a stranger's that takes no sinks runs no layers whose softmax counts some; and strategies that have
// none store keys and values there.
func TestStrangersSinks(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	dir := filepath.Join(t.TempDir(), "gpt-oss")
	must.Succeed(t, models.Small("gpt-oss-exporter", dir))
	prepared := func(self plan.Strategy, folders ...string) (*prepare.Generation, error) {
		return decode.Prepare(t.Context(), dir, decode.Options{Library: l, Plugins: loadedFrom(t, folders...),
			CacheBytes: 64 << 20, Attention: prepare.Attention{Self: self}})
	}
	_, err := prepared(plan.KeysValues, append(built("packed-linear"), plainDecode)...)
	want := "self attention is to store keys_values, and its softmax counts sinks, and PlainDecode of the plugin " +
		"plain-decode has no input sinks, needed an operator with that input; leave the plugin out, or choose another"
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	g := must.Value(prepared(plan.Keys, built("slim-attention", "flash-decode", "packed-linear")...))(t)
	defer g.Close()
	for _, layer := range g.Interface.Strategies {
		if layer.Strategy != plan.KeysValues || !strings.Contains(layer.Reason, "its softmax counts sinks") {
			t.Errorf("%s stores %s because %s", layer.Node, layer.Strategy, layer.Reason)
		}
	}
	must.Equal(t, len(g.Interface.Strategies), 2)
}
