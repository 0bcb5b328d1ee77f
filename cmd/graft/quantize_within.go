package main

import (
	"context"
	"fmt"
	"math"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/opgraft/graft/host/decode"
	"github.com/opgraft/graft/host/decode/modeldir"
	"github.com/opgraft/graft/host/diagnostic"
	"github.com/opgraft/graft/host/limit"
	"github.com/opgraft/graft/host/loaded"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/quantization"
	"github.com/opgraft/graft/host/text"
)

// within are the flags of quantize that bound what it costs.
type within struct {
	kl        float64
	input     string
	tokens    int
	calibrate string
}

func (b *within) add(f *pflag.FlagSet) {
	between(f, &b.kl, "max-kl", 0, 0, math.MaxFloat32, "folders that generate: greatest mean Kullback-Leibler divergence of a token from the model as exported, in nats, over --input; as few weights as needed have more bits than --weights says")
	f.StringVar(&b.calibrate, "calibrate", "", "folders: file of texts, one a line: scales of four bits are those that leave the smallest error in what layers give over these")
	f.StringVar(&b.input, "input", "", "file of texts for --max-kl, one a line")
	between(f, &b.tokens, "forced-tokens", 0, 0, limit.Tokens, "maximum of tokens of --input that are compared (default: 2048, or as many as have 512 MiB of logits)")
}

func (b *within) asked(cmd *cobra.Command) bool { return cmd.Flags().Changed("max-kl") }

func (b *within) check(cmd *cobra.Command) error {
	if b.asked(cmd) && b.calibrate != "" {
		return misuse("--max-kl and --calibrate", "one of them: the bound is measured with scales that know no texts")
	}
	if !b.asked(cmd) {
		return without(cmd, "no --max-kl", "--max-kl NATS", "input", "forced-tokens")
	}
	if !(b.kl > 0) || math.IsInf(b.kl, 0) {
		return misuse(fmt.Sprintf("--max-kl %g", b.kl), "a divergence above 0, in nats a token")
	}
	if b.input == "" {
		return misuse("--max-kl without texts", "--input FILE")
	}
	return nil
}

// quantise chooses types within the bound.
func (b *within) quantise(ctx context.Context, c *cli, folder string, set *loaded.Set, o quantization.Options) (*quantization.Report, error) {
	l, err := ort.FindAndOpen(c.runtime)
	if err != nil {
		return nil, err
	}
	texts, err := tokensOf(folder, b.input)
	if err != nil {
		return nil, err
	}
	return quantization.FolderWithin(ctx, folder, c.file, o, quantization.MeasureOptions{Library: l, Plugins: set, Threads: o.Threads},
		quantization.Bound{KL: b.kl, Texts: texts, Tokens: b.tokens})
}

// calibrated sets what weighs the errors of rounding.
func (b *within) calibrated(ctx context.Context, c *cli, folder string, o *quantization.Options) error {
	if b.calibrate == "" {
		return nil
	}
	l, err := ort.FindAndOpen(c.runtime)
	if err != nil {
		return err
	}
	files, err := modeldir.Find(folder)
	if err != nil {
		return err
	}
	if files.Encoder != "" {
		return &diagnostic.Error{Path: folder, Found: "an encoder-decoder", Needed: "an encoder, or a decoder alone, for --calibrate", Fix: "leave it out"}
	}
	texts, err := tokensOf(folder, b.calibrate)
	if err != nil {
		return err
	}
	return o.Calibrate(ctx, files.Decoder, quantization.Calibration{Library: l, Threads: o.Threads, Texts: texts})
}

// tokensOf are the tokens of the lines of a file, as many as a step reads of what an encoder reads.
func tokensOf(folder, file string) ([][]int32, error) {
	lines, err := textsOf(file)
	if err != nil {
		return nil, err
	}
	config, err := modeldir.ReadConfig(folder)
	if err != nil {
		return nil, err
	}
	search, err := decode.SearchOf(folder, config, nil)
	if err != nil {
		return nil, err
	}
	tokenizer, err := text.Open(folder)
	if err != nil {
		return nil, err
	}
	var eo text.EncodeOptions
	if search.IsEncoderDecoder {
		eo.MaxLength = config.InputLimit(search, true, min(config.Positions, modeldir.DefaultPositions))
	}
	list := make([][]int32, len(lines))
	for i, line := range lines {
		ids, err := tokenizer.Encode(string(line), eo)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", file, i+1, err)
		}
		for _, id := range ids {
			list[i] = append(list[i], int32(id))
		}
	}
	return list, nil
}
