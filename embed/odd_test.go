package embed_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/embed"
	"github.com/opgraft/graft/internal/must"
)

// TestOddInput: every function that takes texts has one clear error, or none, of no text, an empty one, bytes that are
// no UTF-8, megabytes, a context that has ended, and an object that is closed, also while it is used.
func TestOddInput(t *testing.T) {
	type function func(ctx context.Context, texts ...string) error
	common := graft.Common{AcceptUnverified: true}
	open := func() (map[string]function, []func() error) {
		e := must.Value(embed.NewEmbedder(t.Context(), "../models/encoders/embedder", embed.Options{Common: common}))(t)
		r := must.Value(embed.NewReranker(t.Context(), "../models/encoders/reranker", embed.Options{Common: common}))(t)
		// A folder of an embedder ranks by its vectors.
		v := must.Value(embed.NewReranker(t.Context(), "../models/encoders/embedder", embed.Options{Common: common}))(t)
		c := must.Value(embed.NewClassifier(t.Context(), "../models/encoders/reranker", embed.Options{Common: common}))(t)
		return map[string]function{
			"Embed": func(ctx context.Context, texts ...string) error { return must.Error(e.Embed(ctx, texts...)) },
			"EmbedAs": func(ctx context.Context, texts ...string) error {
				return must.Error(e.EmbedAs(ctx, "query", texts...))
			},
			"Encode": func(ctx context.Context, texts ...string) error {
				return must.Error(e.Encode(ctx, embed.As{Task: embed.Document}, texts...))
			},
			"Rank": func(ctx context.Context, texts ...string) error { return must.Error(r.Rank(ctx, "a", texts...)) },
			"Scores": func(ctx context.Context, texts ...string) error {
				return must.Error(r.Scores(ctx, "a", texts...))
			},
			"Scores of vectors": func(ctx context.Context, texts ...string) error {
				return must.Error(v.Scores(ctx, "a", texts...))
			},
			"Classify": func(ctx context.Context, texts ...string) error {
				return must.Error(c.Classify(ctx, embed.ClassifyOptions{}, texts...))
			},
			"ClassifyPairs": func(ctx context.Context, texts ...string) error {
				var pairs [][2]string
				for _, text := range texts {
					pairs = append(pairs, [2]string{text, text})
				}
				return must.Error(c.ClassifyPairs(ctx, embed.ClassifyOptions{}, pairs...))
			},
		}, []func() error{e.Close, r.Close, v.Close, c.Close}
	}
	functions, closes := open()
	const bytes = 500_000
	large := map[string]string{"words": strings.Repeat("cat ", bytes/4), "a word": strings.Repeat("a", bytes),
		"marks": strings.Repeat("\u0301", bytes/2), "zeros": strings.Repeat("\x00", bytes)}
	ended, end := context.WithCancelCause(t.Context())
	because := errors.New("because")
	end(because)
	for name, call := range functions {
		must.Succeed(t, call(t.Context()), name)
		must.Succeed(t, call(t.Context(), "", " ", "\n\t"), name)
		for what, text := range large {
			must.Succeed(t, call(t.Context(), text), name, what)
			must.Fail(t, call(ended, text), because)
		}
		for _, text := range []string{"\xff", "a\xc3", "\xed\xa0\x80", strings.Repeat("a", bytes) + "\xff"} {
			err := call(t.Context(), "a", text)
			var one *graft.InputError
			if must.Fail(t, err, "needed UTF-8"); !errors.As(err, &one) || one.Index != 1 || len(err.Error()) > 300 {
				t.Errorf("%s of %.10q: %v", name, text, err)
			}
		}
		must.Fail(t, call(t.Context(), strings.Repeat("a", 17<<20)), "needed at most 16777216", "MaxTextBytes")
		must.Fail(t, call(ended, "a"), because)
	}
	must.Succeed(t, functions["Embed"](t.Context(), strings.Repeat("a cat ", 10<<20/6)))
	// Closed while they are used, and closed more than once at once: whoever calls gets an answer or graft.ErrClosed.
	var using sync.WaitGroup
	for name, call := range functions {
		for range 3 {
			using.Go(func() {
				for {
					if err := call(t.Context(), "a cat", "a dog"); err != nil {
						if !errors.Is(err, graft.ErrClosed) {
							t.Errorf("%s while it is closed: %v", name, err)
						}
						return
					}
				}
			})
		}
	}
	for _, one := range closes {
		for range 3 {
			using.Go(func() { must.Succeed(t, one()) })
		}
	}
	using.Wait()
	for name, call := range functions {
		must.Fail(t, call(t.Context(), "a"), graft.ErrClosed)
		if err := call(t.Context()); err != nil && name != "Scores of vectors" { // which needs the query's
			t.Errorf("%s of nothing: %v", name, err)
		}
	}
	for _, one := range closes {
		must.Succeed(t, one())
	}
}
