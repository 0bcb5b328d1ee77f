// Package generate turns texts into texts with a model folder: tokenizer, engine
// and search, led by the pipeline.
package generate

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/exported"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/pipeline"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/generate/text"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/plan"
)

// Device generates from tokens: the engine (decode.Generator) or the model as
// exported (exported.Generator).
type Device interface {
	// Run generates for every input that next gives, until it gives none, and hands
	// each output over when its request ends.
	Run(ctx context.Context, o search.Options, next func() (*decode.Input, error), done func(decode.Output) error) error
	Search() search.Options         // of the model's own configuration, a copy
	Config() *modeldir.Config       // the model's configuration
	Positions(o search.Options) int // the maximum number of tokens that an input may have
	Check(tokens []int32) error     // reports an input that the model cannot take
	Plugins() []string              // those whose operators run
	Batch() int                     // the maximum number of requests in flight at once
	Peak() (self, cross int64)      // the maximum that keys and values took, in bytes
	Close()
}

// Generator is an open model folder with its tokenizer.
type Generator struct {
	Device
	Tokenizer *text.Tokenizer
	// Files makes what the encoder reads of files, whose paths are the inputs of a model of speech or of images; nil
	// for a model that reads text.
	Files Files
	// MaxInput is the maximum number of tokens of an input that are used; longer ones are cut, as
	// Hugging Face's tokenizers do when they are asked to truncate. 0 is what the
	// model's positions allow.
	MaxInput int
	// Templated says that inputs are rendered chat templates, which have their special tokens already.
	Templated bool
	// First is the number of the first input, from which random numbers are made: 0,
	// or where a run continues after an earlier one.
	First int
	// Chosen is told of every token of Run as soon as it is chosen, with the number of its input, where the search is of
	// one sequence and the device is the engine; nil for nobody. It must not wait.
	Chosen func(index int, token int32)
}

// Open opens a model folder as an engine.
func Open(ctx context.Context, folder string, o decode.Options) (*Generator, error) {
	return open(folder, func() (Device, error) { return decode.Open(ctx, folder, o) })
}

// OpenExported opens a model folder as it is, without graft.
func OpenExported(ctx context.Context, folder string, o decode.Options) (*Generator, error) {
	return open(folder, func() (Device, error) { return exported.Open(ctx, folder, o) })
}

// open opens a device and what a folder has around its graphs. What changes meanwhile is opened once more.
func open(folder string, device func() (Device, error)) (*Generator, error) {
	return model.ReadAgainIfChanged(func() (*Generator, error) { return once(folder, device) })
}

