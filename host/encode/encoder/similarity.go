package encoder

import (
	"context"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/host/encode/folder"
	"github.com/opgraft/graft/host/generate/pipeline"
)

// Ranker scores how well documents answer a query: a Reranker reads them together, and an Embedder compares their
// vectors.
type Ranker interface {
	Run(ctx context.Context, read func() (string, error),
		parse func(string) (query string, documents []string, err error), top int, write func(Ranking) error,
		p pipeline.Options) (*Summary, error)
	Metrics() batch.Metrics
	MaxQueue() int
	Close()
}

// Comparer is an Embedder whose vectors of queries and documents are compared as similarity_fn_name says.
type Comparer struct {
	*Embedder
	similar func(query, document Embedding) float64
}

// similarities are sentence-transformers' by name: of dense and sparse vectors, and of vectors of tokens.
var similarities = [2]map[string]func(q, d Embedding) float64{{
	"cosine": func(q, d Embedding) float64 {
		return product(q, d) / max(math.Sqrt(product(q, q)), 1e-12) / max(math.Sqrt(product(d, d)), 1e-12)
	},
	"dot": product,
	"euclidean": func(q, d Embedding) float64 {
		return -math.Sqrt(apart(q, d, func(x float64) float64 { return x * x }))
	},
	"manhattan": func(q, d Embedding) float64 { return -apart(q, d, math.Abs) },
}, {
	"maxsim": maxSim,
	"MaxSim": maxSim, // PyLate's name
	"meanmaxsim": func(q, d Embedding) float64 {
		return maxSim(q, d) / max(float64(len(q.Tokens.List())), 1)
	},
}}

// product is the dot product.
func product(q, d Embedding) (sum float64) {
	both(q, d, func(a, b float64) { sum += a * b })
	return sum
}

func apart(q, d Embedding, of func(float64) float64) (sum float64) {
	both(q, d, func(a, b float64) { sum += of(a - b) })
	return sum
}

// both hands over the numbers of two vectors, without those that are 0 in both of two sparse ones.
func both(q, d Embedding, each func(a, b float64)) {
	if len(q.Dense) != len(d.Dense) { // routes of other widths
		each(math.NaN(), math.NaN())
		return
	}
	for i, x := range q.Dense {
		each(float64(x), float64(d.Dense[i]))
	}
	a, b := q.Sparse, d.Sparse
	for i, j := 0, 0; i < len(a.Indices) || j < len(b.Indices); {
		switch {
		case j == len(b.Indices) || i < len(a.Indices) && a.Indices[i] < b.Indices[j]:
			each(float64(a.Weights[i]), 0)
			i++
		case i == len(a.Indices) || b.Indices[j] < a.Indices[i]:
			each(0, float64(b.Weights[j]))
			j++
		default:
			each(float64(a.Weights[i]), float64(b.Weights[j]))
			i, j = i+1, j+1
		}
	}
}

// maxSim is the sum of the greatest product that each token of a query has with one of a document (Khattab and Zaharia
// 2020, equation 3). A document without tokens is below all others.
func maxSim(q, d Embedding) (sum float64) {
	documents := d.Tokens.List()
	if len(documents) == 0 {
		return -1e9
	}
	for _, a := range q.Tokens.List() {
		best := math.Inf(-1)
		for _, b := range documents {
			best = max(best, product(Embedding{Dense: a}, Embedding{Dense: b}))
		}
		sum += best
	}
	return sum
}

// OpenRanker opens the folder of a cross-encoder, or of an embedder that says it is one.
func OpenRanker(ctx context.Context, path string, o Options) (Ranker, error) {
	f, err := readFolder(path, o)
	if err != nil {
		return nil, err
	}
	if f.Kind == "CrossEncoder" || f.Kind == "" && f.Input == nil && f.Routes == nil {
		return OpenReranker(ctx, path, o)
	}
	if o.Raw {
		return nil, &diagnostic.Error{Path: path,
			Found:  "a folder of a " + diagnostic.Clip(f.Kind) + ", which has no logits",
			Needed: "that of a CrossEncoder", Fix: "leave out RawScores or --raw"}
	}
	e, err := OpenEmbedder(ctx, path, o)
	if err != nil {
		return nil, err
	}
	of, name := similarities[0], "cosine"
	switch gives := e.Gives(); {
	case gives.Dense && (gives.Sparse || gives.Tokens):
		e.Close()
		return nil, &diagnostic.Error{Path: path, Found: "a graph of dense vectors with sparse ones or those of tokens",
			Needed: "one of these, by which documents are compared", Fix: "compare what graft embed -o jsonl gives"}
	case gives.Tokens:
		of, name = similarities[1], "maxsim"
	case gives.Sparse:
		name = "dot"
	}
	if f.Similarity != "" {
		name = f.Similarity
	}
	if of[name] == nil {
		e.Close()
		return nil, &diagnostic.Error{Path: filepath.Join(path, "config_sentence_transformers.json"),
			Found:  fmt.Sprintf("similarity_fn_name is %q", diagnostic.Clip(name)),
			Needed: "one of " + strings.Join(slices.Sorted(maps.Keys(of)), ", ")}
	}
	return &Comparer{e, of[name]}, nil
}

// Query makes tokens of a query.
func (c *Comparer) Query(ctx context.Context, s string) (Row, error) {
	return c.Row(ctx, s, As{Task: folder.Query})
}

// Document makes tokens of a document.
func (c *Comparer) Document(ctx context.Context, s string) (Row, error) {
	return c.Row(ctx, s, As{Task: folder.Document})
}

// Rows are those of a query and of its documents.
func (c *Comparer) Rows(ctx context.Context, query string, documents []string) ([]Row, error) {
	rows := make([]Row, len(documents)+1)
	var err error
	if rows[0], err = c.Query(ctx, query); err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	for i, d := range documents {
		if rows[i+1], err = c.Document(ctx, d); err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}
	}
	return rows, nil
}

// Scores are those of the documents, of what Rows became.
func (c *Comparer) Scores(made []Embedding) []float32 {
	scores := make([]float32, len(made)-1)
	for i := range scores {
		scores[i] = float32(c.similar(made[0], made[i+1]))
	}
	return scores
}

// Run is Ranker's.
func (c *Comparer) Run(ctx context.Context, read func() (string, error),
	parse func(string) (query string, documents []string, err error), top int, write func(Ranking) error,
	p pipeline.Options) (*Summary, error) {
	began := time.Now()
	lines, failed, err := streamed(ctx, read, func(line string) ([]Row, error) {
		query, documents, err := parse(line)
		if err != nil {
			return nil, err
		}
		return c.Rows(ctx, query, documents)
	}, c.Start, func(index int, made []Embedding) (Ranking, error) { return ranking(index, c.Scores(made), top) },
		func(index int, err error) Ranking { return Ranking{Index: index, Error: err.Error()} }, write, p)
	return summary(c.Metrics(), lines, failed, began), err
}
