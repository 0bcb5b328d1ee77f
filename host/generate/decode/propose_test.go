package decode

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opgraft/graft/host/generate/draft"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// paired opens a small model with another of the same tokens as its draft model, at fixed prices, with which long
// drafts pay.
func paired(t *testing.T, model, small string, o Options) *Generator {
	t.Helper()
	folder := t.TempDir()
	must.Succeed(t, models.Small(small, folder))
	o.Draft = DraftModel{Folder: folder}
	g := opened(t, model, o)
	cheap(g)
	return g
}

func cheap(g *Generator) {
	g.price, g.helper.price = draft.Fixed(1, 0.01), draft.Fixed(0.02, 0)
}

// confuse lets some logits of the draft model be others, so that it is right up to some place, and gives the function
// that ends that.
func confuse(g *Generator, r *rand.Rand, share float64) {
	g.helper.advance = func(ctx context.Context, feeds []engine.Feed) (*engine.Scores, error) {
		scores, err := g.helper.engine.Step(ctx, feeds)
		if err != nil {
			return nil, err
		}
		for i := range scores.Rows {
			if r.Float64() > share {
				continue
			}
			row := scores.Data[i*scores.Vocab : (i+1)*scores.Vocab]
			for range 5 {
				row[r.IntN(len(row))] += float32(20 * r.Float64())
			}
		}
		return scores, nil
	}
}

// compareModel generates for inputs without drafts and with those of the draft model, and reports what differs unless
// rounding alone makes it differ.
func (c *counts) compareModel(t *testing.T, g *Generator, o search.Options, inputs []*Input) {
	t.Helper()
	var want, got results
	must.Succeed(t, g.Run(t.Context(), o, from(inputs), want.done))
	drafted := o
	drafted.Draft = search.DraftModel
	outputs := map[uint64]Output{}
	must.Succeed(t, g.Run(t.Context(), drafted, from(inputs),
		func(out Output) error { outputs[out.Index] = out; return got.done(out) }))
	for i, in := range inputs {
		out := outputs[in.Index]
		c.outputs, c.drafted, c.accepted = c.outputs+1, c.drafted+out.Drafted, c.accepted+out.Accepted
		best := out.Hypotheses[0]
		if best.Ended && out.Accepted > 0 {
			c.ended++
		}
		if o.NumBeams == 1 && out.Steps+out.Accepted != len(best.Tokens) || out.Accepted > out.Drafted {
			t.Errorf("%d tokens in %d steps with %d of %d drafted positions", len(best.Tokens), out.Steps, out.Accepted,
				out.Drafted)
		}
		if equal(&results{got.byIndex[i : i+1]}, &results{want.byIndex[i : i+1]}) {
			continue
		}
		if g.steady(t, o, in) {
			t.Errorf("input %d, %+v:\n%v, without drafts\n%v", i, o, out.Hypotheses, want.byIndex[i])
		}
		c.ties++
	}
	g.unused(t)
}

// unused reports cache that is in use where nothing runs.
func (g *Generator) unused(t *testing.T) {
	t.Helper()
	for _, e := range []*engine.Engine{g.engine, g.helper.engine} {
		if self, _, cross, _ := e.Memory(); self != 0 || cross != 0 {
			t.Errorf("%d and %d bytes of cache are in use after a run", self, cross)
		}
	}
}

// TestDraftModelChangesNothing: for every architecture, with random options, the tokens with a draft model that is
// often wrong are those without, sampled ones too.
func TestDraftModelChangesNothing(t *testing.T) {
	few := []string{"gpt2", "bart", "mistral", "whisper"}
	var all counts
	rounds := 4
	if testing.Short() {
		rounds = 2
	}
	for i, f := range models.SmallFolders() {
		if testing.Short() && !slices.Contains(few, f.Name) || f.Name == "prophetnet" || f.Name == "unilm" {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			g := paired(t, f.Name, f.Name, Options{Batch: 4, CacheBytes: 64 << 20})
			r := rand.New(rand.NewPCG(17, 100+uint64(i)))
			confuse(g, r, 0.2)
			longest := int(min(40, g.engine.Positions()/2))
			for range rounds {
				o := varied(r, g.Search(), longest)
				if g.config.FeatureShape() != nil {
					o.EncoderNoRepeatNgramSize = 0 // there are no tokens
				}
				all.compareModel(t, g, o, inputsFor(g, r, 3, longest))
			}
		})
	}
	all.check(t)
}

