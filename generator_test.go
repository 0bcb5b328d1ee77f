package graft_test

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
	"github.com/opgraft/graft/models"
)

// opened is a generator over the small model from letters to phonemes.
func opened(t *testing.T, opts ...graft.GeneratorOption) *graft.Generator {
	t.Helper()
	g, err := graft.NewGenerator(t.Context(), "models/g2p", append(opts, graft.AcceptUnverified())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// Leaving the loop ends the call, and the generator can be used again.
func TestGenerateLeftEarly(t *testing.T) {
	g := opened(t, graft.Beams(2), graft.BatchSize(2))
	for range 3 {
		read := 0
		endless := func(yield func(string) bool) {
			for yield("word") {
				read++
			}
		}
		seen := 0
		for out, err := range g.Generate(t.Context(), endless) {
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
	g := opened(t)
	cause := errors.New("no longer needed")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	var last error
	for _, err := range g.Generate(ctx, slices.Values([]string{"word"})) {
		last = err
	}
	if !errors.Is(last, cause) {
		t.Errorf("a cancelled call ended with %v", last)
	}
	if _, err := g.GenerateText(ctx, "word"); !errors.Is(err, cause) {
		t.Errorf("a cancelled call ended with %v", err)
	}
}

// An input from which nothing can be generated does not touch those beside it.
func TestInputErrors(t *testing.T) {
	g := opened(t)
	var bad []int
	var texts []string
	for out, err := range g.Generate(t.Context(), slices.Values([]string{"soared", "\xff", "bove"})) {
		var of *graft.InputError
		if errors.As(err, &of) && of.Index == out.Index && len(out.Sequences) == 0 {
			bad = append(bad, of.Index)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, out.Sequences[0].Text)
	}
	if !slices.Equal(bad, []int{1}) || !slices.Equal(texts, []string{"S AO1 R D", "B OW1 V"}) {
		t.Errorf("inputs %v were refused, the others gave %q", bad, texts)
	}
	if _, err := g.GenerateText(t.Context(), "\xff"); err == nil || !strings.HasPrefix(err.Error(), "input 0: ") {
		t.Errorf("%v", err)
	}
}

// Options of a call hold for that call.
func TestOptionsOfACall(t *testing.T) {
	g := opened(t, graft.Beams(4), graft.MaxNewTokens(24))
	short, err := g.GenerateText(t.Context(), "moynahan", graft.MaxNewTokens(2), graft.ReturnSequences(3))
	if err != nil || len(short.Sequences) != 3 || len(short.Sequences[0].Tokens) != 2 {
		t.Errorf("%+v, %v", short, err)
	}
	whole, err := g.GenerateText(t.Context(), "moynahan")
	if err != nil || len(whole.Sequences) != 1 || !whole.Sequences[0].Ended ||
		whole.Sequences[0].Text != "M OY1 N AH0 HH AE0 N" {
		t.Errorf("%+v, %v", whole, err)
	}
}

// An option that means nothing, or that would be ignored, is an error of the call that it was given to.
func TestOptionErrors(t *testing.T) {
	g := opened(t, graft.Beams(4))
	for _, c := range []struct {
		options []graft.GenerateOption
		want    string
	}{
		{[]graft.GenerateOption{graft.Set("no_such_option", 3)}, "no_such_option is not an option of the search"},
		{[]graft.GenerateOption{graft.Set("penalty_alpha", 0.6)}, "not supported"},
		{[]graft.GenerateOption{graft.Set("num_beams", "four")}, "num_beams: found \"four\""},
		{[]graft.GenerateOption{graft.Set("num_beams", make(chan int))}, "num_beams: json: unsupported type"},
		{[]graft.GenerateOption{graft.DoSample(true), graft.Temperature(math.NaN())}, "temperature: "},
		{[]graft.GenerateOption{graft.Beams(0)}, "num_beams is 0"},
		{[]graft.GenerateOption{graft.Temperature(0.7)}, "temperature is set and would be ignored: do_sample is off"},
		{[]graft.GenerateOption{graft.Seed(1)}, "seed is set and would be ignored: do_sample is off"},
		{[]graft.GenerateOption{graft.Beams(1), graft.LengthPenalty(2)},
			"length_penalty is set and would be ignored: num_beams is 1"},
		{[]graft.GenerateOption{graft.MaxLength(9), graft.MaxNewTokens(8)},
			"max_length is set and would be ignored: max_new_tokens is 8"},
		{[]graft.GenerateOption{graft.MinLength(3), graft.MinNewTokens(2)},
			"min_length is set and would be ignored: min_new_tokens is 2"},
		{[]graft.GenerateOption{graft.Language("german")}, "language"},
		{[]graft.GenerateOption{graft.Task("translate")}, "task"},
	} {
		_, err := g.GenerateText(t.Context(), "word", c.options...)
		if !errors.Is(err, graft.ErrOption) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want ErrOption with %q", err, c.want)
		}
	}
	// null turns an option off; that is never ignored.
	if _, err := g.GenerateText(t.Context(), "word", graft.Set("temperature", nil),
		graft.Set("no_repeat_ngram_size", nil)); err != nil {
		t.Error(err)
	}
	// Every option that has a function, where it applies.
	sampling := []graft.GenerateOption{graft.Beams(1), graft.DoSample(true), graft.Temperature(0.9), graft.TopK(40),
		graft.TopP(0.95),
		graft.MinP(0.01), graft.TypicalP(0.99), graft.Seed(7), graft.RepetitionPenalty(1.1), graft.NoRepeatNgramSize(3),
		graft.ReturnSequences(2)}
	groups := []graft.GenerateOption{graft.BeamGroups(2), graft.DiversityPenalty(0.5), graft.LengthPenalty(0.8),
		graft.EarlyStopping(true),
		graft.MaxLength(30), graft.MinLength(2)}
	for _, options := range [][]graft.GenerateOption{sampling, groups} {
		if out, err := g.GenerateText(t.Context(), "word", options...); err != nil || out.Sequences[0].Text == "" {
			t.Errorf("%+v, %v", out, err)
		}
	}
}

// kinds are options of calls, of every kind of search.
var kinds = [][]graft.GenerateOption{
	nil,
	{graft.Beams(1), graft.NoRepeatNgramSize(2)},
	{graft.Beams(3), graft.ReturnSequences(2), graft.LengthPenalty(0.5)},
	{graft.Beams(1), graft.DoSample(true), graft.Seed(3), graft.ReturnSequences(2)},
	{graft.Beams(4), graft.BeamGroups(2), graft.DiversityPenalty(0.4)},
	{graft.Beams(2), graft.DoSample(true), graft.Seed(9), graft.Temperature(1.4)},
	{graft.Beams(1), graft.MaxNewTokens(3)},
	{graft.Beams(1), graft.DoSample(true), graft.Seed(4), graft.TopP(0.7)},
}

// Calls from several goroutines, with options of their own, give what each gives alone; one that is
// cancelled or left does not touch the others.
func TestGenerateFromSeveralGoroutines(t *testing.T) {
	g := opened(t, graft.Beams(4), graft.BatchSize(5))
	random := rand.New(rand.NewPCG(5, 5))
	words := make([][]string, len(kinds))
	want := make([][]graft.Generation, len(kinds))
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
				for out, err := range g.Generate(ctx, slices.Values(words[i]), options...) {
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
func all(t *testing.T, g *graft.Generator, inputs []string, options []graft.GenerateOption) (list []graft.Generation) {
	for out, err := range g.Generate(t.Context(), slices.Values(inputs), options...) {
		if err != nil || out.Index != len(list) {
			t.Errorf("input %d: %d, %v", len(list), out.Index, err)
		}
		list = append(list, out)
	}
	return list
}

// texts are those of results, with their tokens.
func texts(list []graft.Generation) (out []string) {
	for _, g := range list {
		for _, s := range g.Sequences {
			out = append(out, fmt.Sprint(s.Text, s.Tokens, s.Ended))
		}
	}
	return out
}

// Closing a generator ends what it does.
func TestCloseEndsCalls(t *testing.T) {
	g := opened(t, graft.BatchSize(2))
	started, ended := make(chan struct{}), make(chan error)
	go func() {
		first := sync.OnceFunc(func() { close(started) })
		endless := func(yield func(string) bool) {
			for yield("word") {
			}
		}
		var last error
		for _, err := range g.Generate(t.Context(), endless) {
			first()
			last = err
		}
		ended <- last
	}()
	<-started
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, graft.ErrClosed) {
		t.Errorf("the call ended with %v", err)
	}
	if _, err := g.GenerateText(t.Context(), "word"); !errors.Is(err, graft.ErrClosed) {
		t.Errorf("a call after Close: %v", err)
	}
}

// What a model folder lacks, and options that mean nothing, are one clear error of its kind.
func TestNewGeneratorErrors(t *testing.T) {
	accept := graft.AcceptUnverified()
	bare := t.TempDir() // a model without its tokenizer
	if err := models.Small("gpt2", bare); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		folder string
		option graft.GeneratorOption
		kind   error
		want   string
	}{
		{"nowhere", accept, graft.ErrBadModel, "nowhere"},
		{"nowhere", accept, fs.ErrNotExist, "nowhere"},
		{"docs", accept, graft.ErrBadModel, "found no model.onnx and no encoder_model.onnx"},
		{bare, accept, graft.ErrBadModel, "tokenizer"},
		{"models/g2p", graft.Set("penalty_alpha", 0.6), graft.ErrOption, "not supported"},
		{"models/g2p", graft.Beams(0), graft.ErrOption, "num_beams"},
		{"models/g2p", graft.TopP(0.5), graft.ErrOption, "do_sample is off"},
		{"models/g2p", graft.Attention("fast"), graft.ErrOption, "fast"},
		{"models/g2p", graft.Weights("int5"), graft.ErrOption, "needed is float32, bf16, int8 or int4"},
		{"models/g2p", graft.Cache("int4"), graft.ErrOption, "needed is float32, bf16, fp16 or int8"},
		{"models/g2p", graft.BatchSize(0), graft.ErrOption, "BatchSize is 0: at least 1 is needed"},
		{"models/g2p", graft.BatchSize(1 << 40), graft.ErrOption, "BatchSize is 1099511627776: at most 65536 is possible"},
		{"models/g2p", graft.Threads(1_000_000), graft.ErrOption, "Threads is 1000000: at most 1024 is possible"},
		{"models/g2p", graft.MaxCache(math.MaxInt64), graft.ErrOption, "MaxCache is 9223372036854775807"},
		{"models/g2p", graft.MaxInputTokens(math.MaxInt), graft.ErrOption, "MaxInputTokens is 9223372036854775807"},
		{"models/g2p", graft.Beams(1_000_000), graft.ErrOption, "num_beams is 1000000: at most 1024 is possible"},
		{"models/g2p", graft.MaxNewTokens(math.MaxInt), graft.ErrOption, "max_new_tokens is 9223372036854775807"},
		{"models/g2p", graft.Temperature(math.Inf(1)), graft.ErrOption, "temperature"},
		{"models/g2p", graft.LengthPenalty(math.NaN()), graft.ErrOption, "length_penalty"},
		{"models/g2p", graft.Threads(-1), graft.ErrOption, "Threads is -1"},
		{"models/g2p", graft.MaxCache(0), graft.ErrOption, "MaxCache is 0"},
		{"models/g2p", graft.MaxInputTokens(0), graft.ErrOption, "MaxInputTokens is 0"},
		{"models/g2p", graft.Runtime("nowhere.so"), graft.ErrNoRuntime, "nowhere.so"},
		{"models/g2p", graft.Runtime("generator_test.go"), graft.ErrNoRuntime, "generator_test.go: does not load: "},
		{"models/g2p", graft.Plugins("nothing"), graft.ErrNoPlugin, `no plugin "nothing"`},
	} {
		g, err := graft.NewGenerator(t.Context(), c.folder, accept, c.option)
		if g != nil || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error of the kind %v with %q", c.folder, err, c.kind, c.want)
		}
	}
}

// A context that ends ends the opening of a model.
func TestNewGeneratorCancelled(t *testing.T) {
	for _, after := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		g, err := graft.NewGenerator(ctx, "models/g2p", graft.AcceptUnverified())
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
	g := opened(t, graft.Drafts("lookup"), graft.MinNewTokens(40))
	for _, opts := range [][]graft.GenerateOption{
		{graft.Beams(1)},
		{graft.Beams(3), graft.ReturnSequences(2)},
		{graft.Beams(4), graft.BeamGroups(2), graft.DiversityPenalty(0.5)},
		{graft.Beams(1), graft.DoSample(true), graft.Seed(3)},
		{graft.Beams(1), graft.DoSample(true), graft.ReturnSequences(2)},
		{graft.Beams(1), graft.NoRepeatNgramSize(3), graft.RepetitionPenalty(1.1), graft.Set("prompt_lookup_num_tokens", 4)},
	} {
		for _, word := range []string{"mississippi", "couscous"} {
			got, err := g.GenerateText(t.Context(), word, opts...)
			if err != nil {
				t.Fatal(err)
			}
			want, err := g.GenerateText(t.Context(), word, append(opts, graft.Drafts("none"))...)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Sequences) != len(want.Sequences) || !slices.Equal(got.Sequences[0].Tokens, want.Sequences[0].Tokens) {
				t.Errorf("%s, %v:\n%v, without drafts\n%v", word, opts, got, want)
			}
		}
	}
	for _, from := range []string{"model", "models/g2p"} {
		if _, err := g.GenerateText(t.Context(), "word", graft.Drafts(from)); !errors.Is(err, graft.ErrOption) {
			t.Errorf("drafts of %s, with which the generator was not opened: %v", from, err)
		}
	}
}

// The drafts of a model change no token either. Its folder is named when the model is opened; calls turn it off and on.
func TestDraftsOfModel(t *testing.T) {
	const small = "models/g2p,weights=int8"
	g := opened(t, graft.Drafts(small), graft.MinNewTokens(40))
	for _, opts := range [][]graft.GenerateOption{
		{graft.Beams(1)},
		{graft.Beams(3), graft.ReturnSequences(2)},
		{graft.Beams(1), graft.DoSample(true), graft.Seed(3)},
		{graft.Beams(1), graft.DoSample(true), graft.ReturnSequences(2)},
		{graft.Drafts("lookup"), graft.Drafts(small)},
	} {
		for _, word := range []string{"mississippi", "couscous"} {
			got, err := g.GenerateText(t.Context(), word, opts...)
			if err != nil {
				t.Fatal(err)
			}
			want, err := g.GenerateText(t.Context(), word, append(opts, graft.Drafts("none"))...)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Sequences) != len(want.Sequences) || !slices.Equal(got.Sequences[0].Tokens, want.Sequences[0].Tokens) {
				t.Errorf("%s, %v:\n%v, without drafts\n%v", word, opts, got, want)
			}
		}
	}
	if _, err := g.GenerateText(t.Context(), "word", graft.Drafts("models/g2p")); !errors.Is(err, graft.ErrOption) {
		t.Errorf("another draft model: %v", err)
	}
	for folder, kind := range map[string]error{"models/none": graft.ErrOption, "models/g2p,weights=int3": graft.ErrOption,
		"models/tiny-gpt2": graft.ErrBadModel} {
		g, err := graft.NewGenerator(t.Context(), "models/g2p", graft.Drafts(folder), graft.AcceptUnverified())
		if g != nil || !errors.Is(err, kind) {
			t.Errorf("drafts of %s: %v", folder, err)
		}
	}
}
