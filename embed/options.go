package embed

import (
	"context"
	"log/slog"
	"strings"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/encode/encoder"
	"github.com/opgraft/graft/host/encode/folder"
	"github.com/opgraft/graft/internal/opening"
)

// Options are those of [NewEmbedder], [NewReranker] and [NewClassifier]. The zero value is the default; what is out of
// range, or would have no effect, is graft.ErrOption.
type Options struct {
	graft.Common
	// Logger receives one line when the model is opened, and a warning where it runs unpatched. nil is [slog.Default],
	// for warnings alone.
	Logger *slog.Logger
	// ModelFile is the graph of a folder that has several, such as onnx/model_quantized.onnx; "" is onnx/model.onnx,
	// model.onnx, or the only one.
	ModelFile string
	// MaxInputTokens is the number of tokens after which inputs are cut; 0 is what the model's configuration says.
	MaxInputTokens int
	// MaxTextBytes is the size of a text, or of a query with a document, above which it is refused before it is made
	// tokens, as an input of its own; 0 is 16 MiB.
	MaxTextBytes int
	// Batch says how texts become batches.
	Batch BatchOptions
	// Pooling says how hidden states become a vector, for a folder that does not say it or in place of what it says.
	// Vectors of several are joined. Of an [Embedder] alone.
	Pooling []Pooling
	// Normalize gives vectors the length 1, also where the model's configuration does not say so. Of an [Embedder] alone.
	Normalize bool
	// RawScores has scores be the model's logits, whatever its configuration does with them. Of a [Reranker] alone.
	RawScores bool
}

// Pooling makes one vector of the hidden states of a text.
type Pooling string

const (
	// CLS is the first token's.
	CLS Pooling = "cls"
	// Max is the largest value of all tokens, element by element.
	Max Pooling = "max"
	// Mean is the mean of all tokens.
	Mean Pooling = "mean"
	// MeanSqrtLength is their sum divided by the square root of their number.
	MeanSqrtLength Pooling = "mean_sqrt_len_tokens"
	// WeightedMean weighs a token by its position, from 1.
	WeightedMean Pooling = "weightedmean"
	// LastToken is the last token's.
	LastToken Pooling = "lasttoken"
)

// common is Common with what the three packages do with it.
func (o *Options) common() *opening.Common[graft.Sharing] {
	c := opening.Common[graft.Sharing](o.Common)
	return &c
}

// prepared are the options as the host has them, without runtime and plugins.
func (o *Options) prepared() (in encoder.Options, err error) {
	if err := o.common().Check(); err != nil {
		return in, err
	}
	if err := o.Batch.check(); err != nil {
		return in, err
	}
	if err := opening.Range("MaxInputTokens", o.MaxInputTokens, limit.Tokens); err != nil {
		return in, err
	}
	if err := opening.Range("MaxTextBytes", o.MaxTextBytes, limit.Line); err != nil {
		return in, err
	}
	in = encoder.Options{MaxText: o.MaxTextBytes, Plan: o.common().Plan(), MapWeights: o.MapWeights,
		Share:   o.common().Share(),
		Threads: o.Threads, Logger: o.Logger, ModelFile: o.ModelFile, MaxInput: o.MaxInputTokens, Normalize: o.Normalize,
		Raw: o.RawScores, Batch: inner[encoder.Row](o.Batch, nil)}
	if len(o.Pooling) > 0 {
		var names []string
		for _, p := range o.Pooling {
			names = append(names, string(p))
		}
		if in.Pooling, err = folder.ParsePooling(strings.Join(names, "+")); err != nil {
			return in, opening.Public(err, graft.ErrOption)
		}
	}
	if in.Logger == nil {
		in.Logger = slog.New(warnings{slog.Default().Handler()})
	}
	in.Logger = diagnostic.Logger(in.Logger)
	return in, nil
}

// warnings is a handler's warnings and errors.
type warnings struct{ slog.Handler }

// Enabled leaves the levels below out.
func (h warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && h.Handler.Enabled(ctx, l)
}