// TestDraftModelWithEveryStrategy: a draft model's cache goes back to what was chosen, whatever its layers store.
func TestDraftModelWithEveryStrategy(t *testing.T) {
	for _, c := range []struct {
		model string
		self  plan.Strategy
	}{{"gpt2", plan.PromptHiddenStates}, {"gpt2", plan.Keys}, {"bart", plan.PromptHiddenStates}} {
		if testing.Short() && c.model != "gpt2" {
			continue
		}
		t.Run(c.model+" "+string(c.self), func(t *testing.T) {
			g := paired(t, c.model, c.model, Options{Batch: 3, CacheBytes: 64 << 20})
			small := opened(t, c.model, Options{Batch: 3, CacheBytes: 64 << 20, Attention: prepare.Attention{Self: c.self}})
			own := g.helper.engine
			defer func() { g.helper.engine = own }()
			g.helper.engine = small.engine
			r := rand.New(rand.NewPCG(17, 6))
			confuse(g, r, 0.2)
			var n counts
			for _, beams := range []int{1, 3} {
				o := varied(r, g.Search(), 30)
				o.MaxNewTokens, o.MinNewTokens, o.NumBeams = 30, 25, beams
				n.compareModel(t, g, o, inputsFor(g, r, 3, 30))
			}
			n.check(t)
		})
	}
}

// TestModelAsItsOwnDraftModel: what a model drafts for itself is all chosen, by greedy search, by samples of a seed,
// and by beams as far as they stay where they are.
func TestModelAsItsOwnDraftModel(t *testing.T) {
	for _, model := range []string{"llama", "bart"} {
		g := paired(t, model, model, Options{Batch: 4, CacheBytes: 64 << 20})
		r := rand.New(rand.NewPCG(17, 12))
		for _, sample := range []bool{false, true} {
			o := alike(g.Search(), 40)
			o.DoSample, o.Seed, o.NoRepeatNgramSize, o.RepetitionPenalty = sample, 3, 3, 1.1
			var n counts
			n.compareModel(t, g, o, inputsFor(g, r, 6, 20))
			if n.ties == 0 && n.accepted != n.drafted || n.drafted < 6*25 {
				t.Errorf("%s, sampling %v: %d of %d drafted tokens were chosen", model, sample, n.accepted, n.drafted)
			}
		}
	}
}

// TestDraftModelOfAnotherShape: another model of the same vocabulary drafts, which is hardly ever right, so that it
// is soon asked less.
func TestDraftModelOfAnotherShape(t *testing.T) {
	g := paired(t, "llama", "llama-mha", Options{Batch: 4, CacheBytes: 64 << 20})
	g.helper.price = draft.Fixed(0.4, 0.01)
	r := rand.New(rand.NewPCG(17, 13))
	var n counts
	n.compareModel(t, g, alike(g.Search(), 100), inputsFor(g, r, 4, 20))
	if steps := g.DraftModel().Steps; n.drafted == 0 || steps > 200 {
		t.Errorf("%d tokens were drafted in %d steps of the draft model", n.drafted, steps)
	}
	if report := g.DraftModel(); report.SelfCacheBytes == 0 || report.Model != g.helper.Folder || report.Weights != nil {
		t.Errorf("%+v", report)
	}
}

// TestDraftModelWithinTheCache: the draft model's cache counts within the maximum; where there is no room for it, a
// request goes on without drafts.
func TestDraftModelWithinTheCache(t *testing.T) {
	const length, more = 30, 40
	g := paired(t, "gpt2", "gpt2",
		Options{Batch: 2, CacheBytes: 64 << 20, Attention: prepare.Attention{Self: plan.KeysValues}})
	one := g.engine.Need(length, 1, more)
	both := one + g.helper.need(length, 1, more, 0)
	r := rand.New(rand.NewPCG(17, 14))
	for _, c := range []struct {
		bytes  int64
		drafts bool
	}{{2 * both, true}, {both, true}, {one, false}} {
		g := paired(t, "gpt2", "gpt2",
			Options{Batch: 2, CacheBytes: c.bytes, Attention: prepare.Attention{Self: plan.KeysValues}})
		confuse(g, r, 0.1)
		var n counts
		n.compareModel(t, g, alike(g.Search(), more), copies(r, 5, length, 60))
		must.Equal(t, (n.drafted > 0), c.drafts, c.bytes, n.drafted)
	}
}

