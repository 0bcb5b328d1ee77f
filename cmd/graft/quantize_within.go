package main

import (
	"fmt"
	"math"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/measure/quantization"
)

// within are the flags of quantize that read texts.
type within struct {
	kl        float64
	input     string
	tokens    int
	calibrate string
}

func (b *within) add(f *pflag.FlagSet) {
	between(f, &b.kl, "max-kl", 0, 0, math.MaxFloat32,
		"folders that generate: greatest mean Kullback-Leibler divergence of a token from the model as exported, in nats, "+
			"over --input; as few weights as needed have more bits than --weights says")
	f.StringVar(&b.calibrate, "calibrate", "",
		"file of texts, one a line: scales of four bits are those that leave the smallest error in what layers give over "+
			"these")
	f.StringVar(&b.input, "input", "", "file of texts for --max-kl, one a line")
	between(f, &b.tokens, "forced-tokens", 0, 0, limit.Tokens,
		"maximum of tokens of --input that are compared (default: 2048, or as many as have 512 MiB of logits)")
}

// check refuses flags that say nothing together.
func (b *within) check(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("max-kl") {
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

// read reads the texts.
func (b *within) read(r *quantization.Request) (err error) {
	if b.calibrate != "" {
		if r.Calibrate, err = linesOf(b.calibrate); err != nil {
			return err
		}
	}
	if b.input != "" {
		r.MaxKL, r.Tokens = b.kl, b.tokens
		r.Input, err = linesOf(b.input)
	}
	return err
}

func linesOf(path string) ([]string, error) {
	lines, err := textsOf(path)
	list := make([]string, len(lines))
	for i, line := range lines {
		list[i] = string(line)
	}
	return list, err
}
