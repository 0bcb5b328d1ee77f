package generations

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/search"
)

// syntheticSamples are four seconds of 16 kHz.
const syntheticSamples = 4 * 16000

// syntheticFeatures are inputs of an encoder of speech or images: values of about the range
// that log-mel features and pixel values have, the same for a seed.
func syntheticFeatures(seed uint64, batch int, shape []int64) []*engine.Features {
	if len(shape) == 2 { // samples of sound, as many as one likes
		shape = []int64{1, syntheticSamples}
	}
	count := int64(1)
	for _, n := range shape {
		count *= n
	}
	r := rand.New(rand.NewPCG(seed, 0x6d656c))
	list := make([]*engine.Features, batch)
	for i := range list {
		values := make([]float32, count)
		for j := range values {
			values[j] = float32(r.NormFloat64()) / 2
		}
		list[i] = &engine.Features{Values: values, Shape: shape}
	}
	return list
}

// inputs are those that are given, or synthetic ones.
func (o *Options) inputs(config *modeldir.Config) ([]*decode.Input, error) {
	var list []*decode.Input
	if shape := config.FeatureShape(); shape != nil {
		if len(o.Inputs) > 0 {
			return nil,
				errors.New("the model reads speech or images, and the inputs are tokens: give features, or a batch alone")
		}
		if len(o.Features) == 0 {
			o.Features = syntheticFeatures(o.Seed, o.Batch, shape)
		}
		for _, f := range o.Features {
			list = append(list, &decode.Input{Features: f})
		}
	} else {
		if len(o.Inputs) == 0 {
			o.Inputs = syntheticPrompts(o.Seed, o.Batch, o.PromptLength, config.Inputs)
		}
		for _, tokens := range o.Inputs {
			list = append(list, &decode.Input{Tokens: tokens})
		}
	}
	if len(list) == 0 || list[0].Features == nil && len(list[0].Tokens) == 0 {
		return nil, errors.New("there is nothing to generate from: give inputs, or a batch and a length of prompts")
	}
	for i, in := range list {
		in.Index = uint64(i)
	}
	return list, nil
}

// PromptLength is the length of inputs where none is asked for: 128 tokens, or as many as the model's
// positions hold beside newTokens.
func PromptLength(folder string, newTokens int) (int, error) {
	config, err := modeldir.ReadConfig(folder)
	if err != nil {
		return 0, err
	}
	o, err := search.FromConfig(nil, config.JSON)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", folder, err)
	}
	room := config.Positions + 1 - int64(newTokens) // the last token is never fed
	if o.IsEncoderDecoder {
		room = config.EncoderPositions
	}
	return int(max(1, min(128, room))), nil
}

// syntheticPrompts are inputs of random tokens.
func syntheticPrompts(seed uint64, batch, length, vocab int) [][]int32 {
	r := rand.New(rand.NewPCG(seed, 0x67656e))
	list := make([][]int32, batch)
	for i := range list {
		list[i] = make([]int32, length)
		for j := range list[i] {
			list[i][j] = int32(r.IntN(vocab))
		}
	}
	return list
}

// fits reports inputs of more tokens than a model takes.
func fits(inputs []*decode.Input, limit int) error {
	for _, in := range inputs {
		if len(in.Tokens) > limit {
			return fmt.Errorf("inputs have %d tokens, the model takes at most %d beside the new ones: shorten them",
				len(in.Tokens), limit)
		}
	}
	return nil
}
