package textgen_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
	"github.com/opgraft/graft/textgen"
)

const g2p = "../models/g2p"

// opened is a generator over the small model from letters to phonemes.
func opened(t *testing.T, o textgen.Options) *textgen.Generator {
	t.Helper()
	o.AcceptUnverified = true
	g := must.Value(textgen.New(t.Context(), g2p, o))(t)
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// Leaving the loop ends the call, and the generator can be used again.
func TestGenerateLeftEarly(t *testing.T) {
	g := opened(t, textgen.Options{BatchSize: 2, Search: textgen.Search{Beams: 2}})
	for range 3 {
		read := 0
		endless := func(yield func(string) bool) {
			for yield("word") {
				read++
			}
		}
		seen := 0
		for out, err := range g.Generate(t.Context(), endless, textgen.Search{}) {
			if err != nil || out.Index != seen {
				t.Fatalf("result %d: %+v, %v", seen, out, err)
			}
			if seen++; seen == 3 {
				break
			}
		}
		if read > 2000 {
			t.Errorf("%d inputs were read for 3 results", read)
		}
	}
}

func TestGenerateCancelled(t *testing.T) {
	g := opened(t, textgen.Options{})
	cause := errors.New("no longer needed")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	var last error
	for _, err := range g.Generate(ctx, slices.Values([]string{"word"}), textgen.Search{}) {
		last = err
	}
	must.Fail(t, last, cause)
	must.Fail(t, must.Error(g.GenerateText(ctx, "word", textgen.Search{})), cause)
}

// An input from which nothing can be generated does not touch those beside it.
func TestInputErrors(t *testing.T) {
	g := opened(t, textgen.Options{})
	var bad []int
	var texts []string
	for out, err := range g.Generate(t.Context(), slices.Values([]string{"soared", "\xff", "bove"}), textgen.Search{}) {
		var of *graft.InputError
		if errors.As(err, &of) && of.Index == out.Index && len(out.Hypotheses) == 0 {
			bad = append(bad, of.Index)
			continue
		}
		must.Succeed(t, err)
		texts = append(texts, out.Hypotheses[0].Text)
	}
	if !slices.Equal(bad, []int{1}) || !slices.Equal(texts, []string{"S AO1 R D", "B OW1 V"}) {
		t.Errorf("inputs %v were refused, the others gave %q", bad, texts)
	}
	if _, err := g.GenerateText(t.Context(), "\xff", textgen.Search{}); err == nil ||
		!strings.HasPrefix(err.Error(), "input 0: ") {
		t.Errorf("%v", err)
	}
}

// Options of a call hold for that call.
func TestOptionsOfACall(t *testing.T) {
	g := opened(t, textgen.Options{Search: textgen.Search{Beams: 4, MaxNewTokens: 24}})
	short, err := g.Hypotheses(t.Context(), "moynahan", textgen.Search{MaxNewTokens: 2, ReturnSequences: 3})
	if err != nil || len(short) != 3 || len(short[0].Tokens) != 2 {
		t.Errorf("%+v, %v", short, err)
	}
	whole, err := g.Hypotheses(t.Context(), "moynahan", textgen.Search{})
	if err != nil || len(whole) != 1 || !whole[0].Ended || whole[0].Text != "M OY1 N AH0 HH AE0 N" {
		t.Errorf("%+v, %v", whole, err)
	}
}

// An option that means nothing, or that would be ignored, is an error of the call that it was given to.
func TestOptionErrors(t *testing.T) {
	g := opened(t, textgen.Options{Search: textgen.Search{Beams: 4}})
	for _, c := range []struct {
		options textgen.Search
		want    string
	}{
		{textgen.Search{Set: map[string]any{"no_such_option": 3}}, "no_such_option is not an option of the search"},
		{textgen.Search{Set: map[string]any{"penalty_alpha": 0.6}}, "not supported"},
		{textgen.Search{Set: map[string]any{"num_beams": "four"}}, "num_beams: found \"four\""},
		{textgen.Search{Set: map[string]any{"num_beams": make(chan int)}}, "num_beams: json: unsupported type"},
		{textgen.Search{DoSample: true, Temperature: math.NaN()}, "temperature: "},
		{textgen.Search{Beams: -1}, "num_beams is -1"},
		{textgen.Search{Set: map[string]any{"num_beams": 0}}, "num_beams is 0"},
		{textgen.Search{Drafts: "other"}, "draft"},
		{textgen.Search{Temperature: 0.7}, "temperature is set and would be ignored: do_sample is off"},
		{textgen.Search{Seed: 1}, "seed is set and would be ignored: do_sample is off"},
		{textgen.Search{Beams: 1, LengthPenalty: 2},
			"length_penalty is set and would be ignored: num_beams is 1"},
		{textgen.Search{MaxLength: 9, MaxNewTokens: 8},
			"max_length is set and would be ignored: max_new_tokens is 8"},
		{textgen.Search{MinLength: 3, MinNewTokens: 2},
			"min_length is set and would be ignored: min_new_tokens is 2"},
		{textgen.Search{Language: "german"}, "language"},
		{textgen.Search{Task: "translate"}, "task"},
	} {
		_, err := g.GenerateText(t.Context(), "word", c.options)
		must.Fail(t, err, graft.ErrOption, c.want)
	}
	// null turns an option off; that is never ignored.
	must.Value(g.GenerateText(t.Context(), "word",
		textgen.Search{Set: map[string]any{"temperature": nil, "no_repeat_ngram_size": nil}}))(t)
	// Every option that has a field, where it applies.
	sampling := textgen.Search{Beams: 1, DoSample: true, Temperature: 0.9, TopK: 40, TopP: 0.95, MinP: 0.01,
		TypicalP: 0.99, Seed: 7, RepetitionPenalty: 1.1, NoRepeatNgramSize: 3, ReturnSequences: 2}
	groups := textgen.Search{BeamGroups: 2, DiversityPenalty: 0.5, LengthPenalty: 0.8, EarlyStopping: true, MaxLength: 30,
		MinLength: 2}
	for _, options := range []textgen.Search{sampling, groups} {
		if out, err := g.GenerateText(t.Context(), "word", options); err != nil || out == "" {
			t.Errorf("%q, %v", out, err)
		}
	}
}

// kinds are options of calls, of every kind of search.
var kinds = []textgen.Search{
	{},
	{Beams: 1, NoRepeatNgramSize: 2},
	{Beams: 3, ReturnSequences: 2, LengthPenalty: 0.5},
	{Beams: 1, DoSample: true, Seed: 3, ReturnSequences: 2},
	{Beams: 4, BeamGroups: 2, DiversityPenalty: 0.4},
	{Beams: 2, DoSample: true, Seed: 9, Temperature: 1.4},
	{Beams: 1, MaxNewTokens: 3},
	{Beams: 1, DoSample: true, Seed: 4, TopP: 0.7},
}

// Calls from several goroutines, with options of their own, give what each gives alone; one that is
// cancelled or left does not touch the others.
func TestGenerateFromSeveralGoroutines(t *testing.T) {
	g := opened(t, textgen.Options{BatchSize: 5, Search: textgen.Search{Beams: 4}})
	random := rand.New(rand.NewPCG(5, 5))
	words := make([][]string, len(kinds))
	want := make([][]textgen.Generation, len(kinds))
	for i, options := range kinds {
		for range 4 + random.IntN(8) {
			word := make([]byte, 1+random.IntN(12))
			for j := range word {
				word[j] = byte('a' + random.IntN(26))
			}
			words[i] = append(words[i], string(word))
		}
		want[i] = all(t, g, words[i], options)
	}
	var calls sync.WaitGroup
	for round := range 2 {
		for i, options := range kinds {
			calls.Go(func() {
				if got := all(t, g, words[i], options); fmt.Sprint(texts(got)) != fmt.Sprint(texts(want[i])) {
					t.Errorf("call %d of round %d: %v, alone %v", i, round, texts(got), texts(want[i]))
				}
			})
			calls.Go(func() { // one that goes away
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for out, err := range g.Generate(ctx, slices.Values(words[i]), options) {
					if err != nil && !errors.Is(err, context.Canceled) {
						t.Errorf("call %d: %v", i, err)
					}
					if out.Index == 2 && i%2 == 0 {
						break
					}
					cancel()
				}
			})
		}
	}
	calls.Wait()
}

// all are the results of a call.
func all(t *testing.T, g *textgen.Generator, inputs []string, options textgen.Search) (list []textgen.Generation) {
	for out, err := range g.Generate(t.Context(), slices.Values(inputs), options) {
		must.Succeed(t, err)
		must.Equal(t, out.Index, len(list))
		list = append(list, out)
	}
	return list
}

// texts are those of results, with their tokens.
func texts(list []textgen.Generation) (out []string) {
	for _, g := range list {
		for _, s := range g.Hypotheses {
			out = append(out, fmt.Sprint(s.Text, s.Tokens, s.Ended))
		}
	}
	return out
}

// Closing a generator ends what it does.
func TestCloseEndsCalls(t *testing.T) {
	g := opened(t, textgen.Options{BatchSize: 2})
	started, ended := make(chan struct{}), make(chan error)
	go func() {
		first := sync.OnceFunc(func() { close(started) })
		endless := func(yield func(string) bool) {
			for yield("word") {
			}
		}
		var last error
		for _, err := range g.Generate(t.Context(), endless, textgen.Search{}) {
			first()
			last = err
		}
		ended <- last
	}()
	<-started
	must.Succeed(t, g.Close())
	must.Fail(t, <-ended, graft.ErrClosed)
	must.Fail(t, must.Error(g.GenerateText(t.Context(), "word", textgen.Search{})), graft.ErrClosed)
}

// What a model folder lacks, and options that mean nothing, are one clear error of its kind.
func TestNewGeneratorErrors(t *testing.T) {
	bare := t.TempDir() // a model without its tokenizer
	must.Succeed(t, models.Small("gpt2", bare))
	with := func(change func(o *textgen.Options)) (o textgen.Options) {
		change(&o)
		return o
	}
	search := func(s textgen.Search) textgen.Options { return textgen.Options{Search: s} }
	common := func(c graft.Common) textgen.Options { return textgen.Options{Common: c} }
	for _, c := range []struct {
		folder  string
		options textgen.Options
		kind    error
		want    string
	}{
		{"nowhere", textgen.Options{}, graft.ErrBadModel, "nowhere"},
		{"nowhere", textgen.Options{}, fs.ErrNotExist, "nowhere"},
		{"../docs", textgen.Options{}, graft.ErrBadModel, "found no model.onnx and no encoder_model.onnx"},
		{bare, textgen.Options{}, graft.ErrBadModel, "tokenizer"},
		{g2p, search(textgen.Search{Set: map[string]any{"penalty_alpha": 0.6}}), graft.ErrOption, "not supported"},
		{g2p, search(textgen.Search{Beams: -1}), graft.ErrOption, "num_beams"},
		{g2p, search(textgen.Search{TopP: 0.5}), graft.ErrOption, "do_sample is off"},
		{g2p, search(textgen.Search{Beams: 1_000_000}), graft.ErrOption, "num_beams is 1000000: at most 1024 is possible"},
		{g2p, search(textgen.Search{MaxNewTokens: math.MaxInt}), graft.ErrOption, "max_new_tokens is 9223372036854775807"},
		{g2p, search(textgen.Search{Temperature: math.Inf(1)}), graft.ErrOption, "temperature"},
		{g2p, search(textgen.Search{LengthPenalty: math.NaN()}), graft.ErrOption, "length_penalty"},
		{g2p, search(textgen.Search{Drafts: textgen.ModelDrafts}), graft.ErrOption, "none was opened"},
		{g2p, with(func(o *textgen.Options) { o.Attention.All = "fast" }), graft.ErrOption, "fast"},
		{g2p, with(func(o *textgen.Options) { o.Attention.All = "keys:int8" }), graft.ErrOption, "keys:int8"},
		{g2p, with(func(o *textgen.Options) { o.Attention.Skip = 0.1 }), graft.ErrOption, "without a name"},
		{g2p, with(func(o *textgen.Options) { o.Attention.All, o.Attention.Self = textgen.Keys, textgen.Keys }),
			graft.ErrOption, "named for the same layers"},
		{g2p, with(func(o *textgen.Options) { o.Weights.Type = "int5" }), graft.ErrOption,
			"needed is float32, bf16, int8 or int4"},
		{g2p, with(func(o *textgen.Options) { o.Weights.Type = "int8,group=64" }), graft.ErrOption, "is no type"},
		{g2p, with(func(o *textgen.Options) { o.Weights = textgen.Weights{Type: textgen.Int8, Group: 7} }),
			graft.ErrOption, "needed is 32, 64 or 128"},
		{g2p, with(func(o *textgen.Options) { o.Cache = "int4" }), graft.ErrOption,
			"needed is float32, bf16, fp16 or int8"},
		{g2p, textgen.Options{BatchSize: -2}, graft.ErrOption, "BatchSize is -2: at least 1 is needed"},
		{g2p, textgen.Options{BatchSize: 1 << 40}, graft.ErrOption,
			"BatchSize is 1099511627776: at most 65536 is possible"},
		{g2p, textgen.Options{MaxCache: math.MaxInt64}, graft.ErrOption, "MaxCache is 9223372036854775807"},
		{g2p, textgen.Options{MaxCache: -1}, graft.ErrOption, "MaxCache is -1"},
		{g2p, textgen.Options{MaxInputTokens: math.MaxInt}, graft.ErrOption, "MaxInputTokens is 9223372036854775807"},
		{g2p, textgen.Options{MaxInputTokens: -1}, graft.ErrOption, "MaxInputTokens is -1"},
		{g2p, common(graft.Common{Threads: 1_000_000}), graft.ErrOption, "Threads is 1000000: at most 1024 is possible"},
		{g2p, common(graft.Common{Threads: -1}), graft.ErrOption, "Threads is -1"},
		{g2p, common(graft.Common{ShareWeights: 3}), graft.ErrOption, "ShareWeights is 3"},
		{g2p, common(graft.Common{Runtime: "nowhere.so"}), graft.ErrNoRuntime, "nowhere.so"},
		{g2p, common(graft.Common{Runtime: "generator_test.go"}), graft.ErrNoRuntime,
			"generator_test.go: does not load: "},
		{g2p, common(graft.Common{Plugins: []string{"nothing"}}), graft.ErrNoPlugin, `no plugin "nothing"`},
	} {
		c.options.AcceptUnverified = true
		g, err := textgen.New(t.Context(), c.folder, c.options)
		if g != nil || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error of the kind %v with %q", c.folder, err, c.kind, c.want)
		}
	}
}

