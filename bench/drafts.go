package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/generate/text"
	"github.com/opgraft/graft/host/measure/statistics"
)

// drafting is a figure of generations of a trained model with drafts against those without, output by output.
type drafting struct {
	name, what string
	least      float64
	copies     bool   // texts whose outputs copy, or some whose outputs copy nothing
	beams      int    // 1 is greedy
	weights    string // of the model as its own draft model; "" for drafts by lookup
}

// draftFigures are those of drafts, each over that many outputs, of which some are generated at once.
func draftFigures(outputs, together int) (list []figure) {
	for _, d := range []drafting{
		{"drafts-copy", "SmolLM2-135M, prompts that ask for parts of a text again, greedy: drafts by lookup against none",
			1.8, true, 1, ""},
		{"drafts-copy-beam4", "the same with four beams", 1.3, true, 4, ""},
		{"drafts-none", "SmolLM2-135M goes on with texts and may repeat no three tokens, greedy: drafts by lookup against " +
			"none", 0.97, false, 1, ""},
		{"drafts-none-beam4", "the same with four beams", 0.97, false, 4, ""},
		{"drafts-model", "SmolLM2-135M goes on with texts, greedy: drafts of the same model with int4 weights against none",
			1, false, 1, "int4"},
	} {
		list = append(list, figure{d.name, d.what, fmt.Sprintf("at least %.2fx in all, all outputs equal", d.least),
			func(ctx context.Context, b *bench) (*outcome, error) { return d.run(ctx, b, outputs, together) }})
	}
	return list
}

// draftOutputs is how many outputs a figure has where nothing else is asked for.
const draftOutputs = 24

// draftTokens is the maximum of new tokens of an output.
const draftTokens = 128

// drafted is what a side came to.
type drafted struct {
	Seconds  []float64 `json:"seconds"` // of each output, or of those that are generated at once
	Tokens   int       `json:"tokens"`
	Steps    int       `json:"steps"`
	Drafted  int       `json:"drafted"`
	Accepted int       `json:"accepted"`
}

func (d *drafted) total() (sum float64) {
	for _, s := range d.Seconds {
		sum += s
	}
	return sum
}

// draftDetail is the raw figures of drafts.
type draftDetail struct {
	Outputs  int     `json:"outputs"`
	Together int     `json:"together"` // outputs that are generated at once
	Equal    int     `json:"equal"`
	A        drafted `json:"a"`
	B        drafted `json:"b"`
	// Total is all time of A over all time of B; Speedup that of blocks of outputs.
	Total      float64             `json:"total"`
	Speedup    statistics.Speedup  `json:"speedup"`
	DraftModel *decode.DraftReport `json:"draft_model,omitempty"`
}

// draftFolder is a folder in the user's cache that make trained-models makes.
func draftFolder(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "graft", "trained", name)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", &diagnostic.Error{Path: path, Found: "not found", Needed: "a trained model and texts",
			Fix: "make trained-models makes them"}
	}
	return path, nil
}

