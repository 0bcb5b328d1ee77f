package encoder

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/encode/folder"
	"github.com/opgraft/graft/host/generate/text"
)

// Entity is a part of a text with its label.
type Entity struct {
	Label string  `json:"label"` // without its B- or I- where tokens are gathered
	Score float32 `json:"score"`
	Word  string  `json:"word"`  // the text of its tokens, as the tokenizer writes it
	Start int     `json:"start"` // its first character, from 0
	End   int     `json:"end"`   // the one after its last
	Token int     `json:"token"` // the number of its first token, special ones counted
}

// Aggregations say how labels of tokens become those of words and of entities, by transformers' names.
var Aggregations = []string{"none", "simple", "first", "average", "max"}

// TokenQuestions say what is asked of a text's tokens. The zero value asks for the label of each token.
type TokenQuestions struct {
	Aggregation string   // one of Aggregations; "" is none
	Ignore      []string // labels that are left out; nil for O
}

// Tagger labels the tokens of texts, as TokenClassificationPipeline of transformers does.
type Tagger struct {
	classifier *Classifier
	ask        TokenQuestions
	subwords   bool
	unknown    int64
}

// Tagger checks questions against the model.
func (c *Classifier) Tagger(q TokenQuestions) (*Tagger, error) {
	if !c.tokens {
		return nil, &diagnostic.Error{Path: c.base.path, Found: "a model that labels texts", Needed: "one that labels tokens",
			Fix: "ask for labels"}
	}
	if q.Aggregation == "" {
		q.Aggregation = "none"
	}
	if !slices.Contains(Aggregations, q.Aggregation) {
		return nil, &diagnostic.Error{Found: fmt.Sprintf("the aggregation %q", diagnostic.Clip(q.Aggregation)),
			Needed: "one of " + strings.Join(Aggregations, ", ")}
	}
	if q.Ignore == nil {
		q.Ignore = []string{"O"}
	}
	t := &Tagger{classifier: c, ask: q, subwords: c.base.tokenizer.Subwords(), unknown: -1}
	if id, ok := c.base.tokenizer.ID(c.base.tokenizer.Role("unk_token")); ok {
		t.unknown = id
	}
	return t, nil
}

// Row makes tokens of a text.
func (t *Tagger) Row(ctx context.Context, s string) (Row, error) {
	b := t.classifier.base
	tokens, err := b.tokenizer.Tokens(ctx, s, text.EncodeOptions{MaxLength: b.longest, TruncateLeft: b.cutsLeft})
	if err != nil {
		return Row{}, err
	}
	r := Row{text: s, tokens: tokens}
	for _, k := range tokens {
		r.IDs = append(r.IDs, k.ID)
		if b.folder.Types {
			r.Types = append(r.Types, k.Type)
		}
	}
	return r, nil
}

// tagged is a token, or a word of several.
type tagged struct {
	Entity
	words  []string // its tokens
	scores []float64
	joins  bool // it continues the word before it
}

// Entities are those of a text, in their order; an empty list where there are none.
func (t *Tagger) Entities(r Scored) ([]Entity, error) {
	if err := numbers(r.logits); err != nil {
		return nil, err
	}
	list := t.tokens(r)
	var err error
	if t.ask.Aggregation != "none" && t.ask.Aggregation != "simple" {
		if list, err = t.words(list); err != nil {
			return nil, err
		}
	}
	if t.ask.Aggregation != "none" {
		if list, err = t.grouped(list); err != nil {
			return nil, err
		}
	}
	out := []Entity{}
	for _, e := range list {
		if !slices.Contains(t.ask.Ignore, e.Label) {
			out = append(out, e.Entity)
		}
	}
	return out, nil
}

// tokens are those that stand for a part of the text, each with its best label.
func (t *Tagger) tokens(r Scored) (list []tagged) {
	n := len(t.classifier.labels)
	characters := []rune(r.row.text)
	for i, k := range r.row.tokens {
		if k.Around {
			continue
		}
		e := tagged{Entity: Entity{Word: k.Text, Start: k.Start, End: k.End, Token: i}}
		for _, x := range r.logits[i*n : (i+1)*n] {
			e.scores = append(e.scores, float64(x))
		}
		folder.Softmax(e.scores)
		e.best(t.classifier.labels)
		switch {
		case k.ID == t.unknown:
			e.Word = string(characters[k.Start:k.End])
		case t.subwords:
			e.joins = len([]rune(k.Text)) != k.End-k.Start
		default: // a token that no blank parts from the one before
			e.joins = k.Start > 0 && !slices.Contains(characters[k.Start-1:min(k.Start+1, len(characters))], ' ')
		}
		e.words = []string{e.Word}
		list = append(list, e)
	}
	return list
}

// best takes the label with the highest score.
func (e *tagged) best(labels []string) {
	at := 0
	for i, s := range e.scores {
		if s > e.scores[at] {
			at = i
		}
	}
	e.Label, e.Score = labels[at], float32(e.scores[at])
}

// words joins the tokens of words, which get one label.
func (t *Tagger) words(tokens []tagged) (list []tagged, err error) {
	for start := 0; start < len(tokens); {
		end := start + 1
		for end < len(tokens) && tokens[end].joins {
			end++
		}
		word := tokens[start:end]
		e := tagged{Entity: word[0].Entity, scores: word[0].scores}
		e.End, start = word[len(word)-1].End, end
		switch t.ask.Aggregation {
		case "max":
			for _, k := range word {
				if slices.Max(k.scores) > slices.Max(e.scores) {
					e.scores = k.scores
				}
			}
		case "average":
			e.scores = make([]float64, len(e.scores))
			for _, k := range word {
				for i, s := range k.scores {
					e.scores[i] += s / float64(len(word))
				}
			}
		}
		e.best(t.classifier.labels)
		for _, k := range word {
			e.words = append(e.words, k.Word)
		}
		if e.Word, err = t.classifier.base.tokenizer.Join(e.words); err != nil {
			return nil, err
		}
		e.words = []string{e.Word}
		list = append(list, e)
	}
	return list, nil
}

// grouped joins neighbours of one label; one that is marked as a beginning (B-) begins another.
func (t *Tagger) grouped(parts []tagged) (list []tagged, err error) {
	for start := 0; start < len(parts); {
		_, label := marked(parts[start].Label)
		end := start + 1
		for ; end < len(parts); end++ {
			if begins, next := marked(parts[end].Label); begins || next != label {
				break
			}
		}
		e := tagged{Entity: parts[start].Entity}
		sum := 0.
		for _, k := range parts[start:end] {
			sum += float64(k.Score)
			e.words = append(e.words, k.words...)
		}
		e.Score, e.End = float32(sum/float64(end-start)), parts[end-1].End
		if _, after, ok := strings.Cut(e.Label, "-"); ok {
			e.Label = after
		}
		if e.Word, err = t.classifier.base.tokenizer.Join(e.words); err != nil {
			return nil, err
		}
		list, start = append(list, e), end
	}
	return list, nil
}

// marked takes the mark B- or I- off a label. One without is taken for a continuation.
func marked(label string) (begins bool, tag string) {
	if tag, ok := strings.CutPrefix(label, "B-"); ok {
		return true, tag
	}
	return false, strings.TrimPrefix(label, "I-")
}