// A context that ends ends the opening of a model.
func TestNewGeneratorCancelled(t *testing.T) {
	for _, after := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		g, err := textgen.New(ctx, g2p, textgen.Options{Common: graft.Common{AcceptUnverified: true}})
		if g != nil {
			g.Close() // it was faster
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v: %v", after, err)
		}
		cancel()
	}
}

// Drafts change no token, with any search; where they come from is an option of a call like any other.
func TestDrafts(t *testing.T) {
	g := opened(t, textgen.Options{Search: textgen.Search{Drafts: textgen.LookupDrafts, MinNewTokens: 40}})
	for _, search := range []textgen.Search{
		{Beams: 1},
		{Beams: 3, ReturnSequences: 2},
		{Beams: 4, BeamGroups: 2, DiversityPenalty: 0.5},
		{Beams: 1, DoSample: true, Seed: 3},
		{Beams: 1, DoSample: true, ReturnSequences: 2},
		{Beams: 1, NoRepeatNgramSize: 3, RepetitionPenalty: 1.1, Set: map[string]any{"prompt_lookup_num_tokens": 4}},
	} {
		for _, word := range []string{"mississippi", "couscous"} {
			got := must.Value(g.Hypotheses(t.Context(), word, search))(t)
			without := search
			without.Drafts = textgen.NoDrafts
			want := must.Value(g.Hypotheses(t.Context(), word, without))(t)
			if len(got) != len(want) || !slices.Equal(got[0].Tokens, want[0].Tokens) {
				t.Errorf("%s, %v:\n%v, without drafts\n%v", word, search, got, want)
			}
		}
	}
	_, err := g.GenerateText(t.Context(), "word", textgen.Search{Drafts: textgen.ModelDrafts})
	must.Fail(t, err, graft.ErrOption)
}

