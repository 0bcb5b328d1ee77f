package encoder

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/host/ort"
)

// Reranker scores how well documents answer a query, as CrossEncoder of sentence-transformers does. It is safe for
// concurrent use.
type Reranker struct {
	base       *base
	output     ort.ValueInfo
	activation func(float64) float64
	batcher    *batch.Batcher[Row, float32]
}

// OpenReranker opens a folder of a model for text classification with one label. A context that ends ends that soon.
func OpenReranker(ctx context.Context, folder string, o Options) (*Reranker, error) {
	b, err := open(ctx, folder, o)
	if err != nil {
		return nil, err
	}
	r := &Reranker{base: b}
	if err := r.choose(folder, o); err != nil {
		b.close()
		return nil, err
	}
	r.batcher = batch.New(r.run, b.batching(o))
	return r, nil
}

func (r *Reranker) choose(folder string, o Options) error {
	b := r.base
	var ok bool
	if r.output, ok = b.output(2, "logits"); !ok {
		return &diagnostic.Error{Path: b.path, Found: "the outputs " + b.listed(), Needed: "logits [batch, 1]",
			Fix: "export the model for text-classification"}
	}
	if n := r.output.Shape[1]; n > 1 {
		return notOne(b.path, n)
	}
	if o.Raw {
		r.activation = activations["Identity"]
		return nil
	}
	name, path := "", filepath.Join(b.modules.folder, "config.json")
	switch c := b.config; {
	case c.Sentence.Activation != nil:
		name = *c.Sentence.Activation
	case c.OldActivation != nil:
		name = *c.OldActivation
	}
	r.activation = activations["Sigmoid"] // what CrossEncoder takes for one label
	if name != "" {
		if r.activation, ok = activation(name); !ok {
			return &diagnostic.Error{Path: path, Found: fmt.Sprintf("the activation %q", diagnostic.Clip(name)),
				Needed: "Identity, Tanh, Sigmoid, ReLU, GELU or SiLU of torch.nn",
				Fix:    "ask for logits (RawScores, --raw)"}
		}
	}
	return nil
}

func notOne(path string, n int64) error {
	return &diagnostic.Error{Path: path, Found: fmt.Sprintf("logits of %d labels", n),
		Needed: "one: a score, by which documents can be sorted"}
}

// Row makes tokens of a query and a document.
func (r *Reranker) Row(query, document string) (Row, error) { return r.base.row(query, document) }

// MaxTokens is the number of tokens to which pairs are cut; 0 for no limit.
func (r *Reranker) MaxTokens() int { return r.base.longest }

// Start begins to compute the score of a row, in a batch with others.
func (r *Reranker) Start(ctx context.Context, row Row, room bool) (*batch.Call[Row, float32], error) {
	return r.batcher.Start(ctx, row, room)
}

func (r *Reranker) run(ctx context.Context, rows []Row) ([]float32, error) {
	out := make([]float32, len(rows))
	err := r.base.run(ctx, rows, r.output, func(i int, values []float32, width int) error {
		if width != 1 || len(values) != 1 {
			return notOne(r.base.path, int64(width))
		}
		out[i] = float32(r.activation(float64(values[0])))
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
