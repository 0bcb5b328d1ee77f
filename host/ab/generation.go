package ab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/opgraft/graft/host/decode"
	"github.com/opgraft/graft/host/decode/engine"
	"github.com/opgraft/graft/host/decode/modeldir"
	"github.com/opgraft/graft/host/decode/plain"
	"github.com/opgraft/graft/host/decode/prepare"
	"github.com/opgraft/graft/host/decode/search"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/patch"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/rewrite"
)

// GenerationOptions say what two ways of generating are compared on.
type GenerationOptions struct {
	// A and B: "none" is the model as exported, with past and present as tensors,
	// written as well as that goes (package plain); "auto" is the engine; what
	// prepare.ParseAttention reads is the engine with that attention; another plugin's
	// name is the engine with the cache's own plugin and that one alone.
	A, B string
	// Search are options in the words of Hugging Face's generation configuration.
	Search []byte
	// Inputs are tokens of one length; without them Batch inputs of PromptLength
	// tokens are made from Seed. A speech model takes Features, of one shape, instead;
	// without them Batch inputs of the shape that it was made for are made.
	Inputs              [][]int32
	Features            []*engine.Features
	Batch, PromptLength int
	Seed                uint64
	Threads             int
	CacheBytes          int64
	Rounds              int                     // of A B B A
	Step                func(what string)       `json:"-"`
	Progress            func(done, total int64) `json:"-"`
	// Child starts this program anew in a way that calls GenerateChild. Each side
	// generates once in such a process, for its peak memory; nil measures none.
	Child func(ctx context.Context) *exec.Cmd `json:"-"`
}

// GenerationSide is one way of generating.
type GenerationSide struct {
	Name string `json:"name"`
	// Seconds of whole runs and, of those, until every sample had its first token.
	Seconds       []float64 `json:"seconds"`
	PromptSeconds []float64 `json:"prompt_seconds"`
	// TokensPerSecond is new tokens over whole runs, DecodeTokensPerSecond over what
	// follows the prompt; both medians.
	TokensPerSecond       float64 `json:"tokens_per_second"`
	DecodeTokensPerSecond float64 `json:"decode_tokens_per_second"`
	// FirstTokenSeconds is the median of PromptSeconds.
	FirstTokenSeconds float64 `json:"first_token_seconds"`
	// CacheBytes is the most that attention kept, all copies counted; SampleBytes is the
	// most that it kept of one input.
	CacheBytes  int64 `json:"cache_bytes"`
	SampleBytes int64 `json:"cache_bytes_per_sample"`
	// Attention says what serves each layer; nil for the model as exported.
	Attention []rewrite.Served `json:"attention,omitempty"`
	Footprint
	Plugins []string `json:"plugins"`
}

// Generation compares two ways end to end.
type Generation struct {
	SchemaVersion int     `json:"schema_version"`
	Model         string  `json:"model"`
	Batch         int     `json:"batch"`
	InputTokens   int     `json:"input_tokens"`             // of one input
	InputFeatures []int64 `json:"input_features,omitempty"` // shape of one input of a speech model
	NewTokens     int     `json:"new_tokens"`               // of the best sequences, all inputs
	DistinctLeast int     `json:"distinct_tokens_least"`
	ReorderShare  float64 `json:"reorder_share"` // of the steps of B's samples, when B is the engine
	// Equal sequences of all, the same number of tokens and the same tokens.
	Equal         int            `json:"equal"`
	Sequences     int            `json:"sequences"`
	A             GenerationSide `json:"a"`
	B             GenerationSide `json:"b"`
	Speedup       Speedup        `json:"speedup"`
	DecodeSpeedup Speedup        `json:"decode_speedup"`
	// StepFloor compares B's steps with what the machine's memory allows; nil where B
	// is not the engine.
	StepFloor   *StepFloor  `json:"step_floor,omitempty"`
	Environment Environment `json:"environment"`
}

// StepFloor is the least time that a step could take: that of reading the weights
// of all products, and the keys and values of distinct positions of prompts and
// encoders' inputs, once.
type StepFloor struct {
	Bytes   int64   `json:"bytes"`
	ReadGB  float64 `json:"read_gb_s"` // median over the rounds, measured between runs
	FloorMS float64 `json:"floor_ms"`
	StepMS  float64 `json:"step_ms"` // median
	Ratio   float64 `json:"ratio"`
}

// way is one open side.
type way struct {
	GenerationSide
	run   func(ctx context.Context) ([][]search.Hypothesis, time.Duration, error)
	share func() float64
	close func()
	// stepBytes is what a step reads at least; 0 where that is not known.
	stepBytes int64
}

