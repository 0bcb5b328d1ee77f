package encoder

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// Reranker scores how well documents answer a query, as CrossEncoder of sentence-transformers does. It is safe for
// concurrent use.
type Reranker struct{ *scorer[float32] }

// OpenReranker opens a folder of a model for text classification with one label, or of an encoder with modules that
// make a score of its hidden states. A context that ends ends that soon.
func OpenReranker(ctx context.Context, path string, o Options) (*Reranker, error) {
	s, err := openScorer(ctx, path, o, func(s *scorer[float32]) (func(Row, []float32) (float32, error), error) {
		b := s.base
		switch {
		case s.tokens:
			return nil, &diagnostic.Error{Path: b.path, Found: "logits of each token", Needed: "logits [batch, 1]",
				Fix: "export the model for text-classification"}
		case s.width > 1:
			return nil, notOne(b.path, s.width)
		case s.modules == nil && b.folder.Labels > 1 && s.width == 1:
			_, err := b.folder.LabelNames(s.width)
			return nil, err
		case s.modules == nil && b.folder.Labels > 1:
			return nil, notOne(filepath.Join(b.folder.Path, "config.json"), b.folder.Labels)
		}
		activation, err := b.folder.ScoresBy()
		if o.Raw {
			activation, err = func(x float64) float64 { return x }, nil
		}
		return func(_ Row, logits []float32) (float32, error) {
			if len(logits) != 1 {
				return 0, notOne(b.path, len(logits))
			}
			return float32(activation(float64(logits[0]))), nil
		}, err
	})
	if err != nil {
		return nil, err
	}
	return &Reranker{s}, nil
}

func notOne(path string, n int) error {
	return &diagnostic.Error{Path: path, Found: fmt.Sprintf("logits of %d labels", n),
		Needed: "one: a score, by which documents can be sorted", Fix: "graft predict gives the labels"}
}

// Row makes tokens of a query and a document.
func (r *Reranker) Row(ctx context.Context, query, document string) (Row, error) {
	f := r.base.folder
	if f.Prompt != "" && r.base.conversation == nil {
		query = f.Prompts[f.Prompt] + query
	}
	return r.pair(ctx, query, document)
}
