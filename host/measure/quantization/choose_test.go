package quantization_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/exported"
	"github.com/opgraft/graft/host/generate/text"
	"github.com/opgraft/graft/host/measure/comparison/divergence"
	"github.com/opgraft/graft/host/measure/quantization"
	"github.com/opgraft/graft/internal/must"
)

// words are some that a trained model never saw, as its tokens.
func words(t *testing.T, folder string, n int) (list [][]int32) {
	t.Helper()
	data := must.Value(os.ReadFile(filepath.Join(folder, "held_out.txt")))(t)
	tokenizer := must.Value(text.Open(folder))(t)
	for line := range strings.Lines(string(data)) {
		word, _, _ := strings.Cut(line, "\t")
		ids := must.Value(tokenizer.Encode(t.Context(), word, text.EncodeOptions{}))(t)
		var tokens []int32
		for _, id := range ids {
			tokens = append(tokens, int32(id))
		}
		if list = append(list, tokens); len(list) == n {
			break
		}
	}
	return list
}

// mean is the mean divergence of a token with plain ONNX Runtime, over what the model as exported makes of words.
func mean(t *testing.T, folder, quantised string, inputs [][]int32) float64 {
	t.Helper()
	l, _ := open(t)
	var sides [2]*exported.Generator
	for i, dir := range []string{folder, quantised} {
		g := must.Value(exported.Open(t.Context(), dir, decode.Options{Library: l, ReferenceSelector: true, Threads: 1}))(t)
		defer g.Close()
		sides[i] = g
	}
	o := sides[0].Search()
	o.NumBeams = 1
	prompt := must.Value(o.DecoderPrompt())(t)
	sums := divergence.New(2, sides[0].Config().Vocab)
	for i, tokens := range inputs {
		given := false
		var output []int32
		must.Succeed(t, sides[0].Run(t.Context(), o, func() (*decode.Input, error) {
			if given {
				return nil, nil
			}
			given = true
			return &decode.Input{Tokens: tokens}, nil
		}, func(out decode.Output) error {
			output = slices.Clone(out.Hypotheses[0].Tokens)
			return nil
		}))
		whole := append(slices.Clone(prompt), output...)
		var rows [2][]float32
		for side, g := range sides {
			f := must.Value(g.Force(t.Context(), &decode.Input{Tokens: tokens, Prompt: whole[:len(whole)-1]}))(t)
			must.Succeed(t, f.Skip(t.Context(), len(prompt)-1))
			list := must.Value(f.Next(t.Context(), len(output)))(t)
			rows[side] = slices.Clone(list)
			f.Close()
		}
		must.Succeed(t, sums.Add(i, len(prompt), output, rows[:]))
	}
	return sums.Divergence(1).KLMean
}

// TestWithinABound: the types that are chosen hold the bound, with plain ONNX Runtime too, and weights that need not
// be spared are not.
func TestWithinABound(t *testing.T) {
	if testing.Short() {
		t.Skip("opens a model dozens of times")
	}
	l, set := open(t)
	folder := "../../../models/g2p"
	inputs := words(t, folder, 60)
	weights := weightsOf(t, "int4,logits=int4")
	o := quantization.Options{Plugins: set.Plugins, Weights: weights}
	m := quantization.MeasureOptions{Library: l, Plugins: set}
	quantise := func(kl float64) (string, *quantization.Report, error) {
		to := filepath.Join(t.TempDir(), "out")
		r, err := quantization.FolderWithin(t.Context(), folder, to, o, m,
			quantization.Bound{KL: kl, Texts: inputs, Tokens: 400, Units: 12})
		return to, r, err
	}
	types := func(r *quantization.Report) map[string]int {
		found := map[string]int{}
		for _, g := range r.Graphs {
			for _, l := range g.Linear {
				found[l.Type] += l.Matrices
			}
		}
		return found
	}
	_, r, err := quantise(100)
	must.Succeed(t, err)
	cheapest := r.Chosen.Cheapest
	if found := types(r); !(cheapest > 0) || r.Chosen.Reached.KLMean != cheapest || r.Chosen.Measured != 1 ||
		len(found) != 1 || found["int4"] == 0 {
		t.Errorf("a bound that all hold: %+v, types %v", r.Chosen, found)
	}
	for _, share := range []float64{0.4, 0.02} {
		bound := share * cheapest
		to, r, err := quantise(bound)
		must.Succeed(t, err)
		c, found := r.Chosen, types(r)
		t.Logf("%.3g of %.3g: %.3g with %v, %d models measured", bound, cheapest, c.Reached.KLMean, found, c.Measured)
		if !(c.Reached.KLMean <= bound) || c.Bound != bound || c.Cheapest != cheapest || c.Reached.Tokens > 400 ||
			c.Measured < 3 {
			t.Errorf("%+v, want at most %g", c, bound)
		}
		if share == 0.4 && (found["int4"] == 0 || found["int8"] == 0) {
			t.Errorf("types are %v, want both", found)
		}
		if got := mean(t, folder, to, inputs[:40]); !(got <= 2*bound) {
			t.Errorf("with ONNX Runtime the mean divergence is %g, the bound %g", got, bound)
		}
	}
	if _, _, err := quantise(1e-12); err == nil ||
		!strings.Contains(err.Error(), "no choice of types is within a mean divergence of 1e-12 but that of float32 alone") {
		t.Errorf("a bound that float32 alone holds: %v", err)
	}
}
