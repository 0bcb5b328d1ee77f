package encoder

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/host/generate/pipeline"
)

// Vector is what one line became.
type Vector struct {
	Index  int         `json:"index"` // the line's number, from 0
	Values []float32   `json:"embedding,omitempty"`
	Sparse *Weights    `json:"sparse_embedding,omitempty"` // the numbers that are not 0
	Tokens [][]float32 `json:"token_embeddings,omitempty"` // of the tokens that count
	Error  string      `json:"error,omitempty"`            // why there is none
}

// Weights are the numbers of a sparse vector that are not 0.
type Weights struct {
	Indices []int32   `json:"indices"` // the least first
	Weights []float32 `json:"weights"`
	Tokens  []string  `json:"tokens,omitempty"` // of a vector with a number for each token
}

// Ranking is what the documents of one line became, the best first.
type Ranking struct {
	Index   int        `json:"index"`
	Results []Document `json:"results,omitempty"`
	Error   string     `json:"error,omitempty"`
}

// Document is one of a line, with its score.
type Document struct {
	Document int     `json:"document"` // its number, from 0
	Score    float32 `json:"score"`
}

// Summary is a run in numbers.
type Summary struct {
	SchemaVersion int     `json:"schema_version"`
	Lines         int     `json:"lines"`
	Failed        int     `json:"failed"`
	Dimensions    int     `json:"dimensions,omitempty"` // of a vector
	Rows          int64   `json:"rows"`                 // texts, or pairs of a query and a document
	Tokens        int64   `json:"tokens"`
	Batches       int64   `json:"batches"`
	Padding       float64 `json:"padding"` // share of the tokens that were computed
	Seconds       float64 `json:"seconds"`
	RowsPerSecond float64 `json:"rows_per_second"`
}

// ahead is the number of lines whose results may be waited for at once.
const ahead = 1024

// streamed leads lines through rows and their results to what is written, in the order of the lines. A line that
// fails has an error in place of results.
func streamed[R, W any](ctx context.Context, read func() (string, error), encode func(string) ([]Row, error),
	start func(context.Context, Row, bool) (*batch.Call[Row, R], error), decode func(index int, results []R) (W, error),
	failed func(index int, err error) W,
	write func(W) error, p pipeline.Options) (lines, bad int, err error) {
	type outcome struct {
		results []R
		err     error
	}
	var wrong atomic.Int64
	err = pipeline.Run(ctx, pipeline.Stages[[]Row, outcome, W]{
		Read:   read,
		Encode: encode,
		Length: func(rows []Row) int {
			n := 0
			for _, r := range rows {
				n = max(n, r.Length())
			}
			return n
		},
		Device: func(ctx context.Context, next func() (*pipeline.Item[[]Row], error), done func(int, outcome) error) error {
			type begun struct {
				index int
				calls []*batch.Call[Row, R]
				err   error
			}
			queue, ended := make(chan begun, ahead), make(chan error, 1)
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() { // hands over what is there while more is begun
				var first error
				for b := range queue {
					o := outcome{results: make([]R, len(b.calls)), err: b.err}
					for i, c := range b.calls {
						r, err := c.Wait(ctx)
						o.results[i], o.err = r, cmp.Or(o.err, err)
					}
					if first == nil {
						if first = cmp.Or(context.Cause(ctx), done(b.index, o)); first != nil {
							cancel() // what is begun now ends at once
						}
					}
				}
				ended <- first
			}()
			var failure error
			for failure == nil {
				item, err := next()
				if item == nil || err != nil {
					failure = err
					break
				}
				b := begun{index: item.Index}
				for _, row := range item.Value {
					c, err := start(ctx, row, true)
					if err != nil {
						b.err = err
						break
					}
					b.calls = append(b.calls, c)
				}
				queue <- b
			}
			close(queue)
			return cmp.Or(failure, <-ended)
		},
		Decode: func(index int, o outcome) (W, error) {
			if o.err != nil {
				var none W
				return none, o.err
			}
			return decode(index, o.results)
		},
		Failed: func(index int, err error) (W, error) {
			wrong.Add(1)
			return failed(index, err), nil
		},
		Write: func(_ int, w W) error {
			lines++
			return write(w)
		},
	}, p)
	return lines, int(wrong.Load()), err
}

// Run embeds every line that read gives, and hands the vectors to write in the order of the lines.
func (e *Embedder) Run(ctx context.Context, read func() (string, error), as As, write func(Vector, Embedding) error,
	p pipeline.Options) (*Summary, error) {
	if err := e.Takes(as); err != nil {
		return nil, err
	}
	type line struct {
		Vector
		made Embedding
	}
	began := time.Now()
	lines, failed, err := streamed(ctx, read, func(text string) ([]Row, error) {
		row, err := e.Row(ctx, text, as)
		return []Row{row}, err
	}, e.Start, func(index int, results []Embedding) (line, error) {
		made := results[0]
		for _, list := range [][]float32{made.Dense, made.Sparse.Weights, made.Tokens.Values} {
			for _, x := range list {
				if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
					return line{}, fmt.Errorf("the model's vector has an element %v, needed are numbers", x)
				}
			}
		}
		return line{e.vector(index, made), made}, nil
	}, func(index int, err error) line { return line{Vector: Vector{Index: index, Error: err.Error()}} },
		func(l line) error { return write(l.Vector, l.made) }, p)
	s := summary(e.Metrics(), lines, failed, began)
	s.Dimensions = e.Dimensions()
	return s, err
}

