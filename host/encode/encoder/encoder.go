// Package encoder turns texts into vectors, and queries with documents into scores, with a folder of an exported
// encoder and its tokenizer, as sentence-transformers does. Texts of all callers share batches (host/encode/batch).
package encoder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/memory/shared"
	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/host/generate/text"
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
	*session
	modules   *modules
	config    *config
	tokenizer *text.Tokenizer
	longest   int // tokens of an input; 0 for no limit
}

// open reads a folder.
func open(ctx context.Context, folder string, o Options) (*base, error) {
	return model.ReadAgainIfChanged(func() (*base, error) { return openOnce(ctx, folder, o) })
}

func openOnce(ctx context.Context, folder string, o Options) (b *base, err error) {
	b = &base{}
	path, err := graphFile(folder, o.ModelFile)
	if err != nil {
		return nil, err
	}
	if b.modules, err = readModules(folder); err != nil {
		return nil, err
	}
	if b.config, err = readConfig(b.modules.folder); err != nil {
		return nil, err
	}
	if b.tokenizer, err = text.Open(b.modules.folder); err != nil {
		return nil, err
	}
	if b.session, err = openSession(ctx, path, o); err != nil {
		return nil, err
	}
	b.pad = b.config.pad()
	b.longest = b.modules.longest
	if b.longest == 0 {
		b.longest = b.config.limit()
	}
	for _, n := range []int{b.positions, o.MaxInput} {
		if n > 0 && (b.longest == 0 || n < b.longest) {
			b.longest = n
		}
	}
	return b, nil
}

// strip takes off blanks around a text, those of Python's str.strip.
func strip(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f })
}

// clean is a text as sentence-transformers tokenizes it.
func (b *base) clean(s string) string {
	s = strip(s)
	if b.modules.lower {
		s = lower(s)
	}
	return s
}

// row makes tokens of a text, or of two.
func (b *base) row(texts ...string) (Row, error) {
	var e text.Encoding
	var err error
	o := text.EncodeOptions{MaxLength: b.longest}
	if len(texts) == 2 {
		e, err = b.tokenizer.EncodePair(texts[0], texts[1], o)
	} else {
		e, err = b.tokenizer.EncodeTyped(texts[0], o)
	}
	if err == nil && len(e.IDs) == 0 {
		err = errors.New("the text has no tokens")
	}
	return Row{IDs: e.IDs, Types: e.Types}, err
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
	pool    *pooling // nil where the graph's output is the vector
	after   []step
	width   int // of a vector; 0 where the model does not say it
	batcher *batch.Batcher[Row, []float32]
}

// OpenEmbedder opens a folder as sentence-transformers or optimum saves it. A context that ends ends that soon.
func OpenEmbedder(ctx context.Context, folder string, o Options) (e *Embedder, err error) {
	b, err := open(ctx, folder, o)
	if err != nil {
		return nil, err
	}
	e = &Embedder{base: b}
	if err := e.choose(folder, o); err != nil {
		b.close()
		return nil, err
	}
	e.batcher = batch.New(e.run, e.base.batching(o))
	return e, nil
}

// choose decides which output is used, and how it becomes a vector.
func (e *Embedder) choose(folder string, o Options) error {
	b := e.base
	whole, hasWhole := b.output(2, "sentence_embedding")
	hasWhole = hasWhole && whole.Name != "logits"
	states, hasStates := b.output(3, "token_embeddings", "last_hidden_state")
	switch {
	case len(o.Pooling) > 0 && hasStates:
		e.pool = &pooling{modes: o.Pooling, prompt: true}
		if b.modules.pooling != nil {
			e.pool.prompt = b.modules.pooling.prompt
		}
	case len(o.Pooling) > 0:
		return &diagnostic.Error{Path: b.path, Found: "no output of hidden states to pool among " + b.listed(),
			Needed: "one of shape [batch, sequence, width]", Fix: "leave out the pooling"}
	case hasWhole && (whole.Name == "sentence_embedding" || !hasStates): // of which the graph is the whole way
		e.output, e.width = whole, int(max(whole.Shape[1], 0))
		if o.Normalize {
			e.after = []step{normalize{}}
		}
		return nil
	case !hasStates:
		return &diagnostic.Error{Path: b.path, Found: "the outputs " + b.listed(),
			Needed: "hidden states [batch, sequence, width], or sentence_embedding [batch, width]",
			Fix:    "export the model for feature-extraction"}
	case b.modules.pooling != nil:
		e.pool = b.modules.pooling
	default:
		return &diagnostic.Error{Path: folder,
			Found:  "nothing says how the model pools: no modules.json with a Pooling, no output sentence_embedding",
			Needed: "the pooling that the model was trained with",
			Fix:    `say it: --pooling mean --normalize, or graft.Pooling("mean") and graft.Normalize()`}
	}
	e.output, e.after = states, b.modules.after
	if o.Normalize {
		e.after = append(e.after[:len(e.after):len(e.after)], normalize{})
	}
	width := int(states.Shape[2])
	if n := e.pool.width; n > 0 && width > 0 && n != width {
		return &diagnostic.Error{Path: b.path, Found: fmt.Sprintf("hidden states of width %d", width),
			Needed: fmt.Sprintf("%d, as the Pooling says", n)}
	}
	at := max(width, 0) * len(e.pool.modes)
	for _, s := range e.after {
		if d, ok := s.(*dense); ok && at > 0 && d.in != at {
			return &diagnostic.Error{Path: folder, Found: fmt.Sprintf("a Dense that reads %d numbers after %d", d.in, at),
				Needed: "as many"}
		}
		at = s.width(at)
	}
	e.width = at
	return nil
}

// Prompts are the texts that the model's configuration puts before others, by name.
func (e *Embedder) Prompts() map[string]string { return e.base.modules.prompts }

// MaxTokens is the number of tokens to which texts are cut; 0 for no limit.
func (e *Embedder) MaxTokens() int { return e.base.longest }

// Dimensions is the width of a vector; 0 where the model does not say it before it runs.
func (e *Embedder) Dimensions() int { return e.width }

// Row makes tokens of a text, with the prompt of that name before it; "" is the configuration's default, which may be
// none.
func (e *Embedder) Row(s, prompt string) (Row, error) {
	b := e.base
	if prompt == "" {
		prompt = b.modules.prompt
	}
	before := ""
	if prompt != "" {
		var ok bool
		if before, ok = b.modules.prompts[prompt]; !ok {
			return Row{}, &diagnostic.Error{Found: fmt.Sprintf("no prompt %q", prompt),
				Needed: "one that the model has in config_sentence_transformers.json"}
		}
	}
	r, err := b.row(b.clean(before + s))
	if err != nil || before == "" || e.pool == nil || e.pool.prompt {
		return r, err
	}
	// The prompt's tokens do not count; the special token after it is none of them.
	alone, err := b.row(b.clean(before))
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
		v := append([]float32(nil), values[:min(width, len(values))]...)
		if e.pool != nil {
			v = e.pool.apply(values, width, rows[i].Length(), rows[i].prompt)
		}
		for _, s := range e.after {
			if d, ok := s.(*dense); ok && d.in != len(v) {
				return &diagnostic.Error{Path: e.base.path, Found: fmt.Sprintf("a vector of %d numbers before a Dense", len(v)),
					Needed: fmt.Sprint(d.in)}
			}
			v = s.apply(v)
		}
		out[i] = v
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
