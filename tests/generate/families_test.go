package generate

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/exported"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/sessions"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/internal/sample"
	"github.com/opgraft/graft/models"
)

// TestFamiliesGiveHuggingFacesTokens generates the cases of each family with the engine and with the model as
// exported, and one of them with the whole sequence in a patched session of the decoder.
func TestFamiliesGiveHuggingFacesTokens(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	if n := len(Families()); n < 35 {
		t.Errorf("%d families, want at least 35", n)
	}
	for i, f := range models.SmallFolders() {
		if !f.Family || !sample.Has(i, 2) {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			e := must.Value(Load(f.Model))(t)
			if !e.Brief || len(e.Cases) < 4 {
				t.Fatalf("%d cases, brief: %t", len(e.Cases), e.Brief)
			}
			if testing.Short() {
				e.Cases = few(e.Cases)
			}
			dir := t.TempDir()
			must.Succeed(t, models.Small(f.Name, dir))
			g, err := decode.Open(t.Context(), dir, decode.Options{Library: l, Plugins: set, CacheBytes: 64 << 20, Threads: 1})
			must.Succeed(t, err)
			defer g.Close()
			compare(t, g, e)
			if slices.Contains(wideHeads, f.Name) {
				return
			}
			x, err := exported.Open(t.Context(), dir, decode.Options{Library: l, Plugins: set, Batch: 2, Threads: 1})
			if strings.HasSuffix(f.Name, "-whole") {
				if !errors.Is(err, exported.ErrNoPast) {
					t.Error(err)
				}
				return
			}
			must.Succeed(t, err)
			defer x.Close()
			compareBy(t, x, e, func(object []byte) (search.Options, error) { return decode.SearchOf(dir, x.Config(), object) })
			// Sessions leave the attention of genai's as it is; graphs of Transformers' exporter are patched in tests/parity.
			if !strings.HasSuffix(f.Name, "-genai") && !strings.Contains(f.Name, "-exporter") {
				patched(t, l, set, f.Name, e)
			}
		})
	}
}

// few are the first cases of each kind of search.
func few(cases []Case) (list []Case) {
	const each = 6
	seen := map[string]int{}
	for _, c := range cases {
		if seen[c.Kind]++; seen[c.Kind] <= each {
			list = append(list, c)
		}
	}
	return list
}

// wideHeads are folders that ONNX Runtime does not run: its GroupQueryAttention turns heads of 16, 32 and so on, and
// these have 24.
var wideHeads = []string{"qwen3-genai"}

// readsPrompts are models whose decoder takes what it is fed without a past for a prompt: what follows it cannot be
// fed with it.
var readsPrompts = []string{"unilm"}

// patched continues the first greedy case with sessions in which operators stand.
func patched(t *testing.T, l *ort.Library, set *loaded.Set, name string, e *Expected) {
	t.Helper()
	attention := 0
	patcher := &sessions.Patcher{Plugins: set.Plugins, Options: set.Plan(plan.Options{Force: true})}
	r := newRecomputer(t, l, name, func(r session.Request) (*session.Patch, error) {
		p, err := patcher.Plan(t.Context(), r)
		if err != nil {
			return nil, err
		}
		for _, c := range p.Analysis.Plan.Choices {
			if c.Operator != nil && c.Block != nil && c.Block.Attention != nil {
				attention++
			}
		}
		return p.Patch()
	})
	i := slices.IndexFunc(e.Cases, func(c Case) bool { return c.Kind == "greedy" })
	tokens := 10
	if slices.Contains(readsPrompts, e.Model) {
		tokens = 1
	}
	want := e.Cases[i].Sequences[0]
	got := must.Value(r.greedy(t.Context(), e, e.Cases[i], min(tokens, len(want))))(t)
	got = got[:max(1, len(got)-1)] // the last may be one that the folder's configuration forces
	must.Equal(t, got, want[:len(got)])
	if attention == 0 {
		t.Error("patched: no operator stands in place of attention")
	}
}

// TestOneGraphOfTransformers: the graph for steps of several tokens alone begins with a past of no tokens, whose heads
// stand in no input: the exporter calls them "2".
func TestOneGraphOfTransformers(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	dir := t.TempDir()
	must.Succeed(t, models.Small("qwen2-exporter-fused", dir))
	must.Succeed(t, os.Rename(filepath.Join(dir, "decode.onnx"), filepath.Join(dir, "model.onnx")))
	for _, other := range []string{"prefill.onnx", "export.json"} {
		must.Succeed(t, os.Remove(filepath.Join(dir, other)))
	}
	g := must.Value(exported.Open(t.Context(), dir, decode.Options{Library: l, Plugins: set, Batch: 2, Threads: 1}))(t)
	defer g.Close()
	e := must.Value(Load("qwen2"))(t)
	e.Cases = few(e.Cases)
	compareBy(t, g, e, func(object []byte) (search.Options, error) { return decode.SearchOf(dir, g.Config(), object) })
}
