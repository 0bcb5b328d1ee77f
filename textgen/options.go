package textgen

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/internal/opening"
)

// Options are those of [New]. The zero value is the default; what is out of range is graft.ErrOption.
type Options struct {
	graft.Common
	// BatchSize is the maximum number of inputs in flight at once, of all calls together: 1 to 65,536, [AutoBatchSize]
	// for as many as memory holds, or 0 for 8.
	BatchSize int
	// MaxCache bounds the memory of the KV cache, in bytes; 0 is half of the machine's.
	MaxCache int64
	// MaxInputTokens is the number of tokens after which inputs are cut; 0 is what the model's positions allow. With a
	// model of sound or images it is an error of each call.
	MaxInputTokens int
	// Attention says what layers of attention store of the tokens before; the planner chooses what is not said.
	Attention Attention
	// Cache is the type that the KV cache has. All but float32 change answers: docs/generation.md says how much.
	Cache CacheType
	// Weights stores weights of linear layers in fewer bits, which changes answers. The model is quantised when it is
	// opened for the first time, and kept in the user's cache folder; [Quantize] writes it instead.
	Weights Weights
	// Draft is a smaller model with the same tokenizer that guesses next tokens, of which a step verifies several at
	// once. Tokens stay the same. Where it is set, calls use it that do not set Search.Drafts.
	Draft Draft
	// Search is that of every call, as far as the call does not set others.
	Search Search
}

// AutoBatchSize as Options.BatchSize has as many inputs in flight as memory holds.
const AutoBatchSize = decode.AutoBatch

// Draft is a draft model. The zero value is none.
type Draft struct {
	Folder  string  // of the model
	Weights Weights // what its linear layers are stored as
}

// Attention names what layers of attention store. Layers that cannot follow it use another.
type Attention struct {
	// All is of all layers that can; Self and Cross are of one kind of attention. All contradicts the others.
	All, Self, Cross Strategy
	// Skip leaves the values of keys out whose probability is below it, where keys are stored alone: 0 to 1, exclusive.
	// It changes answers, and needs one of the names.
	Skip float64
	// PreferMemory has the planner aim at the fewest bytes instead of the shortest time.
	PreferMemory bool
}

// Strategy is what a layer of attention stores: a constant, or the name of a plugin that implements one.
// docs/attention.md explains them.
type Strategy string

const (
	// KeysValues are keys and values, as all models can.
	KeysValues Strategy = Strategy(plan.KeysValues)
	// PromptHiddenStates is the encoder's output, in cross attention.
	PromptHiddenStates Strategy = Strategy(plan.PromptHiddenStates)
	// Keys are keys alone, of which values are computed.
	Keys Strategy = Strategy(plan.Keys)
	// HiddenStates are the layer's inputs.
	HiddenStates Strategy = Strategy(plan.HiddenStates)
	// FirstLayerKeys are those of the first layer, of which those of others are computed.
	FirstLayerKeys Strategy = Strategy(plan.FirstLayerKeys)
)

// CacheType is a type of numbers in the KV cache, to which they are rounded once, when they are stored.
type CacheType string

const (
	// Float32Cache is float32: no rounding.
	Float32Cache CacheType = ""
	// BF16Cache is bfloat16, half of the bytes.
	BF16Cache CacheType = "bf16"
	// FP16Cache is float16, half of the bytes.
	FP16Cache CacheType = "fp16"
	// Int8Cache is eight bits, with a scale for each head and token.
	Int8Cache CacheType = "int8"
)

// Weights says what the weights of linear layers are stored as. The zero value is float32, as exported.
type Weights struct {
	// Type is that of all linear layers but the last. Of [Quantize] the default is [Int8].
	Type WeightType
	// Logits is that of the last layer; "" is Type, or Int8 where that is Int4.
	Logits WeightType
	// Group is how many weights of integers have one scale: 32, 64 or 128; 0 is 32.
	Group int
	// ZeroPoints gives each group of integers a zero point.
	ZeroPoints bool
	// Activations is what integers are multiplied with; "" is Int16Activations for Int8, Int8Activations for Int4.
	Activations Activations
}