// Generate compares whole generations of a model folder.
func Generate(ctx context.Context, l *ort.Library, set *patch.Set, folder string, o GenerationOptions) (*Generation, error) {
	if o.Rounds <= 0 {
		o.Rounds = 3
	}
	if o.Step == nil {
		o.Step = func(string) {}
	}
	config, err := modeldir.ReadConfig(folder)
	if err != nil {
		return nil, err
	}
	given := o
	inputs, err := o.inputs(config)
	if err != nil {
		return nil, err
	}
	var memory [2]Footprint
	for i, name := range []string{o.A, o.B} {
		if o.Child == nil {
			break
		}
		o.Step("measuring the memory of " + name)
		if memory[i], err = (job{folder, name, given}).footprint(ctx, o.Child(ctx)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	var sides [2]*way
	for i, name := range []string{o.A, o.B} {
		o.Step("opening " + name)
		if sides[i], err = openWay(l, set, folder, name, config, inputs, o); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		defer sides[i].close()
		sides[i].Footprint = memory[i]
	}
	r := &Generation{SchemaVersion: 1, Model: folder, Batch: len(inputs), InputTokens: len(inputs[0].Tokens)}
	if f := inputs[0].Features; f != nil {
		r.InputFeatures = f.Shape
	}
	var first [2][][]search.Hypothesis
	for i, w := range sides {
		o.Step("generating with " + w.Name)
		if first[i], _, err = w.run(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", w.Name, err)
		}
	}
	r.compare(first[0], first[1])
	o.Step("timing")
	var reads []float64
	for round := range o.Rounds {
		for _, i := range []int{0, 1, 1, 0} {
			start := time.Now()
			_, prompt, err := sides[i].run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", sides[i].Name, err)
			}
			sides[i].Seconds = append(sides[i].Seconds, time.Since(start).Seconds())
			sides[i].PromptSeconds = append(sides[i].PromptSeconds, prompt.Seconds())
		}
		if sides[1].stepBytes > 0 {
			reads = append(reads, ReadBandwidth()/1e9)
		}
		if o.Progress != nil {
			o.Progress(int64(round+1), int64(o.Rounds))
		}
	}
	var after [2][]float64
	for i, w := range sides {
		for j, s := range w.Seconds {
			after[i] = append(after[i], s-w.PromptSeconds[j])
		}
		w.FirstTokenSeconds = median(w.PromptSeconds)
		w.TokensPerSecond = float64(r.NewTokens) / median(w.Seconds)
		w.DecodeTokensPerSecond = float64(r.NewTokens-r.Batch) / median(after[i])
	}
	r.ReorderShare = sides[1].share()
	r.A, r.B = sides[0].GenerationSide, sides[1].GenerationSide
	r.Speedup, r.DecodeSpeedup = speedup(r.A.Seconds, r.B.Seconds), speedup(after[0], after[1])
	if steps := float64(r.NewTokens)/float64(r.Batch) - 1; sides[1].stepBytes > 0 && steps > 0 {
		f := &StepFloor{Bytes: sides[1].stepBytes, ReadGB: median(reads), StepMS: 1e3 * median(after[1]) / steps}
		f.FloorMS = float64(f.Bytes) / f.ReadGB / 1e6
		f.Ratio = f.StepMS / f.FloorMS
		r.StepFloor = f
	}
	o.Step("measuring the machine")
	r.Environment = Measure(l)
	return r, nil
}

// compare counts equal sequences and how varied the best ones are.
func (r *Generation) compare(a, b [][]search.Hypothesis) {
	r.DistinctLeast = -1
	for i := range a {
		for j := range a[i] {
			r.Sequences++
			if j < len(b[i]) && slices.Equal(a[i][j].Tokens, b[i][j].Tokens) {
				r.Equal++
			}
		}
		if len(b[i]) == 0 {
			continue
		}
		distinct := map[int32]bool{}
		for _, t := range b[i][0].Tokens {
			distinct[t] = true
		}
		r.NewTokens += len(b[i][0].Tokens)
		if r.DistinctLeast < 0 || len(distinct) < r.DistinctLeast {
			r.DistinctLeast = len(distinct)
		}
	}
}

// inputs are those that are given, or made ones.
func (o *GenerationOptions) inputs(config *modeldir.Config) ([]*decode.Input, error) {
	var list []*decode.Input
	if shape := config.FeatureShape(); shape != nil {
		if len(o.Inputs) > 0 {
			return nil, errors.New("the model reads speech, and the inputs are tokens: give features, or a batch alone")
		}
		if len(o.Features) == 0 {
			o.Features = madeFeatures(o.Seed, o.Batch, shape)
		}
		for _, f := range o.Features {
			list = append(list, &decode.Input{Features: f})
		}
	} else {
		if len(o.Inputs) == 0 {
			o.Inputs = madePrompts(o.Seed, o.Batch, o.PromptLength, config.Inputs)
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

// madePrompts are inputs of random tokens.
func madePrompts(seed uint64, batch, length, vocab int) [][]int32 {
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
func fits(inputs []*decode.Input, most int) error {
	for _, in := range inputs {
		if len(in.Tokens) > most {
			return fmt.Errorf("inputs have %d tokens, and the model takes %d with so many new ones: shorten them", len(in.Tokens), most)
		}
	}
	return nil
}

func openWay(l *ort.Library, set *patch.Set, folder, name string, config *modeldir.Config, inputs []*decode.Input, o GenerationOptions) (*way, error) {
	if name == "none" {
		return openPlain(l, set, folder, config, inputs, o)
	}
	w := &way{GenerationSide: GenerationSide{Name: name}}
	options := decode.Options{Library: l, Plugins: set, Threads: o.Threads, CacheBytes: o.CacheBytes, Batch: len(inputs)}
	if attention, err := prepare.ParseAttention(name, set.Manifests()); err == nil {
		options.Attention = attention
	} else if strings.ContainsAny(name, "=:") {
		return nil, err // no plugin has such a name
	} else if name != "auto" {
		if err := set.Require([]string{name}); err != nil {
			return nil, err
		}
		options.Plan = plan.Options{Plugins: []string{name}}
	}
	so, err := decode.SearchOf(folder, config, o.Search)
	if err != nil {
		return nil, err
	}
	options.Attention.Beams = max(so.NumBeams, so.NumReturnSequences)
	g, err := decode.Open(folder, options)
	if err != nil {
		return nil, err
	}
	if err := fits(inputs, g.Positions(so)); err != nil {
		g.Close()
		return nil, err
	}
	w.close, w.Plugins, w.Attention = g.Close, g.Engine().Plugins(), g.Engine().Served()
	steps, reorders := 0, 0
	w.share = func() float64 { return float64(reorders) / float64(max(steps, 1)) }
	w.run = func(ctx context.Context) ([][]search.Hypothesis, time.Duration, error) {
		results := make([][]search.Hypothesis, len(inputs))
		i := -1
		start, prompt, read := time.Now(), time.Duration(0), int64(0)
		err := g.Run(ctx, so, func() (*decode.Input, error) {
			if i++; i >= len(inputs) {
				return nil, nil
			}
			return inputs[i], nil
		}, func(out decode.Output) error {
			results[out.Index] = out.Hypotheses
			w.SampleBytes = max(w.SampleBytes, out.CacheBytes+out.CrossBytes)
			read += out.CrossBytes + int64(out.Prompt)*g.Engine().PromptBytes()
			steps, reorders = steps+out.Steps, reorders+out.Reorders
			prompt = max(prompt, out.FirstToken.Sub(start))
			return nil
		})
		_, self, _, cross := g.Engine().Memory()
		w.CacheBytes = self + cross
		if weights := g.Engine().StepBytes(); weights > 0 {
			w.stepBytes = weights + read
		}
		return results, prompt, err
	}
	return w, nil
}

func openPlain(l *ort.Library, set *patch.Set, folder string, config *modeldir.Config, made []*decode.Input, o GenerationOptions) (*way, error) {
	files, err := modeldir.Find(folder)
	if err != nil {
		return nil, err
	}
	so, err := decode.SearchOf(folder, config, o.Search)
	if err != nil {
		return nil, err
	}
	if err := fits(made, config.InputLimit(so, files.Encoder != "", min(config.Positions, modeldir.DefaultPositions))); err != nil {
		return nil, err
	}
	m, err := plain.Open(l, files, o.Threads)
	if err != nil {
		return nil, err
	}
	tail, closeTail, err := decode.TailOf(set, o.Threads)
	if err != nil {
		m.Close()
		return nil, err
	}
	w := &way{GenerationSide: GenerationSide{Name: "none", Plugins: []string{}}, close: func() { m.Close(); closeTail() }, share: func() float64 { return 0 }}
	var inputs []plain.Input
	for _, given := range made {
		in := plain.Input{Index: given.Index, Prompt: given.Tokens}
		if files.Encoder != "" {
			prompt, err := so.DecoderPrompt()
			if err != nil {
				w.close()
				return nil, err
			}
			in.Encoder, in.Features, in.Prompt = given.Tokens, given.Features, prompt
		}
		inputs = append(inputs, in)
	}
	w.run = func(ctx context.Context) ([][]search.Hypothesis, time.Duration, error) {
		start := time.Now()
		results, err := m.Generate(ctx, tail, so, inputs, config.Vocab)
		w.CacheBytes = m.Self + m.Cross
		w.SampleBytes = w.CacheBytes / int64(len(inputs))
		lists := make([][]search.Hypothesis, len(results))
		for i, r := range results {
			lists[i] = r.Hypotheses
		}
		return lists, m.FirstToken.Sub(start), err
	}
	return w, nil
}
