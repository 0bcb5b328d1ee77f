package encoder

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/host/encode/folder"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
)

const encoders = "../../../models/encoders"

// expected is what sentence-transformers makes of the texts (models/encoders/export.py).
type expected struct {
	Texts      []string
	Query      string
	Embeddings map[string][][]float32
	Scores     struct {
		Sigmoid, Logits []float32
		Rank            []int
	}
}

func readExpected(t testing.TB) *expected {
	t.Helper()
	var e expected
	data, err := os.ReadFile(filepath.Join(encoders, "expected.json"))
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	if err != nil || len(e.Texts) < 10 || len(e.Embeddings) < 11 || len(e.Scores.Logits) != len(e.Texts) {
		t.Fatalf("expected.json: %d texts, %v", len(e.Texts), err)
	}
	return &e
}

// options are those with the plugins, or without.
func options(t testing.TB, plugins bool) Options {
	t.Helper()
	l, err := ort.FindAndOpen("")
	must.Succeed(t, err)
	o := Options{Library: l}
	if plugins {
		if o.Plugins, err = loaded.Load(nil, true); err != nil {
			t.Fatal(err)
		}
		o.Plan.Force = true
	}
	return o
}

// copied is a copy of one of models/encoders, with files put in or, where they are "", taken out.
func copied(t testing.TB, name string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	must.Succeed(t, os.CopyFS(dir, os.DirFS(filepath.Join(encoders, name))))
	for file, content := range files {
		path := filepath.Join(dir, file)
		if content == "" {
			must.Succeed(t, os.Remove(path))
			continue
		}
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Succeed(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return dir
}

// embed embeds texts of one caller, in batches together.
func embed(t testing.TB, e *Embedder, prompt string, texts []string) [][]float32 {
	t.Helper()
	calls := make([]*batch.Call[Row, Embedding], len(texts))
	for i, text := range texts {
		row, err := e.Row(t.Context(), text, As{Prompt: prompt})
		must.Succeed(t, err)
		if calls[i], err = e.Start(t.Context(), row, true); err != nil {
			t.Fatal(err)
		}
	}
	out := make([][]float32, len(texts))
	for i, c := range calls {
		made, err := c.Wait(t.Context())
		must.Succeed(t, err)
		out[i] = made.Dense
	}
	return out
}

// near reports numbers that agree as graft's answers do: 1e-5 + 1e-4 relative.
func near(a, b []float32) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x float32) bool { return x != x }) &&
		slices.EqualFunc(a, b, func(x, y float32) bool {
			return math.Abs(float64(x-y)) <= 1e-5+1e-4*math.Abs(float64(y))
		})
}

func modulesOf(kinds ...string) string {
	list := []map[string]any{{"path": "", "type": "sentence_transformers.models.Transformer"}}
	for _, kind := range kinds {
		list = append(list, map[string]any{"path": "x_" + kind, "type": "sentence_transformers.models." + kind})
	}
	data, _ := json.Marshal(list)
	return string(data)
}

func read(t testing.TB, path string) string {
	t.Helper()
	data := must.Value(os.ReadFile(path))(t)
	return string(data)
}

// pooled is the config.json of a Pooling of these modes alone.
func pooled(more string, modes ...string) string {
	config := `{"word_embedding_dimension": 32`
	for key, mode := range map[string]string{"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max",
		"mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
		"weightedmean_tokens":  "weightedmean", "lasttoken": "lasttoken"} {
		on, _ := json.Marshal(slices.Contains(modes, mode))
		config += `, "pooling_mode_` + key + `": ` + string(on)
	}
	return config + more + "}"
}

