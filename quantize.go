package graft

import (
	"context"
	"errors"

	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/measure/quantization"
)

// Quantized says what [Quantize] wrote.
type Quantized struct {
	Weights                 string // the types that were asked for, with all that was not said
	BytesBefore, BytesAfter int64  // of all graphs, data beside them included
	Layers                  []QuantizedLayer
	// Divergence is the mean Kullback-Leibler divergence of a token from the model as exported, in nats, with
	// [MaxDivergence]; Perplexity and ExportedPerplexity are those of what was written and of the model, over the same
	// tokens. 0 without it.
	Divergence, Perplexity, ExportedPerplexity float64
}

// QuantizedLayer is a weight of linear layers that is stored as integers.
type QuantizedLayer struct {
	File   string // of the graph, below the folder
	Weight string // its name
	Type   string // "int8" or "int4"
	Bytes  int64  // in the file, scales and zero points included
	// Error is what rounding moved the weight by: the root of the sum of squares, over that of the weight itself.
	Error float64
}

// QuantizeOption is an option of [Quantize].
type QuantizeOption interface{ quantize(*quantizeOptions) }

type quantizeOptions struct {
	pluginOptions
	request quantization.Request
	weights string
	err     error // the first option that is wrong
}

type quantizeOption func(*quantizeOptions)

func (f quantizeOption) quantize(o *quantizeOptions) { f(o) }

// weightsOption is Weights.
type weightsOption string

func (w weightsOption) generator(o *generatorOptions) { o.weights = string(w) }
func (w weightsOption) quantize(o *quantizeOptions)   { o.weights = string(w) }

// Calibrate has [Quantize] choose scales of four bits, and zero points where there are any, for the smallest error in
// what layers give over texts. Without it they are those of the smallest error in the weights, which are what
// [Weights] makes of the same model. Texts are read with the model as exported, up to 4,096 tokens, and of an
// encoder-decoder also what it makes of them. The tokenizer is in the folder, or beside a single file.
func Calibrate(texts ...string) QuantizeOption {
	return quantizeOption(func(o *quantizeOptions) { o.request.Calibrate = append([]string{}, texts...) })
}

// MaxDivergence has [Quantize] give weights eight bits in place of four, or float32, as few as needed, so that the
// mean divergence of a token from the model as exported is at most so many nats over texts, of which up to 2,048
// tokens are compared. It is for folders that generate; a bound that no quantised weights hold is [ErrBadModel].
func MaxDivergence(nats float64, texts ...string) QuantizeOption {
	return quantizeOption(func(o *quantizeOptions) {
		if !(nats > 0) && o.err == nil {
			o.err = refuse("MaxDivergence is %g: a number of nats above 0 is needed", nats)
		}
		o.request.MaxKL, o.request.Input = nats, texts
	})
}

// Quantize writes the model at path, a folder or a single .onnx, with weights of eight or four bits to out, for any
// program that runs ONNX Runtime: linear layers become MatMulNBits. [Weights] says of which types; they are "int8"
// without it, and "bf16" is an [ErrOption], since ONNX Runtime has no kernel for it. What is written is whole or not
// there: a folder that is new or was empty, or a file in the place of an older one. Nothing of the model is changed.
// It costs accuracy: docs/generation.md says how much, and how to measure it.
func Quantize(ctx context.Context, path, out string, opts ...QuantizeOption) (*Quantized, error) {
	o := quantizeOptions{weights: string(prepare.Int8Weights)}
	for _, x := range opts {
		x.quantize(&o)
	}
	if o.err != nil {
		return nil, o.err
	}
	var err error
	if o.request.Weights, err = prepare.ParseWeights(o.weights); err != nil {
		return nil, public(err, ErrOption)
	}
	if err := o.request.Check(); err != nil {
		return nil, public(err, ErrOption)
	}
	if o.request.Plugins, err = o.load(); err != nil {
		return nil, err
	}
	r, err := quantization.Quantize(ctx, path, out, o.request)
	switch {
	case err == nil:
		return quantized(r), nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, quantization.ErrRequest):
		return nil, public(err, ErrOption)
	case errors.Is(err, quantization.ErrOutput):
		return nil, err
	}
	return nil, public(err, ErrBadModel)
}

func quantized(r *quantization.Report) *Quantized {
	q := &Quantized{Weights: r.Requested, BytesBefore: r.BytesBefore, BytesAfter: r.BytesAfter}
	for _, g := range r.Graphs {
		for _, l := range g.Layers {
			q.Layers = append(q.Layers,
				QuantizedLayer{File: g.File, Weight: l.Weight, Type: l.Type, Bytes: l.Bytes, Error: l.Error})
		}
	}
	if c := r.Chosen; c != nil {
		q.Divergence, q.ExportedPerplexity, q.Perplexity = c.Reached.KLMean, c.Perplexity[0], c.Perplexity[1]
	}
	return q
}

// loadOption is one that also Quantize takes.
type loadOption struct{ pluginOption }

func (f loadOption) quantize(o *quantizeOptions) { f.pluginOption(&o.pluginOptions) }

// modelOption is a FolderOption that also Quantize takes.
type modelOption struct {
	FolderOption
	quantizes func(*quantizeOptions)
}

func (f modelOption) quantize(o *quantizeOptions) { f.quantizes(o) }

// threads checks and sets those of Quantize.
func (o *quantizeOptions) threads(n int) {
	check(&o.err, "Threads", n, limit.Threads)
	o.request.Threads = n
}
