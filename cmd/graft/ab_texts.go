package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/text"
	"github.com/opgraft/graft/host/measure/comparison/divergence"
	"github.com/opgraft/graft/host/measure/comparison/generations"
)

// textFlags are those of ab that say over which texts distributions of the next token are compared.
type textFlags struct {
	references             string
	tokens, window, stride int
}

// textFlagNames are those that say nothing without --input.
var textFlagNames = []string{"references", "forced-tokens", "window", "stride"}

// forcedTokens is the maximum of tokens that are predicted where nothing else is asked for.
const forcedTokens = 100_000

func (t *textFlags) register(f *pflag.FlagSet) {
	f.StringVar(&t.references, "references", "",
		"folders: file of what should follow each text of --input, one a line: distributions are compared over these")
	between(f, &t.tokens, "forced-tokens", forcedTokens, 0, limit.Tokens,
		"folders: maximum of tokens of --input, or of what follows, over which distributions of the next token are "+
			"compared; 0 compares none")
	between(f, &t.window, "window", 0, 0, limit.Tokens,
		"folders of a decoder alone: tokens of a text that are read at once (default: 1024, or the model's positions)")
	between(f, &t.stride, "stride", 0, 0, limit.Tokens,
		"folders of a decoder alone: how many tokens windows are apart (default: half of --window)")
}

// check refuses flags that say nothing.
func (t *textFlags) check(cmd *cobra.Command, input string) error {
	for _, name := range textFlagNames {
		if input == "" && cmd.Flags().Changed(name) {
			return misuse("--"+name+" without texts", "--input FILE")
		}
	}
	if t.tokens == 0 {
		for _, name := range []string{"references", "window", "stride"} {
			if cmd.Flags().Changed(name) {
				return misuse("--"+name+" with --forced-tokens 0", "one of them: that compares nothing over texts")
			}
		}
	}
	if t.stride > 0 && t.window > 0 && t.stride >= t.window {
		return misuse(fmt.Sprintf("--stride %d with --window %d", t.stride, t.window),
			"a stride that is shorter than the window: a token is predicted from what is before it in its window")
	}
	return nil
}

// texts are what the lines of --input and --references say for a folder; nil where nothing is to be compared. Of
// files of speech or images, the first n are taken.
func (t *textFlags) texts(ctx context.Context, folder, input string, config *modeldir.Config, lines []string, n int,
	set []byte) (*generations.Texts, error) {
	if t.tokens == 0 || len(lines) == 0 {
		return nil, nil
	}
	search, err := decode.SearchOf(folder, config, set)
	if err != nil {
		return nil, err
	}
	out := &generations.Texts{Tokens: t.tokens, Window: t.window, Stride: t.stride}
	if search.IsEncoderDecoder && t.window+t.stride > 0 {
		return nil, &diagnostic.Error{Path: folder, Found: "an encoder-decoder, whose outputs are read whole",
			Needed: "a decoder alone for --window and --stride", Fix: "leave them out"}
	}
	var follow []string
	if t.references != "" {
		references, err := textsOf(t.references)
		if err != nil {
			return nil, err
		}
		if len(references) != len(lines) {
			return nil, &diagnostic.Error{Path: t.references, Found: counted(len(references), "line"),
				Needed: fmt.Sprintf("%d, one reference for each line of %s", len(lines), input)}
		}
		for _, line := range references {
			follow = append(follow, string(line))
		}
	}
	features := config.FeatureShape() != nil
	if features && follow == nil {
		return out, nil // what a generates needs no words
	}
	if features {
		follow = follow[:n]
	}
	tokenizer, err := text.Open(folder)
	if err != nil {
		return nil, err
	}
	positions := min(config.Positions, modeldir.DefaultPositions)
	encode := func(file string, lines []string, o text.EncodeOptions, end []int32) ([][]int32, error) {
		list := make([][]int32, len(lines))
		for i, line := range lines {
			ids, err := tokenizer.Encode(ctx, line, o)
			if err != nil {
				return nil, fmt.Errorf("%s, line %d: %w", file, i+1, err)
			}
			for _, id := range ids {
				list[i] = append(list[i], int32(id))
			}
			list[i] = append(list[i], end...)
		}
		return list, nil
	}
	if !features {
		var o text.EncodeOptions // a decoder alone reads a text whole, in windows
		if search.IsEncoderDecoder || follow != nil {
			o = text.EncodeOptions{MaxLength: config.InputLimit(search, search.IsEncoderDecoder, positions),
				TruncateLeft: !search.IsEncoderDecoder}
		}
		if out.Inputs, err = encode(input, lines, o, nil); err != nil {
			return nil, err
		}
		for i, tokens := range out.Inputs {
			if o.MaxLength > 0 && len(tokens) == 0 {
				return nil, fmt.Errorf("%s, line %d: it has no tokens; needed is a text from which something follows", input, i+1)
			}
		}
	}
	if follow == nil {
		return out, nil
	}
	o := text.EncodeOptions{MaxLength: int(positions)}
	var end []int32
	if features || !search.IsEncoderDecoder { // special tokens of the former stand in the decoder's prompt
		o.OmitSpecialTokens = true
		if len(search.EOSTokenID) > 0 {
			end = search.EOSTokenID[:1]
		}
	}
	out.References, err = encode(t.references, follow, o, end)
	return out, err
}

