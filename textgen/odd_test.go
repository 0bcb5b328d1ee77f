package textgen_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/textgen"
)

// TestOddInput: every function that takes texts has one clear error, or none, of an empty text, bytes that are no
// UTF-8, megabytes, a context that has ended, and a generator that is closed, also while it is used.
func TestOddInput(t *testing.T) {
	g := chatty(t, "{{ messages[0].content }}")
	short := textgen.Search{MaxNewTokens: 2}
	said := func(text string) []textgen.Message { return []textgen.Message{{Role: "user", Content: text}} }
	functions := map[string]func(ctx context.Context, text string) error{
		"Hypotheses": func(ctx context.Context, text string) error { return must.Error(g.Hypotheses(ctx, text, short)) },
		"GenerateText": func(ctx context.Context, text string) error {
			return must.Error(g.GenerateText(ctx, text, short))
		},
		"Generate": func(ctx context.Context, text string) (last error) {
			for _, err := range g.Generate(ctx, slices.Values([]string{text}), short) {
				last = err
			}
			return last
		},
		"Stream": func(ctx context.Context, text string) (last error) {
			for _, err := range g.Stream(ctx, text, short) {
				last = err
			}
			return last
		},
		"Chat": func(ctx context.Context, text string) error {
			return must.Error(g.Chat(ctx, said(text), textgen.ChatOptions{Search: short}))
		},
		"ChatStream": func(ctx context.Context, text string) (last error) {
			for _, err := range g.ChatStream(ctx, said(text), textgen.ChatOptions{Search: short}) {
				last = err
			}
			return last
		},
	}
	ended, end := context.WithCancelCause(t.Context())
	because := errors.New("because")
	end(because)
	for name, call := range functions {
		must.Succeed(t, call(t.Context(), "The"), name)
		must.Succeed(t, call(t.Context(), strings.Repeat("The ", 1<<18)), name)
		for _, text := range []string{"", "\xff", "The \xc3", strings.Repeat("The ", 1<<18) + "\xff"} {
			err := call(t.Context(), text)
			var one *graft.InputError
			if text != "" && !errors.As(err, &one) || err != nil && len(err.Error()) > 500 {
				t.Errorf("%s of %.10q, %d bytes: %v", name, text, len(text), err)
			}
		}
		must.Fail(t, call(ended, "The"), because)
	}
	for _, err := range g.Generate(t.Context(), nil, short) {
		must.Fail(t, err, graft.ErrOption, "the inputs are nil, needed is a sequence")
	}
	for range g.Generate(t.Context(), slices.Values([]string(nil)), short) {
		t.Error("a result of no input")
	}
	for _, o := range []textgen.ChatOptions{{Variables: map[string]any{"a": make(chan int)}},
		{Tools: []json.RawMessage{[]byte("{")}}} {
		must.Fail(t, must.Error(g.ChatPrompt(said("The"), o)), graft.ErrBadModel)
	}
	var using sync.WaitGroup
	for name, call := range functions {
		using.Go(func() {
			for {
				if err := call(t.Context(), "The"); err != nil {
					if !errors.Is(err, graft.ErrClosed) {
						t.Errorf("%s while it is closed: %v", name, err)
					}
					return
				}
			}
		})
	}
	for range 3 {
		using.Go(func() { must.Succeed(t, g.Close()) })
	}
	using.Wait()
	for _, call := range functions {
		must.Fail(t, call(t.Context(), "The"), graft.ErrClosed)
	}
}