// TestEqualToSentenceTransformers embeds texts as every kind of configuration says, alone and together, with graft's
// operators and without, and compares the vectors with those of sentence-transformers.
func TestEqualToSentenceTransformers(t *testing.T) {
	want := readExpected(t)
	type form struct {
		name   string
		files  map[string]string
		prompt string
		change func(*Options)
	}
	forms := []form{
		{"normalize", nil, "", nil},
		{"query", nil, "query", nil},
		{"query",
			map[string]string{"config_sentence_transformers.json": `{"prompts": {"query": "query: "}, "default_prompt_name": "query"}`}, "", nil},
		{"cls+max+mean+weightedmean",
			map[string]string{"modules.json": modulesOf("Pooling"),
				"x_Pooling/config.json": pooled("", "cls", "max", "mean", "weightedmean")}, "", nil},
		{"query without prompt", map[string]string{"modules.json": modulesOf("Pooling"),
			"x_Pooling/config.json": pooled(`, "include_prompt": false`, "mean")}, "query", nil},
		{"dense", map[string]string{"modules.json": modulesOf("Pooling", "Dropout", "Dense", "Normalize"),
			"x_Pooling/config.json":     pooled("", "mean"),
			"x_Dense/config.json":       read(t, encoders+"/dense/config.json"),
			"x_Dense/model.safetensors": read(t, encoders+"/dense/model.safetensors")}, "", nil},
		{"mean", map[string]string{"modules.json": ""}, "", func(o *Options) { o.Pooling = []string{"mean"} }},
		{"normalize", map[string]string{"modules.json": ""}, "",
			func(o *Options) { o.Pooling, o.Normalize = []string{"mean"}, true }},
		{"cls", map[string]string{"modules.json": modulesOf("Pooling"), "x_Pooling/config.json": pooled("", "mean")}, "",
			func(o *Options) { o.Pooling = []string{"cls"} }},
	}
	for _, mode := range folder.Modes {
		forms = append(forms, form{mode,
			map[string]string{"modules.json": modulesOf("Pooling"), "x_Pooling/config.json": pooled("", mode)}, "", nil})
	}
	for _, plugins := range []bool{false, true} {
		o := options(t, plugins)
		for _, f := range forms {
			own := o
			if f.change != nil {
				f.change(&own)
			}
			e := must.Value(OpenEmbedder(t.Context(), copied(t, "embedder", f.files), own))(t, f.name)
			together := embed(t, e, f.prompt, want.Texts)
			for i, text := range want.Texts {
				alone := embed(t, e, f.prompt, []string{text})[0]
				for how, got := range map[string][]float32{"alone": alone, "with others": together[i]} {
					if !near(got, want.Embeddings[f.name][i]) {
						t.Fatalf("%s, plugins %v, %s: %+q\nis %v\nwant %v", f.name, plugins, how, text, got, want.Embeddings[f.name][i])
					}
				}
			}
			must.Equal(t, e.MaxTokens(""), 48)
			e.Close()
		}
	}
}

func TestScoresEqualCrossEncoder(t *testing.T) {
	want := readExpected(t)
	config := read(t, encoders+"/reranker/config.json")
	const stated = `"torch.nn.modules.activation.Sigmoid"`
	for _, c := range []struct {
		name   string
		config string
		raw    bool
		want   []float32
	}{
		{"as the configuration says", config, false, want.Scores.Sigmoid},
		{"logits", config, true, want.Scores.Logits},
		{"Identity is configured", strings.Replace(config, stated, `"torch.nn.modules.linear.Identity"`, 1), false,
			want.Scores.Logits},
		{"nothing is configured", strings.Replace(config, `"activation_fn": `+stated+",", "", 1), false, want.Scores.Sigmoid},
		{"as releases before 4 configured it",
			strings.Replace(strings.Replace(config, `"activation_fn": `+stated+",", "", 1), "{",
				`{"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity",`, 1), false, want.Scores.Logits},
		{"logits of an unknown activation", strings.Replace(config, stated, `"mine.Cube"`, 1), true, want.Scores.Logits},
	} {
		for _, plugins := range []bool{false, true} {
			o := options(t, plugins)
			o.Raw = c.raw
			r, err := OpenReranker(t.Context(), copied(t, "reranker", map[string]string{"config.json": c.config}), o)
			must.Succeed(t, err, c.name)
			must.Equal(t, r.MaxTokens(), 64)
			var got []float32
			var calls []*batch.Call[Row, float32]
			for _, text := range want.Texts {
				row := must.Value(r.Row(t.Context(), want.Query, text))(t)
				call := must.Value(r.Start(t.Context(), row, true))(t)
				calls = append(calls, call)
			}
			for _, call := range calls {
				score := must.Value(call.Wait(t.Context()))(t)
				got = append(got, score)
			}
			if !near(got, c.want) {
				t.Errorf("%s, plugins %v: %v\nwant %v", c.name, plugins, got, c.want)
			}
			r.Close()
		}
	}
}

// TestOutOfRange: a token that the model has no row for is the error of its own text, in ONNX Runtime's words; texts in
// the same batch have their vectors.
func TestOutOfRange(t *testing.T) {
	want := readExpected(t)
	for _, plugins := range []bool{false, true} {
		o := options(t, plugins)
		o.Batch.MaxDelay = 50 * time.Millisecond // so that they are in one batch; if not, all the same must hold
		e := must.Value(OpenEmbedder(t.Context(), filepath.Join(encoders, "embedder"), o))(t)
		good := must.Value(e.Row(t.Context(), want.Texts[5], As{}))(t)
		bad := good
		bad.IDs = slices.Clone(good.IDs)
		bad.IDs[1] = 99999
		var calls []*batch.Call[Row, Embedding]
		for _, row := range []Row{good, bad, good, good, good, good, good, good} {
			c := must.Value(e.Start(context.Background(), row, false))(t)
			calls = append(calls, c)
		}
		for i, c := range calls {
			got, err := c.Wait(context.Background())
			switch {
			case i == 1 && (err == nil || !strings.Contains(err.Error(), "indices element out of data bounds, idx=99999 must "+
				"be within the inclusive range [-1100,1099]")):
				t.Errorf("plugins %v: found %v, want ONNX Runtime's message", plugins, err)
			case i != 1 && (err != nil || !near(got.Dense, want.Embeddings["normalize"][5])):
				t.Errorf("plugins %v: the text beside it: %v, %v", plugins, got, err)
			}
		}
		e.Close()
	}
}
