package encoder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/host/encode/folder"
	"github.com/opgraft/graft/host/ort"
)

// scorer makes results of logits of rows: those of a text or a pair of texts, or of each of its tokens.
type scorer[R any] struct {
	base    *base
	output  ort.ValueInfo
	modules []folder.Module // between the graph's hidden states and the scores; nil where the graph gives logits
	tokens  bool            // logits are those of each token
	width   int             // logits of a text, or of a token; 0 where the model does not say it before it runs
	result  func(row Row, logits []float32) (R, error)
	batcher *batch.Batcher[Row, R]
}

// openScorer opens a folder of a model for classification, or of an encoder with modules that make scores of its hidden
// states. decide says what becomes of the logits, which may be overwritten.
func openScorer[R any](ctx context.Context, path string, o Options,
	decide func(*scorer[R]) (result func(row Row, logits []float32) (R, error), err error)) (*scorer[R], error) {
	b, err := open(ctx, path, o)
	if err != nil {
		return nil, err
	}
	s := &scorer[R]{base: b}
	if err = s.choose(ctx, path); err == nil {
		s.result, err = decide(s)
	}
	if err != nil {
		b.close()
		return nil, err
	}
	s.batcher = batch.New(s.run, b.batching(o))
	return s, nil
}

func (s *scorer[R]) choose(ctx context.Context, path string) error {
	b := s.base
	if kind := b.folder.Kind; kind != "" && kind != "CrossEncoder" {
		return &diagnostic.Error{Path: path, Found: "a folder of a " + diagnostic.Clip(kind),
			Needed: "that of a CrossEncoder",
			Fix:    "graft embed opens a SentenceTransformer"}
	}
	if b.folder.Unfit != nil {
		return b.folder.Unfit
	}
	s.modules = b.folder.Modules
	if !b.folder.Given && b.folder.Architecture != "" && b.folder.Is(folder.CausalLM) {
		if err := s.causal(ctx); err != nil {
			return err
		}
	}
	if len(s.modules) > 0 {
		return s.chooseStates()
	}
	return s.chooseLogits()
}

// chooseStates takes the hidden states, of which the folder's modules make scores.
func (s *scorer[R]) chooseStates() error {
	b := s.base
	names, needed, task := []string{"token_embeddings", "last_hidden_state"}, "hidden states", "feature-extraction"
	if b.folder.Causal {
		names, needed, task = []string{"logits"}, "logits", "text-generation"
	}
	var ok bool
	if s.output, ok = b.output(3, names...); !ok {
		return &diagnostic.Error{Path: b.path, Found: "the outputs " + b.listed(),
			Needed: needed + " [batch, sequence, width], of which modules.json makes a score",
			Fix:    "export the model for " + task}
	}
	if err := b.wide(s.output); err != nil {
		return err
	}
	w := folder.Widths{folder.TokenEmbeddings: int(max(s.output.Shape[2], 0)), folder.SentenceEmbedding: -1,
		folder.Scores: -1}
	for _, m := range s.modules {
		if err := m.Check(w); err != nil {
			return err
		}
	}
	if s.width = w[folder.Scores]; s.width < 0 {
		return &diagnostic.Error{Path: filepath.Join(b.folder.Path, "modules.json"), Found: "no module that makes scores",
			Needed: "a Dense with module_output_name scores, or a LogitScore", Fix: "graft embed opens a SentenceTransformer"}
	}
	return nil
}

// causal makes a reranker of a causal model without modules, as CrossEncoder does: a conversation whose answer is yes
// or no.
func (s *scorer[R]) causal(ctx context.Context) error {
	b := s.base
	var ids [2]int
	for i, word := range []string{"yes", "no"} {
		id, ok := b.tokenizer.ID(word)
		if !ok {
			return &diagnostic.Error{Path: b.folder.Path, Found: "a tokenizer without the token " + word,
				Needed: "a LogitScore in modules.json that names other tokens"}
		}
		ids[i] = int(id)
	}
	b.folder.Causal, b.folder.Chat = true, &folder.Chat{}
	s.modules = []folder.Module{folder.NewLogitScore(b.path, ids[0], ids[1])}
	err := b.converse(ctx)
	if errors.Is(err, fs.ErrNotExist) { // no template: the texts are read one after the other
		return nil
	}
	return err
}

