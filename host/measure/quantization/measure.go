package quantization

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/measure/comparison/divergence"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/fold"
	"github.com/opgraft/graft/host/session/loaded"
)

// MeasureOptions are what models are opened with to be compared.
type MeasureOptions struct {
	Library *ort.Library
	Plugins *loaded.Set
	Threads int // 0: one a core
}

// Bounds of what is measured: tokens, bytes of the logits of the model as exported, tokens that are read at once, and
// outputs of an encoder-decoder.
const (
	defaultTokens = 2048
	maxLogits     = 512 << 20
	windowTokens  = 512
	outputTokens  = 128
)

// measure compares models of other types of weights with the one as exported, over the same tokens.
type measure struct {
	folder  string
	options MeasureOptions
	vocab   int
	parts   []part
	known   [][]float32 // logits of the model as exported, by part
	tokens  int
}

// part is a window of a text.
type part struct {
	encoder []int32 // what an encoder reads; nil of a decoder alone
	tokens  []int32
	divergence.Window
}

// readsTexts is an error of a model that reads something else.
func readsTexts(folder string, config *modeldir.Config) error {
	if config.FeatureShape() == nil {
		return nil
	}
	return &diagnostic.Error{Path: folder, Found: "the model reads sound or images", Needed: "a model that reads texts",
		Fix: "leave --max-kl and --calibrate out, and compare with graft ab"}
}

// newMeasure reads the texts with the model as exported.
func newMeasure(ctx context.Context, folder string, o MeasureOptions, b Bound) (*measure, error) {
	config, err := modeldir.ReadConfig(folder)
	if err != nil {
		return nil, err
	}
	if err := readsTexts(folder, config); err != nil {
		return nil, err
	}
	m := &measure{folder: folder, options: o, vocab: config.Vocab}
	most := min(maxLogits/4/config.Vocab, defaultTokens)
	if b.Tokens > 0 {
		most = b.Tokens
	}
	g, closeIt, err := m.options.open(ctx, folder, prepare.Weights{})
	if err != nil {
		return nil, err
	}
	defer closeIt()
	if err := m.cut(ctx, g, config, b.Texts, most); err != nil {
		return nil, err
	}
	for _, p := range m.parts {
		rows, err := m.logits(ctx, g, p)
		if err != nil {
			return nil, err
		}
		m.known = append(m.known, slices.Clone(rows))
	}
	return m, nil
}

// cut divides texts into windows, until enough tokens are predicted.
func (m *measure) cut(ctx context.Context, g *decode.Generator, config *modeldir.Config, texts [][]int32,
	most int) error {
	positions := int(min(config.Positions, modeldir.DefaultPositions))
	for i, tokens := range texts {
		if m.tokens >= most {
			break
		}
		if len(tokens) == 0 {
			continue
		}
		text, first, err := whole(ctx, g, tokens)
		if err != nil {
			return fmt.Errorf("text %d: %w", i+1, err)
		}
		size := max(2, min(windowTokens, positions))
		list, err := divergence.Windows(len(text.Tokens), first, size, max(1, size/2))
		if err != nil {
			return err
		}
		for _, w := range list {
			if w.End = min(w.End, w.From+most-m.tokens); w.End <= w.From {
				break
			}
			m.tokens += w.End - w.From
			m.parts = append(m.parts, part{text.Encoder, text.Tokens, w})
		}
	}
	if m.tokens == 0 {
		return &diagnostic.Error{Path: m.folder, Found: "the texts have no token that is predicted",
			Needed: "texts of at least two tokens", Fix: "give others"}
	}
	return nil
}

// whole is a text as a model reads it: of an encoder-decoder with what it makes, as exported, of the tokens. The
// first token that is predicted is told, too.
func whole(ctx context.Context, g *decode.Generator, tokens []int32) (t Text, first int, err error) {
	search := g.Search()
	if !search.IsEncoderDecoder {
		return Text{Tokens: tokens}, 1, nil
	}
	prompt, err := search.DecoderPrompt()
	if err != nil {
		return t, 0, err
	}
	output, err := outputOf(ctx, g, tokens)
	return Text{Encoder: tokens, Tokens: append(slices.Clone(prompt), output...)}, len(prompt), err
}

// outputOf is what a model makes of what its encoder reads, greedily.
func outputOf(ctx context.Context, g *decode.Generator, tokens []int32) (found []int32, err error) {
	o := g.Search()
	o.NumBeams, o.NumBeamGroups, o.NumReturnSequences, o.DoSample = 1, 1, 1, false
	o.MaxNewTokens = int(min(outputTokens, g.Engine().Positions()/2))
	given := false
	err = g.Run(ctx, o, func() (*decode.Input, error) {
		if given {
			return nil, nil
		}
		given = true
		return &decode.Input{Tokens: tokens}, nil
	}, func(out decode.Output) error {
		if len(out.Hypotheses) > 0 {
			found = slices.Clone(out.Hypotheses[0].Tokens)
		}
		return nil
	})
	return found, err
}

// open opens a model with weights of some types. Nothing is stored that outlives it.
func (o MeasureOptions) open(ctx context.Context, folder string, w prepare.Weights) (*decode.Generator, func(), error) {
	temporary, err := storage.Temporary("")
	if err != nil {
		return nil, nil, err
	}
	g, err := decode.Open(ctx, folder, decode.Options{Library: o.Library, Plugins: o.Plugins, Threads: o.Threads, Batch: 1,
		Attention: prepare.Attention{Self: plan.KeysValues, Cross: plan.KeysValues}, Weights: w,
		Quantized: fold.At(temporary.Path, nil), ReferenceSelector: true})
	if err != nil {
		_ = temporary.Remove() // the first error says more
		return nil, nil, err
	}
	return g, func() {
		g.Close()
		_ = temporary.Remove() // the next run does it
	}, nil
}

// logits are those that predict a part's tokens, valid until the next call.
func (m *measure) logits(ctx context.Context, g *decode.Generator, p part) ([]float32, error) {
	in := &decode.Input{Tokens: p.tokens[p.Begin : p.End-1]} // the last is only predicted
	if p.encoder != nil {
		in = &decode.Input{Tokens: p.encoder, Prompt: in.Tokens}
	}
	f, err := g.Force(ctx, in)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Skip(ctx, p.From-1-p.Begin); err != nil {
		return nil, err
	}
	rows, err := f.Next(ctx, p.End-p.From)
	if err == nil && len(rows) != (p.End-p.From)*m.vocab {
		err = errors.New("the model gives other logits than its config.json says (vocab_size); export it again")
	}
	return rows, err
}

// of compares a folder of the model, opened with weights of some types, with the model as exported: how far it is,
// and the perplexity of both.
func (m *measure) of(ctx context.Context, folder string, w prepare.Weights) (*divergence.Divergence, [2]float64,
	error) {
	var both [2]float64
	g, closeIt, err := m.options.open(ctx, folder, w)
	if err != nil {
		return nil, both, err
	}
	defer closeIt()
	sums := divergence.New(2, m.vocab)
	for i, p := range m.parts {
		rows, err := m.logits(ctx, g, p)
		if err == nil {
			err = sums.Add(i, p.From, p.tokens[p.From:p.End], [][]float32{m.known[i], rows})
		}
		if err != nil {
			return nil, both, fmt.Errorf("text %d: %w", i+1, err)
		}
	}
	for side := range both {
		both[side] = sums.Likelihood(side).Perplexity
	}
	return sums.Divergence(1), both, nil
}
