package encoder

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/host/encode/folder"
	"github.com/opgraft/graft/host/ort"
)

// Reranker scores how well documents answer a query, as CrossEncoder of sentence-transformers does. It is safe for
// concurrent use.
type Reranker struct {
	base       *base
	output     ort.ValueInfo
	modules    []folder.Module // between the graph's hidden states and the scores; nil where the graph gives logits
	activation folder.Activation
	batcher    *batch.Batcher[Row, float32]
}

// OpenReranker opens a folder of a model for text classification with one label, or of an encoder with modules that
// make a score of its hidden states. A context that ends ends that soon.
func OpenReranker(ctx context.Context, path string, o Options) (*Reranker, error) {
	b, err := open(ctx, path, o)
	if err != nil {
		return nil, err
	}
	r := &Reranker{base: b}
	if err := r.choose(path, o); err != nil {
		b.close()
		return nil, err
	}
	r.batcher = batch.New(r.run, b.batching(o))
	return r, nil
}

func (r *Reranker) choose(path string, o Options) (err error) {
	b := r.base
	if kind := b.folder.Kind; kind != "" && kind != "CrossEncoder" {
		return &diagnostic.Error{Path: path, Found: "a folder of a " + diagnostic.Clip(kind),
			Needed: "that of a CrossEncoder",
			Fix:    "graft embed opens a SentenceTransformer"}
	}
	if b.folder.Unfit != nil {
		return b.folder.Unfit
	}
	if r.modules = b.folder.Modules; len(r.modules) > 0 {
		err = r.chooseStates()
	} else {
		err = r.chooseLogits()
	}
	if err != nil {
		return err
	}
	if r.activation, err = b.folder.ScoresBy(); o.Raw {
		r.activation, err = func(x float64) float64 { return x }, nil
	}
	return err
}

// chooseStates takes the hidden states, of which the folder's modules make a score.
func (r *Reranker) chooseStates() error {
	b := r.base
	var ok bool
	if r.output, ok = b.output(3, "token_embeddings", "last_hidden_state"); !ok {
		return &diagnostic.Error{Path: b.path, Found: "the outputs " + b.listed(),
			Needed: "hidden states [batch, sequence, width], of which modules.json makes a score",
			Fix:    "export the model for feature-extraction"}
	}
	w := folder.Widths{folder.TokenEmbeddings: int(max(r.output.Shape[2], 0)), folder.SentenceEmbedding: -1,
		folder.Scores: -1}
	for _, m := range r.modules {
		if err := m.Check(w); err != nil {
			return err
		}
	}
	switch n := w[folder.Scores]; {
	case n < 0:
		return &diagnostic.Error{Path: filepath.Join(b.folder.Path, "modules.json"), Found: "no module that makes scores",
			Needed: "a Dense with module_output_name scores", Fix: "graft embed opens a SentenceTransformer"}
	case n > 1:
		return notOne(b.path, int64(n))
	}
	return nil
}

// chooseLogits takes the graph's logits.
func (r *Reranker) chooseLogits() error {
	b := r.base
	var ok bool
	if r.output, ok = b.output(2, "logits"); !ok {
		return &diagnostic.Error{Path: b.path, Found: "the outputs " + b.listed(), Needed: "logits [batch, 1]",
			Fix: "export the model for text-classification"}
	}
	if n := r.output.Shape[1]; n > 1 {
		return notOne(b.path, n)
	}
	if n := b.folder.Labels; n > 1 {
		return notOne(filepath.Join(b.folder.Path, "config.json"), int64(n))
	}
	return nil
}

func notOne(path string, n int64) error {
	return &diagnostic.Error{Path: path, Found: fmt.Sprintf("logits of %d labels", n),
		Needed: "one: a score, by which documents can be sorted"}
}

// Row makes tokens of a query and a document.
func (r *Reranker) Row(query, document string) (Row, error) {
	f := r.base.folder
	if f.Prompt != "" {
		query = f.Prompts[f.Prompt] + query
	}
	return r.base.row(f.CleanPair(query), f.CleanPair(document))
}

// MaxTokens is the number of tokens to which pairs are cut; 0 for no limit.
func (r *Reranker) MaxTokens() int { return r.base.longest }

// Start begins to compute the score of a row, in a batch with others.
func (r *Reranker) Start(ctx context.Context, row Row, room bool) (*batch.Call[Row, float32], error) {
	return r.batcher.Start(ctx, row, room)
}

func (r *Reranker) run(ctx context.Context, rows []Row) ([]float32, error) {
	out := make([]float32, len(rows))
	err := r.base.run(ctx, rows, r.output, func(i int, values []float32, width int) error {
		f := folder.Features{Length: rows[i].Length(), Scores: values}
		if r.modules != nil {
			f.Tokens, f.Scores = folder.Rows{Values: values[:f.Length*width], Width: width}, nil
		}
		for _, m := range r.modules {
			if err := m.Apply(&f); err != nil {
				return err
			}
		}
		if len(f.Scores) != 1 {
			return notOne(r.base.path, int64(len(f.Scores)))
		}
		out[i] = float32(r.activation(float64(f.Scores[0])))
		return nil
	})
	return out, err
}

// Metrics is what the batches did.
func (r *Reranker) Metrics() batch.Metrics { return r.batcher.Metrics() }

// MaxQueue is the number of rows that may wait.
func (r *Reranker) MaxQueue() int { return r.batcher.MaxQueue() }

// Close refuses what waits, lets what runs end, and frees the model.
func (r *Reranker) Close() {
	r.batcher.Close()
	r.base.close()
}
