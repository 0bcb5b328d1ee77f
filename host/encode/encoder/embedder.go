package encoder

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/host/encode/folder"
	"github.com/opgraft/graft/host/onnx/model"
)

// Embedding is what a text becomes: what the folder's model gives, which is mostly one of these.
type Embedding struct {
	Dense  []float32
	Sparse Sparse
	Tokens folder.Rows // a vector for each token that counts
}

// Sparse is a vector of which most numbers are 0.
type Sparse struct {
	Indices []int32 // of the numbers that are not 0, the least first
	Weights []float32
	Width   int
}

// Gives is what a model gives of a text.
type Gives struct{ Dense, Sparse, Tokens bool }

// As says what a text is.
type As struct {
	Task   folder.Task // a query, a document, or neither
	Prompt string      // the name of the prompt before it; "" for the task's, or the configuration's default
}

// Embedder turns texts into vectors. It is safe for concurrent use.
type Embedder struct {
	routes  map[folder.Task]*route
	errs    map[folder.Task]error // why there is no route
	all     []*route
	batcher *batch.Batcher[Row, Embedding]
}

// OpenEmbedder opens a folder as sentence-transformers or optimum saves it. A context that ends ends that soon.
func OpenEmbedder(ctx context.Context, path string, o Options) (*Embedder, error) {
	return model.ReadAgainIfChanged(func() (*Embedder, error) { return openEmbedder(ctx, path, o) })
}

func openEmbedder(ctx context.Context, path string, o Options) (opened *Embedder, err error) {
	f, err := readFolder(path, o)
	if err != nil {
		return nil, err
	}
	if !slices.Contains([]string{"", "SentenceTransformer", "SparseEncoder", "MultiVectorEncoder", "ColBERT"}, f.Kind) {
		return nil, &diagnostic.Error{Path: path, Found: "a folder of a " + diagnostic.Clip(f.Kind),
			Needed: "that of a SentenceTransformer, SparseEncoder or MultiVectorEncoder",
			Fix:    "graft rerank opens a CrossEncoder"}
	}
	e := &Embedder{routes: map[folder.Task]*route{}, errs: map[folder.Task]error{}}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	graphs, parts := map[string]*runner{}, map[*folder.Folder]*route{}
	for _, task := range []folder.Task{"", folder.Query, folder.Document} {
		part, err := f.For(task)
		if err != nil {
			e.errs[task] = err
			continue
		}
		r := parts[part]
		if r == nil {
			b, err := openPart(ctx, path, part, o, graphs)
			if err != nil {
				return nil, err
			}
			r = &route{base: b, options: o}
			e.all = append(e.all, r)
			if err := r.choose(path, o); err != nil {
				return nil, err
			}
			parts[part] = r
		}
		e.routes[task] = r
	}
	if len(e.all) == 0 {
		return nil, e.errs[folder.Query]
	}
	for _, r := range e.all[1:] {
		if r.gives != e.all[0].gives || r.width != e.all[0].width && r.width > 0 && e.all[0].width > 0 {
			return nil, &diagnostic.Error{Path: path,
				Found:  fmt.Sprintf("routes of %d and of %d dimensions", e.all[0].width, r.width),
				Needed: "vectors that can be compared"}
		}
	}
	batching := e.all[0].batching(o)
	for _, r := range e.all {
		batching.Unpadded = batching.Unpadded && (r.runner == nil || r.unpadded || o.Batch.Unpadded)
	}
	e.batcher = batch.New(e.run, batching)
	return e, nil
}

// Prompts are the texts that the model's configuration puts before others, by name.
func (e *Embedder) Prompts() map[string]string { return e.all[0].folder.Prompts }

// MaxTokens is the number of tokens to which texts of a task are cut; 0 for no limit.
func (e *Embedder) MaxTokens(task folder.Task) int {
	r := e.routes[task]
	if r == nil {
		return 0
	}
	return r.limit(task)
}

// Dimensions is the width of a vector; 0 where the model does not say it before it runs.
func (e *Embedder) Dimensions() int { return e.all[0].width }

// Gives is what the model gives of a text.
func (e *Embedder) Gives() Gives { return e.all[0].gives }

// Token is the token that a number of a sparse vector is of; "" where it is of none.
func (e *Embedder) Token(index int32) string {
	if r := e.all[0]; r.folder.Vocabulary || r.gives.Dense {
		token, _ := r.tokenizer.Token(int64(index))
		return token
	}
	return ""
}

// of is the way of texts of a task.
func (e *Embedder) of(task folder.Task) (*route, error) {
	r := e.routes[task]
	switch {
	case r == nil && e.errs[task] != nil:
		return nil, e.errs[task]
	case r == nil:
		return nil, &diagnostic.Error{Found: fmt.Sprintf("the task %q", diagnostic.Clip(string(task))),
			Needed: "query or document"}
	case r.folder.Late != nil && task == "":
		return nil, &diagnostic.Error{Path: r.folder.Path, Found: "a text that is neither a query nor a document",
			Needed: "one of the two, which the model marks", Fix: "say which: Task, --task"}
	}
	return r, nil
}

// Row makes tokens of a text.
func (e *Embedder) Row(ctx context.Context, s string, as As) (Row, error) {
	r, err := e.of(as.Task)
	if err != nil {
		return Row{}, err
	}
	return r.encoded(ctx, s, as)
}

// Start begins to compute the vectors of a row, in a batch with others.
func (e *Embedder) Start(ctx context.Context, r Row, room bool) (*batch.Call[Row, Embedding], error) {
	return e.batcher.Start(ctx, r, room)
}

// Alone computes the vectors of one row by itself, beside all others: what the batcher is compared with.
func (e *Embedder) Alone(ctx context.Context, r Row) (Embedding, error) {
	list, err := e.run(ctx, []Row{r})
	if err != nil {
		return Embedding{}, err
	}
	return list[0], nil
}

// run computes rows, those of a route together.
func (e *Embedder) run(ctx context.Context, rows []Row) ([]Embedding, error) {
	out, of := make([]Embedding, len(rows)), map[*route][]int{}
	for i, r := range rows {
		of[r.of] = append(of[r.of], i)
	}
	for r, numbers := range of {
		part := make([]Row, len(numbers))
		for k, i := range numbers {
			part[k] = rows[i]
		}
		made, err := r.embed(ctx, part)
		if err != nil {
			return nil, err
		}
		for k, i := range numbers {
			out[i] = made[k]
		}
	}
	return out, nil
}

// Metrics is what the batches did.
func (e *Embedder) Metrics() batch.Metrics { return e.batcher.Metrics() }

// MaxQueue is the number of rows that may wait.
func (e *Embedder) MaxQueue() int { return e.batcher.MaxQueue() }

// Close refuses what waits, lets what runs end, and frees the model.
func (e *Embedder) Close() {
	e.batcher.Close()
	e.close()
}

func (e *Embedder) close() {
	graphs := map[*runner]bool{}
	for _, r := range e.all {
		if r.runner != nil {
			graphs[r.runner] = true
		}
	}
	for g := range maps.Keys(graphs) {
		g.close()
	}
}

// noPrompt is the error of a prompt that a folder does not have.
func noPrompt(name string) error {
	return &diagnostic.Error{Found: fmt.Sprintf("no prompt %q", diagnostic.Clip(name)),
		Needed: "one that the model has in config_sentence_transformers.json"}
}
