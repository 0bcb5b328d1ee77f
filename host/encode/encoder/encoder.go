// Package encoder turns texts into vectors, and queries with documents into scores, with a folder of an exported
// encoder and its tokenizer, as sentence-transformers does. Texts of all callers share batches (host/encode/batch).
package encoder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/memory/shared"
	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/host/encode/folder"
	"github.com/opgraft/graft/host/generate/text"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
)

// Options say how a folder is opened.
type Options struct {
	Library    *ort.Library
	Plugins    *loaded.Set // nil for none: the model runs as exported
	Plan       plan.Options
	MapWeights bool
	Share      shared.Wish       // of weights, with other processes
	Threads    int               // of an operator; 0 is one a core
	Config     map[string]string // entries of the session's configuration
	Logger     *slog.Logger      // nil for silence
	ModelFile  string            // the graph, below the folder; "" finds it
	MaxInput   int               // tokens to which inputs are cut; 0 is as the model's configuration says
	Pooling    []string          // in place of the configuration's; nil for that
	Normalize  bool              // vectors have the length 1, also where the configuration does not say so
	Raw        bool              // scores are logits
	Batch      batch.Options[Row]
}

// base is what all encoders have.
type base struct {
	*runner
	folder    *folder.Folder
	tokenizer *text.Tokenizer
	longest   int  // tokens of an input; 0 for no limit
	cutsLeft  bool // what is longer loses its first tokens

	conversation *conversation // that pairs of texts are; nil where they are none
}

// open reads a folder.
func open(ctx context.Context, folder string, o Options) (*base, error) {
	return model.ReadAgainIfChanged(func() (*base, error) { return openOnce(ctx, folder, o) })
}

func openOnce(ctx context.Context, path string, o Options) (b *base, err error) {
	b = &base{}
	file, err := graphFile(path, o.ModelFile)
	if err != nil {
		return nil, err
	}
	if b.folder, err = folder.Read(path); err != nil {
		return nil, err
	}
	if b.tokenizer, err = text.Open(b.folder.Path); err != nil {
		return nil, err
	}
	cuts, pads := b.tokenizer.Sides()
	b.cutsLeft = b.folder.Cuts.Left(cuts)
	if b.runner, err = openSession(ctx, file, o); err != nil {
		return nil, err
	}
	if err := b.paddable(b.folder.Pads.Left(pads)); err != nil {
		b.close()
		return nil, err
	}
	b.pad = b.folder.Pad
	b.longest = b.folder.MaxTokens
	for _, n := range []int{b.positions, o.MaxInput} {
		if n > 0 && (b.longest == 0 || n < b.longest) {
			b.longest = n
		}
	}
	if b.folder.Chat != nil {
		if err := b.converse(); err != nil {
			b.close()
			return nil, err
		}
	}
	return b, nil
}

// paddable refuses a folder that pads on the left where the graph counts its positions from the first column: a text's
// vector would depend on the texts beside it, as it does in sentence-transformers.
func (b *base) paddable(left bool) error {
	fed := slices.ContainsFunc(b.inputs, func(in input) bool { return in.role == roles.Positions })
	if !left || b.positions == 0 || fed {
		return nil
	}
	return &diagnostic.Error{Path: filepath.Join(b.folder.Path, "tokenizer_config.json"),
		Found: "padding_side is left, and " +
			"the graph counts positions from the first column: a text's vector would depend on the length of others",
		Needed: "right, or a graph with an input of positions",
		Fix:    "set padding_side to right: each text then has the vector that it has alone"}
}

// row makes tokens of a text, or of two.
func (b *base) row(texts ...string) (Row, error) { return b.rowOf(text.EncodeOptions{}, texts...) }

// judged makes tokens of a text and a hypothesis, which is not cut.
func (b *base) judged(premise, hypothesis string) (Row, error) {
	return b.rowOf(text.EncodeOptions{OnlyFirst: true}, premise, hypothesis)
}

func (b *base) rowOf(o text.EncodeOptions, texts ...string) (Row, error) {
	var e text.Encoding
	var err error
	o.MaxLength, o.TruncateLeft = b.longest, b.cutsLeft
	if len(texts) == 2 {
		e, err = b.tokenizer.EncodePair(texts[0], texts[1], o)
	} else {
		e, err = b.tokenizer.EncodeTyped(texts[0], o)
	}
	if err == nil && len(e.IDs) == 0 {
		err = errors.New("the text has no tokens")
	}
	r := Row{IDs: e.IDs, Types: e.Types}
	if !b.folder.Types {
		r.Types = nil
	}
	return r, err
}