// overTexts prints how the sides' distributions compare.
func overTexts(w *page, r *generations.Compared) {
	if f := r.Forced; f != nil {
		w.println()
		w.printf("distributions of the next token over %s: %s", forcedWords(f), counted(f.Tokens, "token"))
		if f.Left > 0 {
			w.printf(" (%s are left out, see --forced-tokens)", counted(f.Left, "token"))
		}
		w.println()
		rows := [][]string{{"", "operators", "perplexity", "over a's", "95 %", "KL divergence, mean", "99th percentile",
			"greatest", "equal greedy tokens"},
			{"a", r.A.Name, perplexity(r.A.Likelihood), "", "", "", "", "", ""}}
		for i := range r.Sides {
			b := &r.Sides[i]
			which := "b"
			if len(r.Sides) > 1 {
				which = fmt.Sprintf("b%d", i+1)
			}
			d := b.Divergence
			rows = append(rows, []string{which, b.Name, perplexity(b.Likelihood), fmt.Sprintf("%.5fx", d.PerplexityRatio),
				fmt.Sprintf("%.5fx to %.5fx", d.RatioCI95[0], d.RatioCI95[1]),
				difference(d.KLMean), difference(d.KLP99), difference(d.KLMax),
				fmt.Sprintf("%s (%d of %d)", share(d), d.EqualGreedy, d.Tokens)})
		}
		w.table(rows)
		for i := range r.Sides {
			if d := r.Sides[i].Divergence.First; d != nil {
				w.printf("%s: the first other greedy token is number %d of text %d: %s (probability %.3f) where a has %s (%.3f)\n",
					r.Sides[i].Name, d.Token+1, d.Text+1, word(d.B), d.B.Probability, word(d.A), d.A.Probability)
			}
		}
	}
}

// forcedWords are the texts.
func forcedWords(f *generations.Forced) string {
	words := counted(f.Texts, "text")
	switch f.Over {
	case generations.OverReferences:
		words = counted(f.Texts, "reference")
	case generations.OverOutputs:
		words = counted(f.Texts, "output") + " of a"
	}
	if f.Window > 0 {
		words += fmt.Sprintf(" in windows of %d tokens, %d apart", f.Window, f.Stride)
	}
	return words
}

func counted[N ~int | ~int64](n N, what string) string { return diagnostic.Counted(n, what) }

func perplexity(l *divergence.Likelihood) string {
	if l.Perplexity == math.MaxFloat64 {
		return "not finite"
	}
	return fmt.Sprintf("%.5g", l.Perplexity)
}

// share is that of equal greedy tokens: 100 % only where all are.
func share(d *divergence.Divergence) string {
	percent := fmt.Sprintf("%.2f %%", 100*d.EqualShare())
	if d.EqualGreedy < d.Tokens && strings.HasPrefix(percent, "100") {
		return "under 100 %"
	}
	return percent
}

// word is a token as people read it.
func word(c divergence.Choice) string {
	if c.Text == "" {
		return fmt.Sprintf("token %d", c.Token)
	}
	return fmt.Sprintf("%q", c.Text)
}

// textsOf reads a file of texts.
func textsOf(path string) ([][]byte, error) {
	read, _, done, err := inputs(path, limit.DefaultLine)
	if err != nil {
		return nil, err
	}
	var list [][]byte
	for {
		line, err := read()
		if errors.Is(err, io.EOF) {
			return list, done()
		}
		if err != nil {
			return nil, errors.Join(err, done())
		}
		list = append(list, []byte(line))
	}
}