// TestDraftModelThatFails: memory that runs out and logits that cannot be searched end drafts alone; another error of
// the draft model ends the calls.
func TestDraftModelThatFails(t *testing.T) {
	g := paired(t, "gpt2", "gpt2", Options{Batch: 4, CacheBytes: 64 << 20})
	inputs := copies(rand.New(rand.NewPCG(17, 15)), 6, 20, 60)
	o := alike(g.Search(), 20)
	var want results
	must.Succeed(t, g.Run(t.Context(), o, from(inputs), want.done))
	o.Draft = search.DraftModel
	other := errors.New("another error")
	for name, c := range map[string]struct {
		spoil  func(*engine.Scores) error
		failed error
	}{
		"memory":  {func(*engine.Scores) error { return errAllocation }, nil},
		"NaN":     {func(s *engine.Scores) error { s.Data[3] = float32(math.NaN()); return nil }, nil},
		"another": {func(*engine.Scores) error { return other }, other},
	} {
		steps := 0
		g.helper.advance = func(ctx context.Context, feeds []engine.Feed) (*engine.Scores, error) {
			scores, err := g.helper.engine.Step(ctx, feeds)
			if steps++; err == nil && steps > 5 {
				err = c.spoil(scores)
			}
			return scores, err
		}
		var got results
		if err := g.Run(t.Context(), o, from(inputs), got.done); !errors.Is(err, c.failed) || err != nil && c.failed == nil {
			t.Errorf("%s: %v", name, err)
		}
		if c.failed == nil && !equal(&got, &want) {
			t.Errorf("%s: %v, without drafts %v", name, got, want)
		}
		if steps < 6 {
			t.Errorf("%s: %d steps of the draft model", name, steps)
		}
		g.unused(t)
	}
	plain := opened(t, "gpt2", Options{CacheBytes: 64 << 20})
	must.Fail(t, plain.Run(t.Context(), o, from(inputs), want.done), ErrNoDraftModel)
}

// TestDraftModelsThatAreRefused: what reads other tokens, or something else, is refused before anything is opened.
func TestDraftModelsThatAreRefused(t *testing.T) {
	small := func(name string) string {
		dir := t.TempDir()
		must.Succeed(t, models.Small(name, dir))
		return dir
	}
	edited := func(from, file, old, replacement string) string {
		dir := t.TempDir()
		must.Succeed(t, os.CopyFS(dir, os.DirFS(from)))
		path := filepath.Join(dir, file)
		data, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(data), old) {
			t.Fatalf("%s has no %s: %v", path, old, err)
		}
		must.Succeed(t, os.WriteFile(path, []byte(strings.Replace(string(data), old, replacement, 1)), 0o644))
		return dir
	}
	bare := edited("../../../models/g2p", "config.json", "{", "{")
	must.Succeed(t, os.Remove(filepath.Join(bare, "tokenizer.json")))
	whisper := small("whisper")
	for _, c := range []struct{ name, model, draft, says string }{
		{"other sizes", small("llama"), small("gpt2"),
			"the draft model has 293 tokens, needed the vocabulary of the model that it drafts for, which has 320; "},
		{"an encoder-decoder for a decoder", small("gpt2"), small("bart"),
			"the draft model is an encoder-decoder, needed a decoder alone, as the model that it drafts for; "},
		{"a decoder for an encoder-decoder", small("bart"), small("gpt2"),
			"the draft model is a decoder alone, needed an encoder-decoder, as the model that it drafts for; "},
		{"placeholders", small("bart"), small("prophetnet"),
			"is a prophetnet, which predicts in the place of a placeholder, needed two models"},
		{"other features", whisper, edited(whisper, "config.json", `"num_mel_bins": 16`, `"num_mel_bins": 32`),
			"the draft model's encoder reads features of the shape [1 32 "},
		{"another token", "../../../models/g2p", edited("../../../models/g2p", "tokenizer.json", `"AE1"`, `"AE9"`),
			"the draft model has other tokens: token "},
		{"no tokenizer", "../../../models/g2p", bare, "no tokenizer: found "},
	} {
		o := Options{Draft: DraftModel{Folder: c.draft}}
		load(t, &o)
		g, err := Open(t.Context(), c.model, o)
		if g != nil {
			g.Close()
		}
		must.Fail(t, err, c.says, c.draft)
	}
}

