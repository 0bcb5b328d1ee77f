package embed_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/embed"
	"github.com/opgraft/graft/internal/must"
)

// embedder opens the small embedder.
func embedder(t *testing.T, o embed.Options) *embed.Embedder {
	t.Helper()
	o.AcceptUnverified = true
	e := must.Value(embed.NewEmbedder(t.Context(), "../models/encoders/embedder", o))(t)
	t.Cleanup(func() { e.Close() })
	return e
}

// made is what sentence-transformers makes of texts.
type made struct {
	Texts      []string
	Query      string
	Embeddings map[string][][]float32
	Scores     struct {
		Sigmoid, Logits []float32
		Rank            []int
	}
}

func readMade(t *testing.T) (m made) {
	t.Helper()
	data, err := os.ReadFile("../models/encoders/expected.json")
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	must.Succeed(t, err)
	return m
}

func nearly(a, b []float32) bool {
	return len(a) == len(b) &&
		slices.EqualFunc(a, b, func(x, y float32) bool { return math.Abs(float64(x-y)) <= 1e-5+1e-4*math.Abs(float64(y)) })
}

// TestEmbed: many callers at once, each with other texts, get their own vectors, with little padding and few batches.
func TestEmbed(t *testing.T) {
	want := readMade(t)
	e := embedder(t, embed.Options{})
	var callers sync.WaitGroup
	for g := range 24 {
		callers.Go(func() {
			i := g % len(want.Texts)
			if got, err := e.Embed(t.Context(), want.Texts[i]); err != nil || !nearly(got[0], want.Embeddings["normalize"][i]) {
				t.Errorf("%q: %v, %v", want.Texts[i], got, err)
			}
			if got, err := e.EmbedAs(t.Context(), "query", want.Texts...); err != nil ||
				!slices.EqualFunc(got, want.Embeddings["query"], nearly) {
				t.Errorf("all with the prompt: %v", err)
			}
		})
	}
	callers.Wait()
	if got, err := e.Embed(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("no text: %v, %v", got, err)
	}
	m := e.Metrics()
	if want := int64(24 * (1 + len(want.Texts))); m.Computed != want || m.Batches >= want/2 || m.Padding() > 0.5 {
		t.Errorf("metrics %+v", m)
	}
}

// TestEmbedMany: a call of more texts than the queue has room for waits; its vectors are in the order of the texts.
func TestEmbedMany(t *testing.T) {
	want := readMade(t)
	e := embedder(t, embed.Options{Batch: embed.BatchOptions{MaxQueue: 4, MaxTokens: 100}})
	got, err := e.Embed(t.Context(), slices.Repeat(want.Texts, 20)...)
	if err != nil || !slices.EqualFunc(got, slices.Repeat(want.Embeddings["normalize"], 20), nearly) {
		t.Error(err)
	}
}

// TestEmbedBadTexts: a text without a vector is an error of its own, the others have theirs.
func TestEmbedBadTexts(t *testing.T) {
	want := readMade(t)
	e := embedder(t, embed.Options{})
	got, err := e.Embed(t.Context(), want.Texts[0], "a\xff", want.Texts[1], "b\xff")
	if !nearly(got[0], want.Embeddings["normalize"][0]) || !nearly(got[2], want.Embeddings["normalize"][1]) ||
		got[1] != nil || got[3] != nil {
		t.Errorf("vectors %v", got)
	}
	const message = "input 1: text of 2 bytes: found byte 0xff at offset 1, needed UTF-8; convert the text or drop the " +
		"line\ninput 3: "
	var one *graft.InputError
	if !errors.As(err, &one) || one.Index != 1 || !strings.HasPrefix(err.Error(), message) {
		t.Errorf("found %v, want %s", err, message)
	}
	_, err = e.EmbedAs(t.Context(), "summary", "a")
	must.Fail(t, err, graft.ErrOption)
	must.Fail(t, err, `no prompt "summary", needed one that the model has in config_sentence_transformers.json`)
	_, err = e.Encode(t.Context(), embed.As{Task: "summary"}, "a")
	must.Fail(t, err, graft.ErrOption)
	must.Fail(t, err, `the task "summary", needed query or document`)
}

