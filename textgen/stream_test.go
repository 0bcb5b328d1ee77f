package textgen_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/textgen"
)

const gpt2 = "../models/tiny-gpt2"

// chatty is a copy of the small decoder with a chat template; "" for none.
func chatty(t *testing.T, template string) *textgen.Generator {
	t.Helper()
	folder := t.TempDir()
	must.Succeed(t, os.CopyFS(folder, os.DirFS(gpt2)))
	if template != "" {
		must.Succeed(t, os.WriteFile(filepath.Join(folder, "chat_template.jinja"), []byte(template), 0o600))
	}
	g := must.Value(textgen.New(t.Context(), folder, textgen.Options{Common: graft.Common{AcceptUnverified: true}}))(t)
	t.Cleanup(func() { g.Close() })
	return g
}

// TestStream: the tokens of a stream are those of the hypothesis, and their texts make its text.
func TestStream(t *testing.T) {
	for folder, input := range map[string]string{g2p: "mississippi", gpt2: "The"} {
		g, err := textgen.New(t.Context(), folder, textgen.Options{Common: graft.Common{AcceptUnverified: true}})
		must.Succeed(t, err)
		defer g.Close()
		for _, s := range []textgen.Search{
			{Beams: 1},
			{Beams: 1, DoSample: true, Seed: 3, Temperature: 1.5},
			{Beams: 1, Drafts: textgen.LookupDrafts, MinNewTokens: 12},
		} {
			s.MaxNewTokens = 16
			want := must.Value(g.Hypotheses(t.Context(), input, s))(t)
			var text strings.Builder
			var tokens []int32
			for token, err := range g.Stream(t.Context(), input, s) {
				must.Succeed(t, err)
				if token.ID >= 0 {
					tokens = append(tokens, token.ID)
				}
				text.WriteString(token.Text)
			}
			if text.String() != want[0].Text || len(tokens) != len(want[0].Tokens) {
				t.Errorf("%s, %+v: %q of %v, want %q of %v", folder, s, text.String(), tokens, want[0].Text, want[0].Tokens)
			}
		}
	}
}

// TestStreamEnds: a loop that is left ends the generation, and what a stream cannot do is refused.
func TestStreamEnds(t *testing.T) {
	g := opened(t, textgen.Options{})
	for range 3 {
		for token, err := range g.Stream(t.Context(), "mississippi", textgen.Search{Beams: 1}) {
			if err != nil {
				t.Fatal(token, err)
			}
			break
		}
	}
	last := func(input string, s textgen.Search) (last error) {
		for _, err := range g.Stream(t.Context(), input, s) {
			last = err
		}
		return last
	}
	must.Fail(t, last("word", textgen.Search{Beams: 4}), graft.ErrOption)
	must.Fail(t, last("word", textgen.Search{Beams: 1, DoSample: true, ReturnSequences: 2}), graft.ErrOption)
	var of *graft.InputError
	if err := last("\xff", textgen.Search{Beams: 1}); !errors.As(err, &of) {
		t.Errorf("a bad input: %v", err)
	}
	g.Close()
	must.Fail(t, last("word", textgen.Search{Beams: 1}), graft.ErrClosed)
}

// TestStopStrings: a sequence ends with the token that completes one of them.
func TestStopStrings(t *testing.T) {
	g := opened(t, textgen.Options{Search: textgen.Search{Beams: 1}})
	for _, s := range []textgen.Search{{}, {Drafts: textgen.LookupDrafts}} {
		whole := must.Value(g.GenerateText(t.Context(), "mississippi", s))(t)
		stop := whole[len(whole)/2 : len(whole)/2+3]
		s.StopStrings = []string{"never said", stop}
		list := must.Value(g.Hypotheses(t.Context(), "mississippi", s))(t)
		got := list[0].Text
		until := strings.Index(whole, stop) + len(stop)
		if !list[0].Ended || !strings.HasPrefix(whole, got) || !strings.Contains(got, stop) || len(got) > until+len("IH0") {
			t.Errorf("%+v: %q of %q", s, got, whole)
		}
	}
	_, err := g.GenerateText(t.Context(), "word", textgen.Search{Beams: 2, StopStrings: []string{"a"}})
	must.Fail(t, err, graft.ErrOption)
	_, err = g.GenerateText(t.Context(), "word", textgen.Search{StopStrings: []string{""}})
	must.Fail(t, err, graft.ErrOption)
}

// TestChat: a conversation is rendered and generated from, with the special tokens that the template says and no
// others.
func TestChat(t *testing.T) {
	g := chatty(t, "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"+
		"{% if add_generation_prompt %}{{ start }}{% endif %}")
	messages := []textgen.Message{{Role: "user", Content: "The"}}
	o := textgen.ChatOptions{Search: textgen.Search{MaxNewTokens: 8}, Variables: map[string]any{"start": "bot:"}}
	prompt, err := g.ChatPrompt(messages, o)
	if want := "user: The\nbot:"; err != nil || prompt != want {
		t.Fatalf("%q, %v, want %q", prompt, err, want)
	}
	want, err := g.GenerateText(t.Context(), prompt, o.Search) // its tokenizer adds no special tokens
	must.Succeed(t, err)
	got, err := g.Chat(t.Context(), messages, o)
	must.Succeed(t, err)
	must.Equal(t, got, want)
	var text strings.Builder
	for token, err := range g.ChatStream(t.Context(), messages, o) {
		must.Succeed(t, err)
		text.WriteString(token.Text)
	}
	must.Equal(t, text.String(), want)
}

// TestChatRefused: no template, and one that refuses, are bad models; the rest of the generator works.
func TestChatRefused(t *testing.T) {
	g := chatty(t, "{{ raise_exception('not today') }}")
	_, err := g.Chat(t.Context(), nil, textgen.ChatOptions{})
	must.Fail(t, err, graft.ErrBadModel, "not today")
	plain := chatty(t, "")
	_, err = plain.Chat(t.Context(), nil, textgen.ChatOptions{})
	must.Fail(t, err, graft.ErrBadModel, fs.ErrNotExist)
	for _, err := range plain.ChatStream(t.Context(), nil, textgen.ChatOptions{}) {
		must.Fail(t, err, graft.ErrBadModel)
	}
	must.Value(plain.GenerateText(t.Context(), "The", textgen.Search{}))(t)
}
