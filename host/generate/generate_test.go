package generate_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/exported"
	"github.com/opgraft/graft/host/generate/pipeline"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

const g2p = "../../models/g2p"

// options are what folders are opened with.
func options(t *testing.T, batch int) decode.Options {
	t.Helper()
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	return decode.Options{Library: l, Plugins: set, Batch: batch, CacheBytes: 64 << 20}
}

func opened(t *testing.T, open func(context.Context, string, decode.Options) (*generate.Generator, error),
	o decode.Options) *generate.Generator {
	t.Helper()
	g := must.Value(open(t.Context(), g2p, o))(t)
	t.Cleanup(g.Close)
	return g
}

// list reads inputs from memory.
func list(inputs []string) func() (string, error) {
	i := -1
	return func() (string, error) {
		if i++; i >= len(inputs) {
			return "", io.EOF
		}
		return inputs[i], nil
	}
}

// results runs a generator over inputs.
func results(t *testing.T, g *generate.Generator, o search.Options, inputs []string,
	p pipeline.Options) ([]generate.Result, *generate.Summary) {
	t.Helper()
	var out []generate.Result
	summary, err := g.Run(t.Context(), o, list(inputs), func(r generate.Result) error { out = append(out, r); return nil },
		p)
	must.Succeed(t, err)
	if len(out) != len(inputs) {
		t.Fatalf("%d results for %d inputs", len(out), len(inputs))
	}
	return out, summary
}

// words are held-out words of many lengths.
func words(t *testing.T, n int) []string {
	t.Helper()
	data := must.Value(os.ReadFile(filepath.Join(g2p, "held_out.txt")))(t)
	var list []string
	for line := range strings.Lines(string(data)) {
		word, _, _ := strings.Cut(line, "\t")
		list = append(list, word)
	}
	return list[:n]
}

// The model as exported gives what the engine gives, in batches of equal length or
// one by one, at once or one thing after the other, and takes the same steps.
func TestExportedEqualsEngine(t *testing.T) {
	inputs := words(t, 40)
	inputs[7], inputs[20] = "", "\xff" // one of the special tokens alone, one that is refused
	engine := opened(t, generate.Open, options(t, 8))
	asExported := []*generate.Generator{opened(t, generate.OpenExported, options(t, 1)),
		opened(t, generate.OpenExported, options(t, 8))}
	for _, set := range []func(*search.Options){
		func(o *search.Options) { o.NumBeams = 4 },
		func(o *search.Options) { o.NumBeams = 1 },
		func(o *search.Options) {
			o.NumBeams, o.NumBeamGroups, o.DiversityPenalty, o.NumReturnSequences = 4, 2, 0.5, 2
		},
		func(o *search.Options) { o.NumBeams, o.DoSample, o.Seed = 1, true, 4 },
	} {
		o := engine.Search()
		set(&o)
		want, sum := results(t, engine, o, inputs, pipeline.Options{})
		for _, g := range asExported {
			batch := g.Batch()
			for _, sync := range []bool{false, true} {
				got, s := results(t, g, o, inputs, pipeline.Options{Sync: sync})
				for i := range want {
					if !sameSequences(want[i], got[i]) {
						t.Errorf("batch %d, sync %t, input %d: %+v, the engine gives %+v", batch, sync, i, got[i], want[i])
					}
				}
				if s.Steps != sum.Steps || s.Reorders != sum.Reorders || s.NewTokens != sum.NewTokens || s.Failed != 1 ||
					s.BatchSize != batch {
					t.Errorf("batch %d, sync %t: %+v, the engine's summary is %+v", batch, sync, *s, *sum)
				}
				if s.SelfCacheBytes < sum.SelfCacheBytes/8 || s.CrossCacheBytes == 0 {
					t.Errorf("batch %d: caches of %d and %d bytes", batch, s.SelfCacheBytes, s.CrossCacheBytes)
				}
			}
		}
	}
}

func sameSequences(a, b generate.Result) bool {
	return a.Index == b.Index && a.Error == b.Error &&
		slices.EqualFunc(a.Sequences, b.Sequences, func(x, y generate.Sequence) bool {
			return x.Text == y.Text && slices.Equal(x.Tokens, y.Tokens) && x.Ended == y.Ended
		})
}

// A run that continues another samples what one run would have sampled.
func TestFirstContinuesSampling(t *testing.T) {
	inputs := words(t, 30)
	for name, open := range map[string]func(context.Context, string, decode.Options) (*generate.Generator, error){
		"engine": generate.Open, "exported": generate.OpenExported,
	} {
		g := opened(t, open, options(t, 4))
		o := g.Search()
		o.NumBeams, o.DoSample, o.Seed, o.Temperature = 1, true, 9, 2
		whole, _ := results(t, g, o, inputs, pipeline.Options{})
		g.First = 11
		rest, _ := results(t, g, o, inputs[11:], pipeline.Options{})
		for i, r := range rest {
			if r.Index != i || !slices.Equal(r.Sequences[0].Tokens, whole[11+i].Sequences[0].Tokens) {
				t.Errorf("%s, input %d: %+v, in one run %+v", name, 11+i, r, whole[11+i])
			}
		}
	}
}

// A folder of a model that makes sound of text is refused for that, before anything else is looked for.
func TestModelsOfSoundAreRefused(t *testing.T) {
	for _, c := range []struct{ config, class string }{
		{`{"model_type": "speecht5", "architectures": ["SpeechT5ForTextToSpeech"], "vocab_size": 81}`,
			"SpeechT5ForTextToSpeech"},
		{`{"model_type": "vits", "vocab_size": 38}`, "VitsModel"},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"config.json": c.config, "model.onnx": ""} {
			must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
		_, err := generate.Open(t.Context(), dir, decode.Options{})
		must.Fail(t, err, "config.json: the model makes sound ("+c.class+"), needed one that makes text")
	}
}

func TestExportedRefusesDecoderWithoutPast(t *testing.T) {
	dir := t.TempDir()
	must.Succeed(t, models.Small("gpt2-no-past", dir))
	data, err := os.ReadFile(filepath.Join(g2p, "tokenizer.json"))
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), data, 0o644))
	_, err = generate.OpenExported(t.Context(), dir, options(t, 1))
	must.Fail(t, err, exported.ErrNoPast, "model.onnx: the decoder was exported without a past")
}