// TestEmbedLongTexts: a text above the largest size is refused before it is made tokens, alone.
func TestEmbedLongTexts(t *testing.T) {
	want := readMade(t)
	e := embedder(t, embed.Options{MaxTextBytes: 1000})
	got, err := e.Embed(t.Context(), strings.Repeat("a", 1001), want.Texts[0])
	if must.Fail(t, err, "input 0: found a text of 1001 bytes, needed at most 1000; cut it, or raise"); got[0] != nil ||
		!nearly(got[1], want.Embeddings["normalize"][0]) {
		t.Errorf("vectors %v", got)
	}
}

// TestEmbedEnds: a context that ends, and Close, end calls with one clear error and leave no goroutine.
func TestEmbedEnds(t *testing.T) {
	before := runtime.NumGoroutine()
	e := must.Value(embed.NewEmbedder(t.Context(), "../models/encoders/embedder",
		embed.Options{Common: graft.Common{AcceptUnverified: true},
			Batch: embed.BatchOptions{MaxDelay: time.Hour, MaxQueue: 3}}))(t)
	because := errors.New("the client went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	for range 2 {
		go func() {
			_, err := e.Embed(ctx, "a text")
			ended <- err
		}()
	}
	waiting := func(n int) {
		for e.Metrics().Waiting != n {
			runtime.Gosched()
		}
	}
	waiting(2)
	cancel(because)
	for range 2 {
		must.Fail(t, <-ended, because)
	}
	for range 3 {
		go func() {
			_, err := e.Embed(context.Background(), "a text")
			ended <- err
		}()
	}
	waiting(3)
	if _, err := e.Embed(t.Context(), "one more"); !errors.Is(err, graft.ErrQueueFull) ||
		err.Error() != "the queue of the batcher is full: 3 inputs wait; try again later, have fewer callers, or let more "+
			"wait (MaxQueue)" {
		t.Errorf("a full queue: %v", err)
	}
	e.Close()
	for range 3 {
		must.FailExactly(t, <-ended, "the batcher was closed before this input was computed", graft.ErrClosed)
	}
	must.Fail(t, must.Error(e.Embed(t.Context(), "a text")), graft.ErrClosed)
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i > 1e7 {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		runtime.Gosched()
	}
}

func TestRank(t *testing.T) {
	want := readMade(t)
	for raw, scores := range map[bool][]float32{false: want.Scores.Sigmoid, true: want.Scores.Logits} {
		r := must.Value(embed.NewReranker(t.Context(), "../models/encoders/reranker",
			embed.Options{Common: graft.Common{AcceptUnverified: true}, RawScores: raw}))(t)
		got, err := r.Scores(t.Context(), want.Query, want.Texts...)
		if err != nil || !nearly(got, scores) {
			t.Errorf("scores %v, %v", got, err)
		}
		ranked := must.Value(r.Rank(t.Context(), want.Query, want.Texts...))(t)
		var order []int
		for _, d := range ranked {
			order = append(order, d.Index)
		}
		must.Equal(t, order, want.Scores.Rank)
		ranked, err = r.Rank(t.Context(), want.Query, want.Texts[0], "\xff", want.Texts[1])
		var one *graft.InputError
		if len(ranked) != 2 || ranked[0].Index != 2 || !errors.As(err, &one) || one.Index != 1 {
			t.Errorf("with a bad document: %v, %v", ranked, err)
		}
		if _, err := r.Rank(t.Context(), "\xff", "a"); err == nil {
			t.Error("a bad query has an answer")
		}
		r.Close()
		must.Fail(t, must.Error(r.Rank(t.Context(), "a", "b")), graft.ErrClosed)
	}
}