func once(folder string, device func() (Device, error)) (*Generator, error) {
	if _, err := modeldir.Find(folder); err != nil {
		return nil, err // what is no model folder at all is said first
	}
	watch := modeldir.NewWatch(folder)
	config, err := modeldir.ReadConfig(folder)
	if err != nil {
		return nil, err
	}
	if class := config.MakesSound(); class != "" {
		return nil, &diagnostic.Error{Path: filepath.Join(folder, "config.json"),
			Found:  "the model makes sound (" + diagnostic.Clip(class) + ")",
			Needed: "one that makes text", Fix: "run its files with ONNX Runtime; graft patch speeds up each of them"}
	}
	g := &Generator{}
	if g.Files, err = OpenFiles(folder, config); err != nil {
		return nil, err
	}
	if g.Tokenizer, err = text.Open(folder); err != nil {
		return nil, err
	}
	if g.Device, err = device(); err != nil {
		return nil, err
	}
	if err := watch.Unchanged(); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// Result is what one input became.
type Result struct {
	Index     int        `json:"index"` // the input's number, from 0
	Sequences []Sequence `json:"sequences"`
	Error     string     `json:"error,omitempty"` // why there are none: the text of Err
	Err       error      `json:"-"`
}

// Sequence is one generated text.
type Sequence struct {
	Text   string  `json:"text"`
	Score  float64 `json:"score"`
	Tokens []int32 `json:"tokens"`
	Ended  bool    `json:"ended"` // by an end token, not by the limit of length
}

// Summary is a run in numbers.
type Summary struct {
	SchemaVersion   int     `json:"schema_version"`
	Inputs          int     `json:"inputs"`
	Failed          int     `json:"failed"`
	BatchSize       int     `json:"batch_size"` // the maximum number of requests in flight at once
	InputTokens     int     `json:"input_tokens"`
	NewTokens       int     `json:"new_tokens"` // of the sequences that are returned
	Steps           int     `json:"steps"`      // of the requests, added up
	Reorders        int     `json:"reorders"`   // steps after which a request's rows were not those before
	Drafted         int     `json:"drafted"`    // positions that were drafted, and of them those that were chosen
	Accepted        int     `json:"accepted"`
	Seconds         float64 `json:"seconds"`
	TokensPerSecond float64 `json:"tokens_per_second"`
	SelfCacheBytes  int64   `json:"self_cache_bytes"` // the maximum that was in use
	CrossCacheBytes int64   `json:"cross_cache_bytes"`
	// DraftModel says what a draft model did; nil without one.
	DraftModel *decode.DraftReport `json:"draft_model,omitempty"`
	// Cache is what caches store, where that is not float32.
	Cache plan.Storage `json:"cache,omitempty"`
	// Weights says what weights are stored as, where some are quantised.
	Weights *engine.WeightReport `json:"weights,omitempty"`
	// Skipped is what attention left out, where it may.
	Skipped *engine.Skipped `json:"skipped,omitempty"`
}

// Run generates for every text, or path of a file of speech or of an image, that read gives and hands the results to
// write, in the order of the input. An input from which nothing can be generated becomes a result with an error, and
// the others continue.
func (g *Generator) Run(ctx context.Context, o search.Options, read func() (string, error), write func(Result) error,
	p pipeline.Options) (*Summary, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.IsEncoderDecoder {
		if _, err := o.DecoderPrompt(); err != nil {
			return nil, err
		}
	}
	if g.Files != nil && g.MaxInput > 0 {
		return nil, fmt.Errorf("inputs may have %d tokens, and the model reads %s: leave it out (max_input_tokens)",
			g.MaxInput, g.Files.Kind())
	}
	s := &Summary{SchemaVersion: 2}
	var inputTokens, failed atomic.Int64
	stages := pipeline.Stages[*decode.Input, decode.Output, Result]{
		Read: read,
		Encode: func(line string) (*decode.Input, error) {
			in, err := g.encode(ctx, o, line)
			if err != nil {
				return nil, err
			}
			inputTokens.Add(int64(len(in.Tokens)))
			return in, nil
		},
		Length: func(in *decode.Input) int { return len(in.Tokens) },
		Device: func(ctx context.Context, next func() (*pipeline.Item[*decode.Input], error),
			done func(int, decode.Output) error) error {
			return g.Device.Run(ctx, o, func() (*decode.Input, error) {
				item, err := next()
				if item == nil || err != nil {
					return nil, err
				}
				item.Value.Index = uint64(g.First + item.Index)
				if g.Chosen != nil {
					item.Value.Chosen = func(token int32) { g.Chosen(item.Index, token) }
				}
				return item.Value, nil
			}, func(out decode.Output) error {
				s.Steps += out.Steps
				s.Reorders += out.Reorders
				s.Drafted += out.Drafted
				s.Accepted += out.Accepted
				for _, h := range out.Hypotheses {
					s.NewTokens += len(h.Tokens)
				}
				return done(int(out.Index)-g.First, out)
			})
		},
		Decode: func(index int, out decode.Output) (Result, error) { return g.decode(o, index, out) },
		Failed: func(index int, err error) (Result, error) {
			failed.Add(1)
			return Result{Index: index, Error: err.Error(), Err: err}, nil
		},
		Write: func(_ int, r Result) error {
			s.Inputs++
			return write(r)
		},
	}
	start := time.Now()
	err := pipeline.Run(ctx, stages, p)
	s.Seconds = time.Since(start).Seconds()
	s.InputTokens, s.Failed = int(inputTokens.Load()), int(failed.Load())
	s.TokensPerSecond = float64(s.NewTokens) / s.Seconds
	s.SelfCacheBytes, s.CrossCacheBytes = g.Peak()
	if d, ok := g.Device.(*decode.Generator); ok {
		s.Skipped, s.DraftModel = d.Skipped(), d.DraftModel()
		if c := d.Cache(); c.Rounds() {
			s.Cache = c
		}
		if w := d.Weights(); w.Quantized() {
			s.Weights = w
		}
	}
	s.BatchSize = g.Batch()
	return s, err
}

// Prompt lets the decoder begin with a text, as decoder_input_ids of its tokens do; special tokens stand in it by their
// names, as <s_docvqa>.
func (g *Generator) Prompt(ctx context.Context, o *search.Options, prompt string) error {
	ids, err := g.Tokenizer.Encode(ctx, prompt, text.EncodeOptions{OmitSpecialTokens: true})
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return fmt.Errorf("the prompt %q has no tokens", prompt)
	}
	o.DecoderInputIDs = nil
	for _, id := range ids {
		o.DecoderInputIDs = append(o.DecoderInputIDs, int32(id))
	}
	return o.Validate()
}

// encode turns a line into what the model can take.
func (g *Generator) encode(ctx context.Context, o search.Options, line string) (*decode.Input, error) {
	if g.Files != nil {
		f, err := Features(g.Files, line)
		if err != nil {
			return nil, err
		}
		return &decode.Input{Features: f, Stopped: g.stopped(o)}, nil
	}
	limit := g.MaxInput
	if limit == 0 {
		limit = g.Positions(o)
	}
	ids, err := g.Tokenizer.Encode(ctx, line, text.EncodeOptions{MaxLength: limit, TruncateLeft: !o.IsEncoderDecoder,
		OmitSpecialTokens: g.Templated})
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("the line has no tokens")
	}
	tokens := make([]int32, len(ids))
	for i, id := range ids {
		tokens[i] = int32(id)
	}
	return &decode.Input{Tokens: tokens, Stopped: g.stopped(o)}, g.Check(tokens)
}

// decode turns hypotheses into texts.
func (g *Generator) decode(o search.Options, index int, out decode.Output) (Result, error) {
	r := Result{Index: index, Sequences: []Sequence{}}
	for _, h := range out.Hypotheses {
		s, err := Text(g.Tokenizer, o, h.Tokens)
		if err != nil {
			return r, err
		}
		r.Sequences = append(r.Sequences, Sequence{Text: s, Score: h.Score, Tokens: h.Tokens, Ended: h.Ended})
	}
	return r, nil
}

// decoding is how texts are made of tokens.
var decoding = text.DecodeOptions{SkipSpecialTokens: true}

// Text is that of tokens that were generated with the options, without special tokens.
func Text(t *text.Tokenizer, o search.Options, tokens []int32) (string, error) {
	var ids []int64
	for _, id := range tokens {
		if !isTimestamp(o.Speech.NoTimestamps, id) {
			ids = append(ids, int64(id))
		}
	}
	return t.Decode(ids, decoding)
}

// isTimestamp reports a token of a time, which is no text: they follow the token that stands for no times.
func isTimestamp(noTimestamps, id int32) bool {
	return noTimestamps != search.NoToken && id > noTimestamps
}