// TestParseDraftModel: a folder, and what its weights are stored as.
func TestParseDraftModel(t *testing.T) {
	dir := t.TempDir()
	odd := filepath.Join(dir, "a,weights=b")
	must.Succeed(t, os.Mkdir(odd, 0o755))
	for _, c := range []struct{ text, folder, weights string }{
		{dir, dir, "float32"},
		{dir + ",weights=int8", dir, "int8,logits=int8,group=32,activations=int16"},
		{dir + ",weights=int4,group=64", dir, "int4,logits=int8,group=64,activations=int8"},
		{odd, odd, "float32"},
	} {
		d, err := ParseDraftModel(c.text)
		if err != nil || d.Folder != c.folder || d.Weights.String() != c.weights {
			t.Errorf("%s: %+v, %v", c.text, d, err)
		}
		if again, err := ParseDraftModel(d.String()); err != nil || again.String() != d.String() {
			t.Errorf("%s again: %+v, %v", d, again, err)
		}
	}
	for text, says := range map[string]string{
		filepath.Join(dir, "none"):  "found no folder of this name",
		dir + ",weights=int5":       `"int5" is no type of weights`,
		dir + ",logits=int8":        "found no folder of this name",
		"":                          "found no folder of this name",
		dir + "/no,weights=float32": "found no folder of this name",
	} {
		must.Fail(t, must.Error(ParseDraftModel(text)), says)
	}
}

// TestStepsAreTimed: steps without prompts are timed by the generator's clock, those of the draft model too, and what
// they come to decides what is drafted.
func TestStepsAreTimed(t *testing.T) {
	for _, c := range []struct {
		name   string
		small  time.Duration // a step of the draft model
		drafts bool          // in the end
	}{{"a small draft model", 2 * time.Millisecond, true}, {"one as slow as the model", 40 * time.Millisecond, false}} {
		g := paired(t, "gpt2", "gpt2", Options{Batch: 1, CacheBytes: 64 << 20})
		g.price, g.helper.price, g.helper.share = draft.NewPrice(1), draft.NewPrice(0.25), 0.25
		clock := time.Unix(0, 0)
		g.now = func() time.Time { return clock }
		drafted := 0
		g.advance = func(ctx context.Context, feeds []engine.Feed) (*engine.Scores, error) {
			rows := 0
			for _, f := range feeds {
				rows += len(f.Tokens)
				drafted = f.Drafted
				if f.Prompt {
					rows += 1000
				}
			}
			clock = clock.Add(40*time.Millisecond + time.Duration(rows)*time.Millisecond)
			return g.engine.Step(ctx, feeds)
		}
		g.helper.advance = func(ctx context.Context, feeds []engine.Feed) (*engine.Scores, error) {
			clock = clock.Add(c.small)
			return g.helper.engine.Step(ctx, feeds)
		}
		o := alike(g.Search(), 60)
		o.Draft = search.DraftModel
		inputs := copies(rand.New(rand.NewPCG(17, 16)), 3, 20, 60)
		var late int
		must.Succeed(t, g.Run(t.Context(), o, from(inputs), func(out Output) error { late = out.Drafted; return nil }))
		if at := g.price.Step(1); math.Abs(at-0.041) > 0.003 {
			t.Errorf("%s: a step of one row is thought to take %g s, and takes 0.041", c.name, at)
		}
		must.Equal(t, c.drafts, (late > 10), c.name, drafted)
		if at := g.helper.price.Step(1); math.Abs(at-c.small.Seconds()) > 0.1*c.small.Seconds() {
			t.Errorf("%s: a step of the draft model is thought to take %g s, and takes %v", c.name, at, c.small)
		}
	}
}
