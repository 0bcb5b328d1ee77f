package encoder

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// Modes are the ways to pool, in the order in which several are joined.
var Modes = []string{"cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"}

// pooling makes one vector of the hidden states of a text.
type pooling struct {
	modes  []string
	width  int  // of a hidden state; 0 where it is not said
	prompt bool // tokens of the prompt count
}

// ParsePooling reads modes with plus signs between, such as "mean" or "cls+max".
func ParsePooling(text string) ([]string, error) {
	var modes []string
	for name := range strings.SplitSeq(text, "+") {
		if !slices.Contains(Modes, name) || slices.Contains(modes, name) {
			return nil, &diagnostic.Error{Found: fmt.Sprintf("pooling %q", diagnostic.Clip(text)),
				Needed: "one of " + strings.Join(Modes, ", ") + ", or several with + between"}
		}
		modes = append(modes, name)
	}
	slices.SortFunc(modes, func(a, b string) int { return slices.Index(Modes, a) - slices.Index(Modes, b) })
	return modes, nil
}

// readPooling reads the config.json of a Pooling.
func readPooling(folder string) (*pooling, error) {
	path := filepath.Join(folder, "config.json")
	c := struct {
		Width  int   `json:"word_embedding_dimension"`
		CLS    bool  `json:"pooling_mode_cls_token"`
		Mean   *bool `json:"pooling_mode_mean_tokens"`
		Max    bool  `json:"pooling_mode_max_tokens"`
		Sqrt   bool  `json:"pooling_mode_mean_sqrt_len_tokens"`
		Weight bool  `json:"pooling_mode_weightedmean_tokens"`
		Last   bool  `json:"pooling_mode_lasttoken"`
		Prompt *bool `json:"include_prompt"`
	}{}
	found, err := readJSON(path, &c)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, &diagnostic.Error{Path: path, Found: "there is no such file", Needed: "how the model pools",
			Fix: "copy the whole folder from where the model comes from"}
	}
	p := &pooling{width: c.Width, prompt: c.Prompt == nil || *c.Prompt}
	for i, on := range []bool{c.CLS, c.Max, c.Mean == nil || *c.Mean, c.Sqrt, c.Weight, c.Last} {
		if on {
			p.modes = append(p.modes, Modes[i])
		}
	}
	if len(p.modes) == 0 {
		return nil, &diagnostic.Error{Path: path, Found: "no pooling mode is on",
			Needed: "at least one of " + strings.Join(Modes, ", ")}
	}
	return p, nil
}

// apply pools the first tokens of a row of hidden states, [padded, width], of which the first skipped do not count.
func (p *pooling) apply(states []float32, width, tokens, skipped int) []float32 {
	if p.prompt {
		skipped = 0
	}
	skipped = min(skipped, tokens)
	out := make([]float32, 0, len(p.modes)*width)
	for _, mode := range p.modes {
		switch mode {
		case "cls":
			out = append(out, states[:width]...)
		case "lasttoken":
			if skipped == tokens {
				out = append(out, make([]float32, width)...)
			} else {
				out = append(out, states[(tokens-1)*width:tokens*width]...)
			}
		case "max":
			out = append(out, maximum(states, width, tokens, skipped)...)
		default:
			out = append(out, mean(mode, states, width, tokens, skipped)...)
		}
	}
	return out
}

// least is what hidden states that do not count are taken for in a maximum.
const least = -1e9

func maximum(states []float32, width, tokens, skipped int) []float32 {
	out := make([]float32, width)
	for d := range out {
		out[d] = least
	}
	for t := skipped; t < tokens; t++ {
		for d, v := range states[t*width : (t+1)*width] {
			if v > out[d] || v != v {
				out[d] = v
			}
		}
	}
	return out
}

// mean is one of the three means: they differ in the weights of tokens and in what the sum is divided by.
func mean(mode string, states []float32, width, tokens, skipped int) []float32 {
	sums, total := make([]float64, width), 0.
	for t := skipped; t < tokens; t++ {
		weight := 1.
		if mode == "weightedmean" {
			weight = float64(t + 1)
		}
		total += weight
		for d, v := range states[t*width : (t+1)*width] {
			sums[d] += weight * float64(v)
		}
	}
	total = max(total, 1e-9)
	if mode == "mean_sqrt_len_tokens" {
		total = math.Sqrt(total)
	}
	out := make([]float32, width)
	for d := range out {
		out[d] = float32(sums[d] / total)
	}
	return out
}

// normalize gives a vector the length 1.
type normalize struct{}

func (normalize) width(of int) int { return of }

func (normalize) apply(v []float32) []float32 {
	sum := 0.
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	length := max(math.Sqrt(sum), 1e-12)
	for d := range v {
		v[d] = float32(float64(v[d]) / length)
	}
	return v
}