// vector is what is written of an embedding.
func (e *Embedder) vector(index int, made Embedding) Vector {
	v := Vector{Index: index, Values: made.Dense}
	if e.Gives().Tokens {
		v.Tokens = made.Tokens.List()
	}
	if e.Gives().Sparse {
		v.Sparse = &Weights{Indices: made.Sparse.Indices, Weights: made.Sparse.Weights}
		for _, i := range made.Sparse.Indices {
			token := e.Token(i)
			if token == "" {
				v.Sparse.Tokens = nil
				break
			}
			v.Sparse.Tokens = append(v.Sparse.Tokens, token)
		}
	}
	return v
}

// Takes refuses a task or a prompt that a folder has not.
func (e *Embedder) Takes(as As) error {
	r, err := e.of(as.Task)
	if err == nil {
		_, _, err = r.prompt(as)
	}
	return err
}

// Run scores the documents of every line that read gives, which parse takes apart, and hands them to write in the
// order of the lines, the best of each first, at most top of them; 0 for all.
func (r *Reranker) Run(ctx context.Context, read func() (string, error),
	parse func(string) (query string, documents []string, err error), top int,
	write func(Ranking) error, p pipeline.Options) (*Summary, error) {
	began := time.Now()
	lines, failed, err := streamed(ctx, read, func(line string) ([]Row, error) {
		query, documents, err := parse(line)
		if err != nil {
			return nil, err
		}
		rows := make([]Row, len(documents))
		for i, d := range documents {
			if rows[i], err = r.Row(ctx, query, d); err != nil {
				return nil, fmt.Errorf("document %d: %w", i, err)
			}
		}
		return rows, nil
	}, r.Start, func(index int, scores []float32) (Ranking, error) { return ranking(index, scores, top) },
		func(index int, err error) Ranking { return Ranking{Index: index, Error: err.Error()} }, write, p)
	return summary(r.Metrics(), lines, failed, began), err
}

// ranking sorts the documents of a line, the best first.
func ranking(index int, scores []float32, top int) (Ranking, error) {
	out := Ranking{Index: index}
	for i, s := range scores {
		if f := float64(s); math.IsNaN(f) || math.IsInf(f, 0) {
			return Ranking{}, fmt.Errorf("document %d: the model's score is %v, needed is a number", i, s)
		}
		out.Results = append(out.Results, Document{i, s})
	}
	slices.SortStableFunc(out.Results, func(a, b Document) int { return cmp.Compare(b.Score, a.Score) })
	if top > 0 && top < len(out.Results) {
		out.Results = out.Results[:top]
	}
	return out, nil
}

func summary(m batch.Metrics, lines, failed int, began time.Time) *Summary {
	s := &Summary{SchemaVersion: 2, Lines: lines, Failed: failed, Rows: m.Computed, Tokens: m.Tokens, Batches: m.Batches,
		Padding: m.Padding(), Seconds: time.Since(began).Seconds()}
	s.RowsPerSecond = float64(s.Rows) / s.Seconds
	return s
}

// Prediction is what a line became: labels of the text, or entities in it.
type Prediction struct {
	Index    int      `json:"index"` // the line's number, from 0
	Labels   []Label  `json:"labels,omitempty"`
	Entities []Entity `json:"entities,omitzero"`
	Error    string   `json:"error,omitempty"` // why there are none
}

// Run answers the questions of every line that read gives, and hands the predictions to write in the order of the
// lines. With pairs a line is two texts with a tab between, which are read together.
func (p *Predictor) Run(ctx context.Context, read func() (string, error), pairs bool, write func(Prediction) error,
	o pipeline.Options) (*Summary, error) {
	return p.classifier.predict(ctx, read, func(line string) ([]Row, error) {
		if !pairs {
			return p.Rows(ctx, line)
		}
		first, second, ok := strings.Cut(line, "\t")
		if !ok {
			return nil, &diagnostic.Error{Found: "a line without a tab", Needed: "two texts with a tab between"}
		}
		return p.PairRows(ctx, first, second)
	}, func(index int, results []Scored) (Prediction, error) {
		labels, err := p.Labels(results)
		return Prediction{Index: index, Labels: labels}, err
	}, write, o)
}

// Run finds the entities of every line that read gives, and hands them to write in the order of the lines.
func (t *Tagger) Run(ctx context.Context, read func() (string, error), write func(Prediction) error,
	o pipeline.Options) (*Summary, error) {
	return t.classifier.predict(ctx, read, func(line string) ([]Row, error) {
		row, err := t.Row(ctx, line)
		return []Row{row}, err
	}, func(index int, results []Scored) (Prediction, error) {
		entities, err := t.Entities(results[0])
		return Prediction{Index: index, Entities: entities}, err
	}, write, o)
}

func (c *Classifier) predict(ctx context.Context, read func() (string, error), encode func(string) ([]Row, error),
	decode func(int, []Scored) (Prediction, error), write func(Prediction) error, o pipeline.Options) (*Summary, error) {
	began := time.Now()
	lines, failed, err := streamed(ctx, read, encode, c.Start, decode,
		func(index int, err error) Prediction { return Prediction{Index: index, Error: err.Error()} }, write, o)
	return summary(c.Metrics(), lines, failed, began), err
}
