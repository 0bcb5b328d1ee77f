package folder

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// splade makes one vector of a text's logits, a weight for each token of the vocabulary (SPLADE v2, Formal et al. 2021,
// equation 1 and 6): log(1 + relu(logit)), the sum or the greatest of all tokens.
type splade struct {
	path  string
	sum   bool
	twice bool // log1p_relu: the logarithm is taken again
	width int  // of a row of logits; 0 where it is not said
}

func readSplade(folder string, in *Folder) (Module, error) {
	path := filepath.Join(folder, "config.json")
	o, found, err := readObject(path, "SpladePooling")
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, &diagnostic.Error{Path: path, Found: "there is no such file", Needed: "how the model pools",
			Fix: "copy the whole folder from where the model comes from"}
	}
	s := &splade{path: path}
	s.sum = o.choice("pooling_strategy", "max", "sum") == "sum"
	s.twice = o.choice("activation_function", "relu", "log1p_relu") == "log1p_relu"
	s.width = o.width(maxVocabulary)
	in.Vocabulary = true
	return s, o.close()
}

func (s *splade) Check(w Widths) error {
	n := w[TokenEmbeddings]
	switch {
	case n == absent:
		return &diagnostic.Error{Path: s.path, Found: "a SpladePooling without logits of tokens before it",
			Needed: "a Transformer for fill-mask"}
	case n > 0 && s.width > 0 && n != s.width:
		return &diagnostic.Error{Path: s.path, Found: fmt.Sprintf("a SpladePooling of %d logits", s.width),
			Needed: fmt.Sprintf("%d, the width of the model's", n)}
	}
	w[SentenceEmbedding] = max(n, 0)
	return nil
}

func (s *splade) Apply(f *Features) error {
	width := f.Tokens.Width
	out := make([]float32, width)
	for t := range f.Length {
		for d, x := range f.Tokens.Values[t*width : (t+1)*width] {
			switch {
			case s.sum && !(x <= 0):
				out[d] += s.weight(x)
			case !s.sum && !(x <= out[d]): // the weight grows with the logit; NaN stays
				out[d] = x
			}
		}
	}
	if !s.sum {
		for d, x := range out {
			if x != 0 {
				out[d] = s.weight(x)
			}
		}
	}
	f.Vector = out
	return nil
}

func (s *splade) weight(x float32) float32 {
	y := math.Log1p(float64(x))
	if s.twice {
		y = math.Log1p(y)
	}
	return float32(y)
}

// readAutoEncoder reads a SparseAutoEncoder (Wen et al. 2025): a linear layer, of which the k greatest numbers stay
// where they are positive.
func readAutoEncoder(folder string, in *Folder) (Module, error) {
	path := filepath.Join(folder, "config.json")
	o, found, err := readObject(path, "SparseAutoEncoder")
	if err != nil {
		return nil, err
	}
	m := &mapped{path: path, in: SentenceEmbedding, out: SentenceEmbedding}
	m.from, m.to = o.number("input_dim", 1, maxWidth), cmp.Or(o.number("hidden_dim", 1, maxWidth), 512)
	k := cmp.Or(in.MaxActive, o.number("k", 1, maxWidth), 8)
	normalized := o.bool("normalize", false)
	if err := o.close(); err != nil {
		return nil, err
	}
	if !found || m.from == 0 || k > m.to {
		return nil, &diagnostic.Error{Path: path, Found: fmt.Sprintf("%d numbers of a layer from %d to %d", k, m.from, m.to),
			Needed: fmt.Sprintf("input_dim and hidden_dim from 1 to %d, and k of the latter", maxWidth)}
	}
	var before, weight, bias []float32
	if err := weightsOf(folder, "SparseAutoEncoder", func(take func(string, ...int) []float32) {
		before, bias = take("pre_bias", m.from), take("latent_bias", m.to)
		weight = take("encoder.weight|decoder.linear.weight", m.to, m.from)
	}); err != nil {
		return nil, err
	}
	in.Vocabulary = false
	m.row = func(row, out []float32) {
		x := make([]float32, len(row))
		mean, deviation := 0., 1.
		if normalized {
			mean, deviation = spread(row)
		}
		for i, v := range row {
			x[i] = float32((float64(v)-mean)/deviation) - before[i]
		}
		for i := range out {
			out[i] = float32(dot(weight[i*len(x):(i+1)*len(x)], x) + float64(bias[i]))
		}
		keep(out, k, func(x float32) float32 { return x })
		for i, x := range out {
			out[i] = max(x, 0)
		}
	}
	return m, nil
}

// spread is the mean and the standard deviation of a sample, to which torch's layer adds 1e-5.
func spread(x []float32) (mean, deviation float64) {
	for _, v := range x {
		mean += float64(v) / float64(len(x))
	}
	for _, v := range x {
		deviation += (float64(v) - mean) * (float64(v) - mean)
	}
	return mean, math.Sqrt(deviation/float64(len(x)-1)) + 1e-5
}

// keep leaves the k numbers whose rank is greatest, and makes the others 0.
func keep(x []float32, k int, rank func(float32) float32) {
	if k <= 0 || k >= len(x) {
		return
	}
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank(x[b]), rank(x[a])) })
	for _, i := range order[k:] {
		x[i] = 0
	}
}

// KeepGreatest leaves the n numbers of a vector whose absolute value is greatest, as max_active_dims says; all where
// n is 0.
func KeepGreatest(x []float32, n int) {
	keep(x, n, func(v float32) float32 { return max(v, -v) })
}
