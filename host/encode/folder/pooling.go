package folder

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// Modes are the ways to pool, in the order in which several are joined where they are not a list.
var Modes = []string{"cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"}

// switches are the keys that sentence-transformers wrote before 5.4, one a mode.
var switches = []string{"pooling_mode_cls_token", "pooling_mode_max_tokens", "pooling_mode_mean_tokens",
	"pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"}

// Pooling makes one vector of the hidden states of a text.
type Pooling struct {
	Modes  []string
	Prompt bool // tokens of the prompt count

	path     string
	width    int  // of a hidden state; 0 where it is not said
	clsAfter bool // the first token is the first one that counts, as since 5.5
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
func readPooling(folder string, in *Folder) (Module, error) {
	path := filepath.Join(folder, "config.json")
	o, found, err := readObject(path, "Pooling")
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, &diagnostic.Error{Path: path, Found: "there is no such file", Needed: "how the model pools",
			Fix: "copy the whole folder from where the model comes from"}
	}
	p := &Pooling{path: path, clsAfter: in.Version.AtLeast(5, 5)}
	p.width = o.width(maxWidth)
	p.Prompt = o.bool("include_prompt", true)
	p.readModes(o)
	return p, o.close()
}

// width is that of what is pooled, by its name since 5.4 or the one before; 0 where it is not said.
func (o *object) width(most int) int {
	width, before := o.number("embedding_dimension", 1, most), o.number("word_embedding_dimension", 1, most)
	if width > 0 && before > 0 && width != before && o.err == nil {
		o.err = &diagnostic.Error{Path: o.path,
			Found:  fmt.Sprintf("embedding_dimension is %d and word_embedding_dimension is %d", width, before),
			Needed: "one width, that of what the model gives of a token"}
	}
	return max(width, before)
}

// readModes reads pooling_mode, a word or a list, or a switch for each mode.
func (p *Pooling) readModes(o *object) {
	refuse := func(found, needed string) {
		if o.err == nil {
			o.err = &diagnostic.Error{Path: o.path, Found: found, Needed: needed}
		}
	}
	var on []string
	given, mean := 0, false
	for i, key := range switches {
		if _, ok := o.take(key); ok {
			given++
			mean = mean || Modes[i] == "mean"
			if o.bool(key, false) {
				on = append(on, Modes[i])
			}
		}
	}
	var raw json.RawMessage
	if o.value("pooling_mode", "a mode or a list of modes", &raw) {
		var word string
		if json.Unmarshal(raw, &word) == nil {
			p.Modes = []string{word}
		} else if json.Unmarshal(raw, &p.Modes) != nil || len(p.Modes) == 0 {
			refuse("pooling_mode is "+diagnostic.Clip(string(raw)), "a mode or a list of modes")
		}
		for _, mode := range p.Modes {
			if !slices.Contains(Modes, mode) {
				refuse(fmt.Sprintf("pooling_mode is %q", diagnostic.Clip(mode)), "one of "+strings.Join(Modes, ", "))
			}
		}
		if given > 0 && !sameModes(on, p.Modes) {
			refuse("pooling_mode is "+strings.Join(p.Modes, "+")+", and the keys pooling_mode_* say "+
				strings.Join(append(on, "no other")[:max(len(on), 1)], "+"), "one of the two, or both alike")
		}
		return
	}
	p.Modes = on
	switch {
	case given == 0 || len(on) == 0 && !mean:
		p.Modes = []string{"mean"}
	case len(on) == 0:
		refuse("no pooling mode is on", "at least one of "+strings.Join(Modes, ", "))
	case !mean:
		// sentence-transformers takes an absent pooling_mode_mean_tokens for true before 5.4, and for false since.
		refuse("pooling_mode_* without pooling_mode_mean_tokens, which versions of sentence-transformers read in two ways",
			"pooling_mode_mean_tokens, true or false")
	}
}

func sameModes(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

// Check refuses hidden states of another width.
func (p *Pooling) Check(w Widths) error {
	n := w[TokenEmbeddings]
	if n > 0 && p.width > 0 && n != p.width {
		return p.unfit(n)
	}
	w[SentenceEmbedding] = max(n, 0) * len(p.Modes)
	return nil
}

func (p *Pooling) unfit(n int) error {
	return &diagnostic.Error{Path: p.path, Found: fmt.Sprintf("a Pooling of hidden states of width %d", p.width),
		Needed: fmt.Sprintf("%d, the width of the model's", n)}
}

// Apply pools the hidden states of a text.
func (p *Pooling) Apply(f *Features) error {
	if n := f.Tokens.Width; p.width > 0 && n != p.width { // of a graph that does not say it before it runs
		return p.unfit(n)
	}
	skipped := 0
	if !p.Prompt {
		skipped = min(f.Prompt, f.Length)
	}
	states, width, tokens := f.Tokens.Values, f.Tokens.Width, f.Length
	out := make([]float32, 0, len(p.Modes)*width)
	for _, mode := range p.Modes {
		switch mode {
		case "cls":
			first := 0
			if p.clsAfter && skipped < tokens {
				first = skipped
			}
			out = append(out, states[first*width:(first+1)*width]...)
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
	f.Vector = out
	return nil
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