// The drafts of a model change no token either. Its folder is named when the model is opened; calls turn it off and on.
func TestDraftsOfModel(t *testing.T) {
	g := opened(t, textgen.Options{Draft: textgen.Draft{Folder: g2p, Weights: textgen.Weights{Type: textgen.Int8}},
		Search: textgen.Search{MinNewTokens: 40}})
	for _, search := range []textgen.Search{
		{Beams: 1},
		{Beams: 3, ReturnSequences: 2},
		{Beams: 1, DoSample: true, Seed: 3},
		{Beams: 1, DoSample: true, ReturnSequences: 2},
		{Drafts: textgen.ModelDrafts},
	} {
		for _, word := range []string{"mississippi", "couscous"} {
			got := must.Value(g.Hypotheses(t.Context(), word, search))(t)
			without := search
			without.Drafts = textgen.NoDrafts
			want := must.Value(g.Hypotheses(t.Context(), word, without))(t)
			if len(got) != len(want) || !slices.Equal(got[0].Tokens, want[0].Tokens) {
				t.Errorf("%s, %v:\n%v, without drafts\n%v", word, search, got, want)
			}
		}
	}
	for _, c := range []struct {
		draft textgen.Draft
		kind  error
	}{
		{textgen.Draft{Folder: "../models/none"}, graft.ErrOption},
		{textgen.Draft{Folder: g2p, Weights: textgen.Weights{Type: "int3"}}, graft.ErrOption},
		{textgen.Draft{Weights: textgen.Weights{Type: textgen.Int8}}, graft.ErrOption},
		{textgen.Draft{Folder: "../models/tiny-gpt2"}, graft.ErrBadModel},
	} {
		o := textgen.Options{Common: graft.Common{AcceptUnverified: true}, Draft: c.draft}
		if g, err := textgen.New(t.Context(), g2p, o); g != nil || !errors.Is(err, c.kind) {
			t.Errorf("drafts of %+v: %v", c.draft, err)
		}
	}
}
