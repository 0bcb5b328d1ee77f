package textgen

import (
	"context"
	"encoding/json"
	"iter"
	"slices"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/chat"
	"github.com/opgraft/graft/internal/opening"
)

// Message is one turn of a conversation.
type Message struct {
	// Role is who speaks: "system", "user", "assistant" or what else the model's template knows.
	Role string
	// Content is the text.
	Content string
	// More is a JSON object of further keys that the template may read, such as tool_calls; nil for none. Their order
	// stays.
	More json.RawMessage
}

// ChatOptions are those of [Generator.Chat]. The zero value is the default.
type ChatOptions struct {
	// Search is that of the call.
	Search Search
	// Tools are JSON schemas of functions that the model may call, in the form of its template. Their order and that of
	// their keys stays.
	Tools []json.RawMessage
	// Variables are further ones of the template, such as {"enable_thinking": false}: what [encoding/json] can write.
	Variables map[string]any
}

// Chat is the model's answer to a conversation: its chat template is rendered, and generated from. The template is
// chat_template.jinja of the folder, or chat_template of its tokenizer_config.json. A folder without one, a template
// that cannot be read, and one that refuses the messages are graft.ErrBadModel.
func (g *Generator) Chat(ctx context.Context, messages []Message, o ChatOptions) (string, error) {
	prompt, err := g.ChatPrompt(messages, o)
	if err != nil {
		return "", err
	}
	for out, err := range g.run(ctx, g.templated(), slices.Values([]string{prompt}), o.Search) {
		return best(out.Hypotheses, err)
	}
	return "", context.Cause(ctx)
}

// ChatStream is Chat that yields each token as soon as it is chosen, as [Generator.Stream] does.
func (g *Generator) ChatStream(ctx context.Context, messages []Message, o ChatOptions) iter.Seq2[Token, error] {
	prompt, err := g.ChatPrompt(messages, o)
	if err != nil {
		return func(yield func(Token, error) bool) { yield(Token{}, err) }
	}
	return g.stream(ctx, g.templated(), prompt, o.Search)
}

// ChatPrompt is the text that [Generator.Chat] generates from, special tokens included.
func (g *Generator) ChatPrompt(messages []Message, o ChatOptions) (string, error) {
	t, err := g.template()
	if err != nil {
		return "", opening.Public(err, graft.ErrBadModel)
	}
	in := chat.Input{Tools: o.Tools, Variables: o.Variables, Prompt: true}
	for _, m := range messages {
		in.Messages = append(in.Messages, chat.Message(m))
	}
	text, err := t.Render(in)
	return text, opening.Public(err, graft.ErrBadModel)
}

// templated is the generator for inputs that have their special tokens already.
func (g *Generator) templated() *generate.Generator {
	with := *g.generator
	with.Templated = true
	return &with
}
