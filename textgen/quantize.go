package textgen

import (
	"cmp"
	"context"
	"errors"
	"math"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/measure/quantization"
	"github.com/opgraft/graft/internal/opening"
)

// Quantized says what [Quantize] wrote.
type Quantized struct {
	Weights                 string // the types that were asked for, with all that was not said
	BytesBefore, BytesAfter int64  // of all graphs, data beside them included
	Layers                  []QuantizedLayer
	// Divergence is the mean Kullback-Leibler divergence of a token from the model as exported, in nats, with
	// QuantizeOptions.MaxDivergence; Perplexity and ExportedPerplexity are those of what was written and of the model,
	// over the same tokens. 0 without it.
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

// QuantizeOptions are those of [Quantize]. The zero value is the default.
type QuantizeOptions struct {
	// Common has the plugins and the runtime that read texts. Plugins, Except and Force, which choose operators, and
	// MapWeights and ShareWeights are graft.ErrOption: what is written depends on none.
	graft.Common
	// Weights are the types; Int8 without it. BF16 is graft.ErrOption, since ONNX Runtime has no kernel for it.
	Weights Weights
	// Calibrate are texts. Scales of four bits, and zero points where there are any, are chosen for the smallest error
	// in what layers give over them. Without texts they are those of the smallest error in the weights, which are what
	// Options.Weights makes of the same model. Texts are read with the model as exported, up to 4,096 tokens, and of an
	// encoder-decoder also what it makes of them. The tokenizer is in the folder, or beside a single file.
	Calibrate []string
	// MaxDivergence gives weights eight bits in place of four, or float32, as few as needed, so that the mean divergence
	// of a token from the model as exported is at most so many nats over Texts; 0 is no bound. It is for folders that
	// generate; a bound that no quantised weights hold is graft.ErrBadModel.
	MaxDivergence float64
	// Texts are those of MaxDivergence, of which up to 2,048 tokens are compared.
	Texts []string
}

// Quantize writes the model at path, a folder or a single .onnx, with weights of eight or four bits to out, for any
// program that runs ONNX Runtime: linear layers become MatMulNBits. What is written is whole or not there: a folder
// that is new or was empty, or a file in the place of an older one. Nothing of the model is changed. It costs accuracy:
// docs/generation.md says how much, and how to measure it.
func Quantize(ctx context.Context, path, out string, o QuantizeOptions) (*Quantized, error) {
	r, err := o.request()
	if err != nil {
		return nil, err
	}
	if r.Plugins, err = o.common().Load(nil); err != nil {
		return nil, err
	}
	report, err := quantization.Quantize(ctx, path, out, r)
	switch {
	case err == nil:
		return quantized(report), nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, quantization.ErrRequest):
		return nil, opening.Public(err, graft.ErrOption)
	case errors.Is(err, quantization.ErrOutput):
		return nil, err
	}
	return nil, opening.Public(err, graft.ErrBadModel)
}

// common is Common with what the three packages do with it.
func (o *QuantizeOptions) common() *opening.Common[graft.Sharing] {
	c := opening.Common[graft.Sharing](o.Common)
	return &c
}

// request is what the host is asked for.
func (o *QuantizeOptions) request() (r quantization.Request, err error) {
	if err := o.common().Check(); err != nil {
		return r, err
	}
	if o.Plugins != nil || o.Except != nil || o.Force || o.MapWeights || o.ShareWeights != graft.ShareWhereFree {
		return r, opening.Refuse("Plugins, Except, Force, MapWeights and ShareWeights would be ignored: " +
			"Quantize chooses no operators and opens no session for you")
	}
	if o.MaxDivergence < 0 || math.IsNaN(o.MaxDivergence) {
		return r, opening.Refuse("MaxDivergence is %g: a number of nats above 0 is needed, or 0 for no bound",
			o.MaxDivergence)
	}
	if o.MaxDivergence == 0 && len(o.Texts) > 0 {
		return r, opening.Refuse("Texts are set and would be ignored: MaxDivergence is 0")
	}
	w := o.Weights
	w.Type = cmp.Or(w.Type, Int8)
	r = quantization.Request{Calibrate: o.Calibrate, MaxKL: o.MaxDivergence, Input: o.Texts, Threads: o.Threads,
		Runtime: o.Runtime}
	if r.Weights, err = w.prepared(); err != nil {
		return r, err
	}
	return r, opening.Public(r.Check(), graft.ErrOption)
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
