package encoder

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/encode/folder"
	"github.com/opgraft/graft/host/generate/chat"
	"github.com/opgraft/graft/host/generate/text"
)

// conversation renders a query and a document with a folder's chat template.
type conversation struct {
	template *chat.Template
	how      *folder.Chat
	prompt   string  // what the system says; "" for nothing
	ends     []int64 // what the template puts after the texts, which is not cut off
}

// converse reads the chat template of a folder whose pairs are conversations. One that leaves out the query or the
// document is refused.
func (b *base) converse(ctx context.Context) error {
	f := b.folder
	t, err := chat.Read(f.Path)
	if err != nil {
		return err
	}
	c := &conversation{template: t, how: f.Chat, prompt: f.Prompts[f.Prompt]}
	said, err := c.render("0", "0")
	if err != nil {
		return err
	}
	for i, role := range []string{"query", "document"} {
		other := [2]string{"0", "0"}
		other[i] = "1 2 3 4"
		if without, err := c.render(other[0], other[1]); err != nil || without == said {
			return &diagnostic.Error{Path: filepath.Join(f.Path, "chat_template.jinja"),
				Found: "a chat template that leaves out messages of the role " + role, Needed: "one for rerankers", Cause: err,
				Fix: "write a chat_template.jinja that renders messages of the roles query and document as the model was trained"}
		}
	}
	longer, err := c.render("1 2 3 4", "1 2 3 4")
	if err != nil {
		return err
	}
	var ids [2][]int64
	for i, s := range []string{said, longer} {
		if ids[i], err = b.tokenizer.Encode(ctx, s, text.EncodeOptions{OmitSpecialTokens: true}); err != nil {
			return err
		}
	}
	n := 0
	for most := min(len(ids[0]), len(ids[1])); n < most && ids[0][len(ids[0])-1-n] == ids[1][len(ids[1])-1-n]; n++ {
	}
	if !f.Chat.Cut && n < min(len(ids[0]), len(ids[1])) {
		c.ends = ids[0][len(ids[0])-n:]
	}
	b.conversation = c
	return nil
}

func (c *conversation) render(query, document string) (string, error) {
	in := chat.Input{Prompt: c.how.Begin, Variables: c.how.Variables}
	if c.prompt != "" {
		in.Messages = append(in.Messages, chat.Message{Role: "system", Content: c.prompt})
	}
	in.Messages = append(in.Messages, chat.Message{Role: "query", Content: query},
		chat.Message{Role: "document", Content: document})
	return c.template.Render(in)
}

// said makes tokens of a conversation. Where it is cut, its end stands over the last tokens that are left.
func (b *base) said(ctx context.Context, query, document string) (Row, error) {
	c := b.conversation
	s, err := c.render(query, document)
	if err != nil {
		return Row{}, err
	}
	r, err := b.rowOf(ctx, text.EncodeOptions{OmitSpecialTokens: true}, s)
	if err == nil && b.longest > 0 && len(r.IDs) >= b.longest {
		n := min(len(c.ends), len(r.IDs))
		r.IDs = slices.Concat(r.IDs[:len(r.IDs)-n], c.ends[len(c.ends)-n:])
	}
	return r, err
}