func TestEncoderOptions(t *testing.T) {
	for _, c := range []struct {
		opts embed.Options
		kind error
		want string
	}{
		{embed.Options{Batch: embed.BatchOptions{MaxTokens: -1}}, graft.ErrOption,
			"MaxTokens is -1: at least 1 is needed, or 0 for the default"},
		{embed.Options{Batch: embed.BatchOptions{MaxQueue: -1}}, graft.ErrOption,
			"MaxQueue is -1: at least 1 is needed, or 0 for the default"},
		{embed.Options{Batch: embed.BatchOptions{Runs: 1 << 30}}, graft.ErrOption,
			"Runs is 1073741824: at most 1024 is possible"},
		{embed.Options{Batch: embed.BatchOptions{MaxDelay: -1}}, graft.ErrOption, "MaxDelay is -1ns, needed is 0 or more"},
		{embed.Options{Common: graft.Common{Threads: -1}}, graft.ErrOption,
			"Threads is -1: at least 1 is needed, or 0 for the default"},
		{embed.Options{MaxTextBytes: -1}, graft.ErrOption,
			"MaxTextBytes is -1: at least 1 is needed, or 0 for the default"},
		{embed.Options{MaxInputTokens: -1}, graft.ErrOption,
			"MaxInputTokens is -1: at least 1 is needed, or 0 for the default"},
		{embed.Options{Pooling: []embed.Pooling{"median"}}, graft.ErrOption,
			`pooling "median", needed one of cls, max, mean, mean_sqrt_len_tokens, weightedmean, lasttoken, or several with + between`},
		{embed.Options{Common: graft.Common{Plugins: []string{"none-such"}}}, graft.ErrNoPlugin, ""},
		{embed.Options{Common: graft.Common{Runtime: "/none/such.so"}}, graft.ErrNoRuntime, ""},
		{embed.Options{RawScores: true}, graft.ErrOption, ""},
		{embed.Options{ModelFile: "../other.onnx"}, graft.ErrBadModel, ""},
	} {
		c.opts.AcceptUnverified = true
		_, err := embed.NewEmbedder(t.Context(), "../models/encoders/embedder", c.opts)
		if !errors.Is(err, c.kind) || c.want != "" && err.Error() != c.want {
			t.Errorf("found %v, want %v: %s", err, c.kind, c.want)
		}
	}
	must.Fail(t, must.Error(embed.NewBatcher(func(context.Context, []int) ([]int, error) { return nil, nil }, nil,
		embed.BatchOptions{MaxQueue: -1})), graft.ErrOption)
	must.Fail(t, must.Error(embed.NewBatcher[int, int](nil, nil, embed.BatchOptions{})), graft.ErrOption)
	must.Fail(t, must.Error(embed.NewReranker(t.Context(), filepath.Join(t.TempDir(), "none"),
		embed.Options{Common: graft.Common{AcceptUnverified: true}})), graft.ErrBadModel, fs.ErrNotExist)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	must.Fail(t, must.Error(embed.NewEmbedder(ended, "../models/encoders/embedder", embed.Options{})), context.Canceled)
}

func TestPad(t *testing.T) {
	ids, mask, shape := embed.Pad([][]int64{{5, 6}, {}, {7, 8, 9}}, 1)
	if !slices.Equal(ids, []int64{5, 6, 1, 1, 1, 1, 7, 8, 9}) || !slices.Equal(mask, []int64{1, 1, 0, 0, 0, 0, 1, 1, 1}) ||
		shape != [2]int64{3, 3} {
		t.Errorf("%v, %v, %v", ids, mask, shape)
	}
	if ids, _, shape := embed.Pad(nil, 0); len(ids) != 0 || shape != [2]int64{} {
		t.Errorf("of nothing: %v, %v", ids, shape)
	}
}