func (d drafting) run(ctx context.Context, b *bench, outputs, together int) (*outcome, error) {
	folder, err := draftFolder("smollm2-135m")
	if err != nil {
		return nil, err
	}
	texts, err := draftFolder("texts")
	if err != nil {
		return nil, err
	}
	prompts, err := draftPrompts(texts, d.copies, outputs)
	if err != nil {
		return nil, err
	}
	o := decode.Options{Library: b.library, Plugins: b.set, Batch: together}
	if d.weights != "" {
		if o.Draft, err = decode.ParseDraftModel(folder + ",weights=" + d.weights); err != nil {
			return nil, err
		}
	}
	g, err := generate.Open(ctx, folder, o)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	options := g.Search()
	options.NumBeams, options.MaxNewTokens, options.MaxLength = d.beams, draftTokens, 0
	if !d.copies {
		options.MinNewTokens = draftTokens / 2
		if d.weights == "" { // a model with as little to look up as there can be
			options.NoRepeatNgramSize = 3
		}
	}
	plain, drafts := options, options
	drafts.Draft = search.DraftLookup
	if d.weights != "" {
		drafts.Draft = search.DraftModel
	}
	inputs := make([]*decode.Input, len(prompts))
	for i, prompt := range prompts {
		ids, err := g.Tokenizer.Encode(ctx, prompt, text.EncodeOptions{})
		if err != nil {
			return nil, err
		}
		inputs[i] = &decode.Input{Tokens: make([]int32, len(ids))}
		for j, id := range ids {
			inputs[i].Tokens[j] = int32(id)
		}
	}
	r := &draftDetail{Outputs: len(prompts), Together: together}
	groups := slices.Collect(slices.Chunk(inputs, together))
	const warm = 2
	for i := -warm; i < len(groups); i++ {
		sides := []struct {
			of search.Options
			to *drafted
		}{{plain, &r.A}, {drafts, &r.B}}
		if i%2 != 0 {
			slices.Reverse(sides)
		}
		var found [][]decode.Output
		for _, s := range sides {
			list, seconds, err := timed(ctx, g, s.of, groups[max(0, i)])
			if err != nil {
				return nil, fmt.Errorf("prompts from %d on: %w", max(0, i)*together, err)
			}
			found = append(found, list)
			if i < 0 {
				continue
			}
			s.to.Seconds = append(s.to.Seconds, seconds)
			for _, out := range list {
				s.to.Tokens, s.to.Steps = s.to.Tokens+len(out.Hypotheses[0].Tokens), s.to.Steps+out.Steps
				s.to.Drafted, s.to.Accepted = s.to.Drafted+out.Drafted, s.to.Accepted+out.Accepted
			}
		}
		for k := range found[0] {
			if i >= 0 && slices.EqualFunc(found[0][k].Hypotheses, found[1][k].Hypotheses,
				func(x, y search.Hypothesis) bool { return slices.Equal(x.Tokens, y.Tokens) }) {
				r.Equal++
			}
		}
	}
	r.Total = r.A.total() / r.B.total()
	r.Speedup = statistics.SpeedupOf(blocked(r.A.Seconds), blocked(r.B.Seconds))
	if engine, ok := g.Device.(*decode.Generator); ok {
		r.DraftModel = engine.DraftModel()
	}
	out := &outcome{Detail: r, Met: r.Total >= d.least && r.Equal == r.Outputs,
		Answers: fmt.Sprintf("%d of %d outputs equal", r.Equal, r.Outputs)}
	out.Got = fmt.Sprintf("%.2fx in all (blocks of outputs: 95%% %.2f to %.2f), %.1f -> %.1f tokens/s; %d of %d "+
		"drafted positions accepted, %d steps for %d",
		r.Total, r.Speedup.CI95[0], r.Speedup.CI95[1], float64(r.A.Tokens)/r.A.total(), float64(r.B.Tokens)/r.B.total(),
		r.B.Accepted, r.B.Drafted, r.B.Steps, r.A.Steps)
	return out, nil
}

// timed generates for some inputs, and gives what they became in their order.
func timed(ctx context.Context, g *generate.Generator, o search.Options, inputs []*decode.Input) (list []decode.Output,
	seconds float64, err error) {
	next := 0
	start := time.Now()
	err = g.Device.Run(ctx, o, func() (*decode.Input, error) {
		if next == len(inputs) {
			return nil, nil
		}
		inputs[next].Index = uint64(next) // by which outputs that end in another order are told apart
		next++
		return inputs[next-1], nil
	}, func(found decode.Output) error {
		list = append(list, found)
		return nil
	})
	slices.SortFunc(list, func(a, b decode.Output) int { return cmp.Compare(a.Index, b.Index) })
	return list, time.Since(start).Seconds(), err
}

// blocked are sums of up to 12 blocks of a list.
func blocked(list []float64) []float64 {
	sums := make([]float64, min(12, len(list)))
	for i, x := range list {
		sums[i*len(sums)/len(list)] += x
	}
	return sums
}