// chooseLogits takes the graph's logits: of the text, or of each token where the model is made for that.
func (s *scorer[R]) chooseLogits() error {
	b, f := s.base, s.base.folder
	text, token := f.Is(folder.SequenceClassification), f.Is(folder.TokenClassification)
	if !text && !token {
		return &diagnostic.Error{Path: filepath.Join(f.Path, "config.json"),
			Found:  "the architecture " + diagnostic.Clip(f.Architecture),
			Needed: "one for classification, of which the name ends with ForSequenceClassification or ForTokenClassification"}
	}
	var ok bool
	if text {
		s.output, ok = b.output(2, "logits")
	}
	if !ok && token {
		s.output, ok = b.output(3, "logits")
		s.tokens = ok
	}
	if !ok {
		return &diagnostic.Error{Path: b.path, Found: "the outputs " + b.listed(),
			Needed: "logits [batch, labels], or of tokens [batch, sequence, labels]",
			Fix:    "export the model for text-classification or token-classification"}
	}
	s.width = int(max(s.output.Shape[len(s.output.Shape)-1], 0))
	return nil
}

// run makes results of rows.
func (s *scorer[R]) run(ctx context.Context, rows []Row) ([]R, error) {
	out := make([]R, len(rows))
	err := s.base.run(ctx, rows, []output{{s.output, 0}}, func(i, _ int, values []float32, width int) (err error) {
		n := rows[i].Length()
		switch {
		case s.tokens:
			values = slices.Clone(values[:n*width])
		case s.modules == nil:
			values = slices.Clone(values)
		default:
			f := folder.Features{Length: n, Tokens: folder.Rows{Values: values[:n*width], Width: width}}
			for _, m := range s.modules {
				if err := m.Apply(&f); err != nil {
					return err
				}
			}
			values, width = f.Scores, len(f.Scores)
		}
		if s.width > 0 && width != s.width {
			return &diagnostic.Error{Path: s.base.path, Found: fmt.Sprintf("%d logits", width),
				Needed: fmt.Sprintf("%d, as the graph says", s.width)}
		}
		out[i], err = s.result(rows[i], values)
		return err
	})
	return out, err
}

// pair makes tokens of two texts that are read together.
func (s *scorer[R]) pair(ctx context.Context, first, second string) (Row, error) {
	f := s.base.folder
	if s.base.conversation != nil {
		return s.base.said(ctx, first, second)
	}
	return s.base.row(ctx, f.CleanPair(first), f.CleanPair(second))
}

// MaxTokens is the number of tokens to which inputs are cut; 0 for no limit.
func (s *scorer[R]) MaxTokens() int { return s.base.longest }

// Start begins to compute the logits of a row, in a batch with others.
func (s *scorer[R]) Start(ctx context.Context, row Row, room bool) (*batch.Call[Row, R], error) {
	return s.batcher.Start(ctx, row, room)
}

// Metrics is what the batches did.
func (s *scorer[R]) Metrics() batch.Metrics { return s.batcher.Metrics() }

// MaxQueue is the number of rows that may wait.
func (s *scorer[R]) MaxQueue() int { return s.batcher.MaxQueue() }

// Close refuses what waits, lets what runs end, and frees the model.
func (s *scorer[R]) Close() {
	s.batcher.Close()
	s.base.close()
}

// numbers refuses logits that are none.
func numbers(logits []float32) error {
	for _, x := range logits {
		if x-x != 0 { // NaN or infinite
			return fmt.Errorf("the model's logits have an element %v, needed are numbers", x)
		}
	}
	return nil
}