// TestClassify: labels of texts and of pairs; a bad text is an error of its own, and what cannot be asked one of the
// call.
func TestClassify(t *testing.T) {
	want := readMade(t)
	c := must.Value(embed.NewClassifier(t.Context(), "../models/encoders/reranker",
		embed.Options{Common: graft.Common{AcceptUnverified: true}}))(t)
	t.Cleanup(func() { c.Close() })
	must.Equal(t, len(c.Labels()), 1)
	var pairs [][2]string
	for _, text := range want.Texts {
		pairs = append(pairs, [2]string{want.Query, text})
	}
	for function, scores := range map[string][]float32{"": want.Scores.Sigmoid, "none": want.Scores.Logits} {
		got := must.Value(c.ClassifyPairs(t.Context(), embed.ClassifyOptions{Function: function, TopK: 1}, pairs...))(t)
		for i, labels := range got {
			if len(labels) != 1 || labels[0].Label != c.Labels()[0] || !nearly([]float32{labels[0].Score}, scores[i:i+1]) {
				t.Errorf("%q, %d: %v, want %v", function, i, labels, scores[i])
			}
		}
	}
	got, err := c.Classify(t.Context(), embed.ClassifyOptions{}, "a", "b\xff")
	var one *graft.InputError
	if len(got) != 2 || len(got[0]) != 1 || got[1] != nil || !errors.As(err, &one) || one.Index != 1 {
		t.Errorf("%v, %v", got, err)
	}
	for _, o := range []embed.ClassifyOptions{{Function: "tanh"}, {Hypothesis: "{}"}, {Candidates: []string{"a"}},
		{TopK: -1}} {
		if _, err := c.Classify(t.Context(), o, "a"); !errors.Is(err, graft.ErrOption) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := c.Entities(t.Context(), embed.EntityOptions{}, "a"); !errors.Is(err, graft.ErrOption) {
		t.Error(err)
	}
	must.Fail(t, must.Error(embed.NewClassifier(t.Context(), "../models/encoders/reranker",
		embed.Options{RawScores: true})), "RawScores would be ignored")
}

// TestEntities: entities of texts; a bad text is an error of its own, and one without entities has an empty list.
func TestEntities(t *testing.T) {
	var saved struct {
		Tagged []string
		Cases  []struct {
			Files    map[string]string
			Entities [][]embed.Entity
		}
		Blobs map[string]string
	}
	const from = "../models/encoders/pipelines/"
	must.Succeed(t, json.Unmarshal(must.Value(os.ReadFile(from+"taggers-5.24.0.json"))(t), &saved))
	dir, one := t.TempDir(), saved.Cases[0]
	for name, key := range one.Files {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(saved.Blobs[key]), 0o644))
	}
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "model.onnx"), must.Value(os.ReadFile(from+"tokens.onnx"))(t), 0o644))
	c := must.Value(embed.NewClassifier(t.Context(), dir, embed.Options{Common: graft.Common{AcceptUnverified: true}}))(t)
	t.Cleanup(func() { c.Close() })
	got, err := c.Entities(t.Context(), embed.EntityOptions{}, append(slices.Clone(saved.Tagged), "b\xff")...)
	var bad *graft.InputError
	if !errors.As(err, &bad) || bad.Index != len(saved.Tagged) || got[bad.Index] != nil || got[0] == nil {
		t.Errorf("%v, %v", got, err)
	}
	for i, want := range one.Entities {
		for k := range got[i] {
			if k < len(want) && nearly([]float32{got[i][k].Score}, []float32{want[k].Score}) {
				got[i][k].Score = want[k].Score
			}
		}
		if !slices.Equal(got[i], want) {
			t.Errorf("%q: %v, want %v", saved.Tagged[i], got[i], want)
		}
	}
	_, err = c.Entities(t.Context(), embed.EntityOptions{Aggregation: "median"}, "a")
	if !errors.Is(err, graft.ErrOption) {
		t.Error(err)
	}
	if _, err := c.Classify(t.Context(), embed.ClassifyOptions{}, "a"); !errors.Is(err, graft.ErrOption) {
		t.Error(err)
	}
}