// WeightType is a type of weights.
type WeightType string

const (
	// Float32 is as exported.
	Float32 WeightType = WeightType(prepare.Float32Weights)
	// BF16 is bfloat16, multiplied as float32.
	BF16 WeightType = WeightType(prepare.BFloat16Weights)
	// Int8 is integers of eight bits.
	Int8 WeightType = WeightType(prepare.Int8Weights)
	// Int4 is integers of four bits.
	Int4 WeightType = WeightType(prepare.Int4Weights)
)

// Activations is what quantised weights are multiplied with, a scale for each row and group.
type Activations string

const (
	// Int8Activations are rounded to eight bits as they come.
	Int8Activations Activations = Activations(prepare.Int8Activations)
	// Int16Activations are rounded to sixteen bits as they come.
	Int16Activations Activations = Activations(prepare.Int16Activations)
	// Float32Activations are not rounded.
	Float32Activations Activations = Activations(prepare.Float32Activations)
)

// prepared are the weights as the host has them.
func (w Weights) prepared() (prepare.Weights, error) {
	if w == (Weights{}) {
		return prepare.Weights{}, nil
	}
	for _, word := range []string{string(w.Type), string(w.Logits), string(w.Activations)} {
		if strings.ContainsAny(word, ",=") {
			return prepare.Weights{}, opening.Refuse("Weights: %q is no type", word)
		}
	}
	text := cmp.Or(string(w.Type), string(Float32))
	if w.Logits != "" {
		text += ",logits=" + string(w.Logits)
	}
	if w.Group != 0 {
		text += fmt.Sprintf(",group=%d", w.Group)
	}
	if w.Activations != "" {
		text += ",activations=" + string(w.Activations)
	}
	if w.ZeroPoints {
		text += ",zero-points=true"
	}
	p, err := prepare.ParseWeights(text)
	if err != nil {
		err = opening.Refuse("Weights: %w", err)
	}
	return p, err
}

// prepared is the attention as the host has it.
func (a Attention) prepared(manifests []*manifest.Manifest, cache CacheType) (p prepare.Attention, err error) {
	var parts []string
	for _, x := range []struct {
		where string
		name  Strategy
	}{{"", a.All}, {"self=", a.Self}, {"cross=", a.Cross}} {
		if strings.ContainsAny(string(x.name), ":,=") {
			return p, opening.Refuse("Attention: %q is no KV-cache strategy", x.name)
		}
		if x.name != "" {
			parts = append(parts, x.where+string(x.name))
		}
	}
	switch {
	case len(parts) > 0 && a.Skip != 0:
		parts[len(parts)-1] += fmt.Sprintf(":skip=%g", a.Skip)
	case a.Skip != 0:
		return p, opening.Refuse("Attention.Skip is %g without a name of what is stored", a.Skip)
	}
	if len(parts) > 0 {
		if p, err = prepare.ParseAttention(strings.Join(parts, ","), manifests); err != nil {
			return p, opening.Refuse("Attention: %w", err)
		}
	}
	if a.PreferMemory {
		p.Prefer = plan.PreferMemory
	}
	if cache != Float32Cache {
		storage, err := plan.ParseStorage(string(cache))
		if err == nil {
			err = p.Cache(storage)
		}
		if err != nil {
			return p, opening.Refuse("Cache: %w", err)
		}
	}
	return p, nil
}

// common is Common with what the three packages do with it.
func (o *Options) common() *opening.Common[graft.Sharing] {
	c := opening.Common[graft.Sharing](o.Common)
	return &c
}

// check refuses numbers out of range.
func (o *Options) check() error {
	if err := o.common().Check(); err != nil {
		return err
	}
	if o.BatchSize != AutoBatchSize {
		if err := opening.Range("BatchSize", o.BatchSize, limit.Batch); err != nil {
			return err
		}
	}
	if err := opening.Range("MaxCache", o.MaxCache, limit.Cache); err != nil {
		return err
	}
	return opening.Range("MaxInputTokens", o.MaxInputTokens, limit.Tokens)
}