// batching is how rows become batches: of any lengths where padding costs nothing.
func (b *base) batching(o Options) batch.Options[Row] {
	o.Batch.Length = Row.Length
	o.Batch.Unpadded = o.Batch.Unpadded || b.unpadded
	return o.Batch
}

// Embedder turns texts into vectors. It is safe for concurrent use.
type Embedder struct {
	base    *base
	output  ort.ValueInfo
	pool    *folder.Pooling // the last one; nil where the graph's output is the vector
	modules []folder.Module
	width   int // of a vector; 0 where the model does not say it
	batcher *batch.Batcher[Row, []float32]
}

// OpenEmbedder opens a folder as sentence-transformers or optimum saves it. A context that ends ends that soon.
func OpenEmbedder(ctx context.Context, path string, o Options) (e *Embedder, err error) {
	b, err := open(ctx, path, o)
	if err != nil {
		return nil, err
	}
	e = &Embedder{base: b}
	if err := e.choose(path, o); err != nil {
		b.close()
		return nil, err
	}
	e.batcher = batch.New(e.run, e.base.batching(o))
	return e, nil
}

// choose decides which output is used, and how it becomes a vector.
func (e *Embedder) choose(path string, o Options) error {
	b := e.base
	if kind := b.folder.Kind; kind != "" && kind != "SentenceTransformer" {
		return &diagnostic.Error{Path: path, Found: "a folder of a " + diagnostic.Clip(kind),
			Needed: "that of a SentenceTransformer", Fix: "graft rerank opens a CrossEncoder"}
	}
	whole, hasWhole := b.output(2, "sentence_embedding")
	hasWhole = hasWhole && whole.Name != "logits"
	states, hasStates := b.output(3, "token_embeddings", "last_hidden_state")
	modules, unfit := b.folder.Modules, b.folder.Unfit
	switch {
	case len(o.Pooling) > 0 && hasStates:
		pool := &folder.Pooling{Modes: o.Pooling, Prompt: true}
		if p := b.folder.Pooling(); p != nil {
			pool.Prompt = p.Prompt
		}
		e.pool, modules, unfit = pool, []folder.Module{pool}, nil
	case len(o.Pooling) > 0:
		return &diagnostic.Error{Path: b.path, Found: "no output of hidden states to pool among " + b.listed(),
			Needed: "one of shape [batch, sequence, width]", Fix: "leave out the pooling"}
	case hasWhole && (whole.Name == "sentence_embedding" || !hasStates) && !b.needsStates(hasStates):
		// The graph is the whole way.
		e.output, e.modules = whole, after(b.folder, o)
		return e.check(path, folder.Widths{folder.TokenEmbeddings: -1, folder.Scores: -1,
			folder.SentenceEmbedding: int(max(whole.Shape[1], 0))})
	case !hasStates:
		return &diagnostic.Error{Path: b.path, Found: "the outputs " + b.listed(),
			Needed: "hidden states [batch, sequence, width], or sentence_embedding [batch, width]",
			Fix:    "export the model for feature-extraction"}
	case unfit != nil:
		return unfit
	case b.folder.Pooling() != nil:
		e.pool = b.folder.Pooling()
	case b.folder.Given:
		return &diagnostic.Error{Path: filepath.Join(path, "modules.json"), Found: "no Pooling",
			Needed: "one after the Transformer"}
	default:
		return &diagnostic.Error{Path: path,
			Found:  "nothing says how the model pools: no modules.json with a Pooling, no output sentence_embedding",
			Needed: "the pooling that the model was trained with",
			Fix:    `say it: --pooling mean --normalize, or graft.Pooling("mean") and graft.Normalize()`}
	}
	e.output, e.modules = states, slices.Concat(modules, after(b.folder, o))
	return e.check(path, folder.Widths{folder.TokenEmbeddings: int(max(states.Shape[2], 0)), folder.SentenceEmbedding: -1,
		folder.Scores: -1})
}

