package embed

import (
	"context"
	"errors"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/encode/encoder"
	"github.com/opgraft/graft/internal/opening"
)

// Classifier labels texts with an exported classifier: a folder of a model for text classification, as transformers,
// sentence-transformers or optimum saved it. Labels and scores are those of transformers' pipelines.
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

// Labels are those of the model, in the order of its outputs.
func (c *Classifier) Labels() []string { return c.inner.Labels() }

// Classify returns the labels of each text, in the order of the texts. Errors are as those of [Embedder.Embed]; a text
// without labels is nil in its place.
func (c *Classifier) Classify(ctx context.Context, o ClassifyOptions, texts ...string) ([][]Label, error) {
	return c.classify(ctx, o, len(texts), func(p *encoder.Predictor, i int) ([]encoder.Row, error) {
		return p.Rows(texts[i])
	})
}

// ClassifyPairs is Classify of two texts that are read together, such as a premise and a hypothesis.
func (c *Classifier) ClassifyPairs(ctx context.Context, o ClassifyOptions, pairs ...[2]string) ([][]Label, error) {
	return c.classify(ctx, o, len(pairs), func(p *encoder.Predictor, i int) ([]encoder.Row, error) {
		return p.PairRows(pairs[i][0], pairs[i][1])
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
	each := max(1, len(o.Candidates))
	var made []encoder.Row // of the text whose rows are asked for
	var wrong error
	logits, err := all(ctx, n*each, c.inner.MaxQueue(), func(k int) (encoder.Row, error) {
		if k%each == 0 {
			made, wrong = rows(p, k/each)
		}
		if wrong != nil {
			return encoder.Row{}, wrong
		}
		return made[k%each], nil
	}, c.inner.Start)
	if logits == nil {
		return nil, err
	}
	out, errs := make([][]Label, n), make([]error, n)
	for _, one := range inputErrors(err) {
		if i := one.Index / each; errs[i] == nil {
			errs[i] = &graft.InputError{Index: i, Err: one.Err}
		}
	}
	for i := range out {
		if errs[i] != nil {
			continue
		}
		labels, err := p.Labels(logits[i*each : (i+1)*each])
		if err != nil {
			errs[i] = &graft.InputError{Index: i, Err: err}
			continue
		}
		for _, l := range labels {
			out[i] = append(out[i], Label(l))
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
