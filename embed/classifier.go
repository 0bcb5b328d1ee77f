package embed

import (
	"context"
	"errors"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/encode/encoder"
	"github.com/opgraft/graft/internal/opening"
)

// Classifier labels texts, or entities in them, with an exported classifier: a folder of a model for text or token
// classification, as transformers, sentence-transformers or optimum saved it. Labels and scores are those of
// transformers' pipelines.
//
// It is safe for concurrent use. Texts of all calls that come at once share batches, as inputs of a [Batcher] do.
type Classifier struct{ inner *encoder.Classifier }

// Label is one of a text, with its score.
type Label struct {
	Label string
	Score float32
}

// ClassifyOptions say what is asked of texts. The zero value gives all labels of the model, the best first.
type ClassifyOptions struct {
	// TopK is the number of labels of a text at most; 0 for all.
	TopK int
	// Function makes scores of logits: "none", "sigmoid" or "softmax". "" is what the model's configuration says: the
	// activation that a CrossEncoder's folder names, else nothing for a problem_type of regression, a sigmoid for
	// multi_label_classification or one label, and a softmax for all others.
	Function string
	// Candidates are labels of your own in place of the model's, which a model of natural language inference judges
	// (zero-shot classification): a score is the share of a label's entailment.
	Candidates []string
	// Hypothesis is what the model judges, with {} for a candidate; "" is "This example is {}."
	Hypothesis string
	// MultiLabel judges each candidate by itself, entailment against contradiction.
	MultiLabel bool
}

// NewClassifier opens a folder. Where the labels of its configuration do not match the graph's outputs it is
// graft.ErrBadModel. A context that ends makes it return at once.
func NewClassifier(ctx context.Context, folder string, o Options) (*Classifier, error) {
	if len(o.Pooling) > 0 || o.Normalize || o.RawScores {
		return nil, opening.Refuse("Pooling, Normalize and RawScores would be ignored: a classifier gives labels " +
			"(ClassifyOptions.Function)")
	}
	c, err := opened(ctx, folder, &o, encoder.OpenClassifier)
	if err != nil {
		return nil, err
	}
	return &Classifier{c}, nil
}

// Entity is a part of a text with its label.
type Entity struct {
	Label string // without its B- or I- where tokens are joined
	Score float32
	Word  string // the text of its tokens, as the tokenizer writes it
	// Start is its first character, counted from 0, and End the one after its last.
	Start, End int
	Token      int // the number of its first token, special ones counted
}

// EntityOptions say what is asked of the tokens of texts. The zero value gives the label of each token, but for O.
type EntityOptions struct {
	// Aggregation joins tokens as transformers does: "none", "simple" (neighbours of one label), or before that by words,
	// of which the label is that of the "first" token, of the "max"imum of scores, or of their "average". "" is "none".
	Aggregation string
	// IgnoreLabels are left out; nil is O alone.
	IgnoreLabels []string
}

// Entities returns what a model for token classification finds in each text, in the order of the texts. Errors are as
// those of [Embedder.Embed]; a text without a result is nil in its place, and one without entities is empty.
func (c *Classifier) Entities(ctx context.Context, o EntityOptions, texts ...string) ([][]Entity, error) {
	t, err := c.inner.Tagger(encoder.TokenQuestions{Aggregation: o.Aggregation, Ignore: o.IgnoreLabels})
	if err != nil {
		return nil, opening.Public(err, graft.ErrOption)
	}
	return answered(ctx, c, len(texts), 1, func(i int) ([]encoder.Row, error) {
		row, err := t.Row(ctx, texts[i])
		return []encoder.Row{row}, err
	}, func(results []encoder.Scored) ([]Entity, error) {
		list, err := t.Entities(results[0])
		if err != nil {
			return nil, err
		}
		out := make([]Entity, len(list))
		for i, e := range list {
			out[i] = Entity(e)
		}
		return out, nil
	})
}

// Labels are those of the model, in the order of its outputs.
func (c *Classifier) Labels() []string { return c.inner.Labels() }

// Classify returns the labels of each text, in the order of the texts. Errors are as those of [Embedder.Embed]; a text
// without labels is nil in its place.
func (c *Classifier) Classify(ctx context.Context, o ClassifyOptions, texts ...string) ([][]Label, error) {
	return c.classify(ctx, o, len(texts), func(p *encoder.Predictor, i int) ([]encoder.Row, error) {
		return p.Rows(ctx, texts[i])
	})
}

// ClassifyPairs is Classify of two texts that are read together, such as a premise and a hypothesis.
func (c *Classifier) ClassifyPairs(ctx context.Context, o ClassifyOptions, pairs ...[2]string) ([][]Label, error) {
	return c.classify(ctx, o, len(pairs), func(p *encoder.Predictor, i int) ([]encoder.Row, error) {
		return p.PairRows(ctx, pairs[i][0], pairs[i][1])
	})
}

func (c *Classifier) classify(ctx context.Context, o ClassifyOptions, n int,
	rows func(p *encoder.Predictor, i int) ([]encoder.Row, error)) ([][]Label, error) {
	if err := opening.Range("TopK", o.TopK, limit.Tokens); err != nil {
		return nil, err
	}
	p, err := c.inner.Predictor(encoder.Questions{TopK: o.TopK, Function: o.Function, Candidates: o.Candidates,
		Hypothesis: o.Hypothesis, Several: o.MultiLabel})
	if err != nil {
		return nil, opening.Public(err, graft.ErrOption)
	}
	return answered(ctx, c, n, max(1, len(o.Candidates)), func(i int) ([]encoder.Row, error) { return rows(p, i) },
		func(results []encoder.Scored) ([]Label, error) {
			list, err := p.Labels(results)
			out := make([]Label, len(list))
			for i, l := range list {
				out[i] = Label(l)
			}
			return out, err
		})
}

// answered computes the rows of texts, so many each, and makes of each text's results what it is asked for.
func answered[T any](ctx context.Context, c *Classifier, n, each int, rows func(i int) ([]encoder.Row, error),
	answer func([]encoder.Scored) ([]T, error)) ([][]T, error) {
	var made []encoder.Row // of the text whose rows are asked for
	var wrong error
	results, err := all(ctx, n*each, c.inner.MaxQueue(), func(k int) (encoder.Row, error) {
		if k%each == 0 {
			made, wrong = rows(k / each)
		}
		if wrong != nil {
			return encoder.Row{}, wrong
		}
		return made[k%each], nil
	}, c.inner.Start)
	if results == nil {
		return nil, err
	}
	out, errs := make([][]T, n), make([]error, n)
	for _, one := range inputErrors(err) {
		if i := one.Index / each; errs[i] == nil {
			errs[i] = &graft.InputError{Index: i, Err: one.Err}
		}
	}
	for i := range out {
		if errs[i] != nil {
			continue
		}
		if out[i], err = answer(results[i*each : (i+1)*each]); err != nil {
			out[i], errs[i] = nil, &graft.InputError{Index: i, Err: err}
		}
	}
	return out, errors.Join(errs...)
}

// Metrics is what the batches did.
func (c *Classifier) Metrics() Metrics { return Metrics(c.inner.Metrics()) }

// Close refuses what waits with graft.ErrClosed, lets what runs end, and frees the model.
func (c *Classifier) Close() error {
	c.inner.Close()
	return nil
}