// needsStates is whether the folder's own modules are taken in place of a vector of the graph's: it counts the tokens
// of prompts, which the folder does not.
func (b *base) needsStates(has bool) bool {
	p := b.folder.Pooling()
	return has && b.folder.Unfit == nil && p != nil && !p.Prompt && len(b.folder.Prompts) > 0
}

// after is what is done to a vector after the folder's modules: it is cut first.
func after(f *folder.Folder, o Options) (list []folder.Module) {
	if f.Truncate > 0 {
		list = append(list, folder.Truncate(f.Truncate))
	}
	if o.Normalize {
		list = append(list, folder.Normalize())
	}
	return list
}

// check follows the widths through the modules.
func (e *Embedder) check(path string, w folder.Widths) error {
	for _, m := range e.modules {
		if err := m.Check(w); err != nil {
			return err
		}
	}
	e.width = w[folder.SentenceEmbedding]
	return nil
}

// Prompts are the texts that the model's configuration puts before others, by name.
func (e *Embedder) Prompts() map[string]string { return e.base.folder.Prompts }

// MaxTokens is the number of tokens to which texts are cut; 0 for no limit.
func (e *Embedder) MaxTokens() int { return e.base.longest }

// Dimensions is the width of a vector; 0 where the model does not say it before it runs.
func (e *Embedder) Dimensions() int { return e.width }

// Row makes tokens of a text, with the prompt of that name before it; "" is the configuration's default, which may be
// none.
func (e *Embedder) Row(s, prompt string) (Row, error) {
	b, f := e.base, e.base.folder
	if prompt == "" {
		prompt = f.Prompt
	}
	before := ""
	if prompt != "" {
		var ok bool
		if before, ok = f.Prompts[prompt]; !ok {
			return Row{}, &diagnostic.Error{Found: fmt.Sprintf("no prompt %q", prompt),
				Needed: "one that the model has in config_sentence_transformers.json"}
		}
	}
	if p := f.Pooling(); before != "" && e.pool == nil && p != nil && !p.Prompt {
		return Row{}, &diagnostic.Error{Path: b.path, Found: "an output sentence_embedding, which counts a prompt's tokens",
			Needed: "hidden states: include_prompt is false in the Pooling"}
	}
	r, err := b.row(f.Clean(before + s))
	if err != nil || before == "" || e.pool == nil || e.pool.Prompt {
		return r, err
	}
	// The prompt's tokens do not count; the special token after it is none of them.
	alone, err := b.row(f.Clean(before))
	if err != nil {
		return Row{}, err
	}
	r.prompt = len(alone.IDs)
	if b.tokenizer.Special(alone.IDs[r.prompt-1]) {
		r.prompt--
	}
	return r, nil
}

// Start begins to compute the vector of a row, in a batch with others.
func (e *Embedder) Start(ctx context.Context, r Row, room bool) (*batch.Call[Row, []float32], error) {
	return e.batcher.Start(ctx, r, room)
}

// Alone computes the vector of one row by itself, beside all others: what the batcher is compared with.
func (e *Embedder) Alone(ctx context.Context, r Row) ([]float32, error) {
	vectors, err := e.run(ctx, []Row{r})
	if err != nil {
		return nil, err
	}
	return vectors[0], nil
}

func (e *Embedder) run(ctx context.Context, rows []Row) ([][]float32, error) {
	out := make([][]float32, len(rows))
	err := e.base.run(ctx, rows, e.output, func(i int, values []float32, width int) error {
		f := folder.Features{Length: rows[i].Length(), Prompt: rows[i].prompt}
		if e.pool != nil {
			f.Tokens = folder.Rows{Values: values[:f.Length*width], Width: width}
		} else {
			f.Vector = append([]float32(nil), values[:min(width, len(values))]...)
		}
		for _, m := range e.modules {
			if err := m.Apply(&f); err != nil {
				return err
			}
		}
		out[i] = f.Vector
		return nil
	})
	return out, err
}

// Metrics is what the batches did.
func (e *Embedder) Metrics() batch.Metrics { return e.batcher.Metrics() }

// MaxQueue is the number of rows that may wait.
func (e *Embedder) MaxQueue() int { return e.batcher.MaxQueue() }

// Close refuses what waits, lets what runs end, and frees the model.
func (e *Embedder) Close() {
	e.batcher.Close()
	e.base.close()
}
