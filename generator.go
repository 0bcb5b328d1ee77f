package graft

import (
	"context"
	"io"
	"iter"
	"slices"

	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/pipeline"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
)

// Generator generates text with an exported model: a folder as optimum writes
// it, of a decoder or an encoder-decoder with its tokenizer, speech models
// included.
//
// It is safe for concurrent use. Inputs of all calls that run at once share the steps of the
// model, each with the options of its call, and calls take turns where there is more than fits. What is
// generated does not depend on what else runs.
type Generator struct {
	generator *generate.Generator
	search    search.Options
	draft     string // the name of the draft model; "" of none
}

// Generation is what was generated for one input.
type Generation struct {
	Index     int        // the input's number, from 0
	Sequences []Sequence // the best first; one, unless [ReturnSequences] asks for more
}

// Sequence is one generated text.
type Sequence struct {
	Text   string
	Tokens []int32 // the generated ones, without the prompt
	// Score is the sum of the tokens' log-probabilities, with beams divided by a power of the length
	// ([LengthPenalty]). In greedy search it is 0 unless output_scores is set.
	Score float64
	// Ended says that the last token is an end token. Otherwise the limit of length was reached.
	Ended bool
}

type generatorOptions struct {
	pluginOptions
	decode    decode.Options
	runtime   string
	attention string
	cache     string
	weights   string
	maxInput  int
	settings  settings
	err       error // the first option that is out of range
}

type generatorOption func(*generatorOptions)

func (f generatorOption) generator(o *generatorOptions) { f(o) }

// positive is an option whose value has to be above 0, and at most as much as anyone needs.
func positive[N int | int64](name string, n, most N, set func(*generatorOptions)) GeneratorOption {
	return generatorOption(func(o *generatorOptions) {
		check(&o.err, name, n, most)
		set(o)
	})
}

// number is positive of an option that encoders have too.
func number(name string, n, most int, generates func(*generatorOptions), encodes func(*encoderOptions)) FolderOption {
	return folderOption{func(o *generatorOptions) {
		check(&o.err, name, n, most)
		generates(o)
	}, func(o *encoderOptions) {
		check(&o.err, name, n, most)
		encodes(o)
	}}
}

// check refuses a number, unless something was refused before.
func check[N int | int64](err *error, name string, n, most N) {
	if n <= 0 && *err == nil {
		*err = refuse("%s is %d: at least 1 is needed", name, n)
	}
	if n > most && *err == nil {
		*err = refuse("%s is %d: at most %d is possible", name, n, most)
	}
}

// BatchSize has at most n inputs in flight at once, of all calls together; 8 without it.
func BatchSize(n int) GeneratorOption {
	return positive("BatchSize", n, limit.Batch, func(o *generatorOptions) { o.decode.Batch = n })
}

// AutoBatchSize has as many inputs in flight as memory holds.
func AutoBatchSize() GeneratorOption {
	return generatorOption(func(o *generatorOptions) { o.decode.Batch = decode.AutoBatch })
}

// MaxCache bounds the memory of the KV cache, in bytes; without it half of the machine's.
func MaxCache(bytes int64) GeneratorOption {
	return positive("MaxCache", bytes, limit.Cache, func(o *generatorOptions) { o.decode.CacheBytes = bytes })
}

// MaxInputTokens cuts inputs after n tokens. Without it they are cut at what the model's positions, or the
// configuration of an encoder, allow.
func MaxInputTokens(n int) FolderOption {
	return number("MaxInputTokens", n, limit.Tokens, func(o *generatorOptions) { o.maxInput = n },
		func(o *encoderOptions) { o.inner.MaxInput = n })
}

// Threads sets the threads of an operator; one a core without it.
func Threads(n int) ModelOption {
	return modelOption{number("Threads", n, limit.Threads, func(o *generatorOptions) { o.decode.Threads = n },
		func(o *encoderOptions) { o.inner.Threads = n }),
		func(o *quantizeOptions) { o.threads(n) }}
}

// Attention names the KV-cache strategy instead of leaving it to the planner: keys_values,
// prompt_hidden_states, keys, hidden_states or first_layer_keys, or a plugin that implements one, or self=NAME
// and cross=NAME with a comma between. Layers that cannot follow it use another.
func Attention(name string) GeneratorOption {
	return generatorOption(func(o *generatorOptions) { o.attention = name })
}

// Cache is what the KV cache stores, which changes answers: "bf16", "fp16" or "int8", with a scale for each head and
// token. Keys and values, and what other strategies store, are rounded once, when they are stored. Without this
// option the cache is float32. docs/generation.md says how large it is and what it costs.
func Cache(name string) GeneratorOption {
	return generatorOption(func(o *generatorOptions) { o.cache = name })
}

// Weights stores the weights of linear layers in fewer bits, which changes answers: "int8", "int4" or "bf16", and
// after it, with commas between, logits=TYPE for the last layer (one of these or "float32"; int8 without it where the
// others are int4), and of integers group=N for how many weights have one scale (32, 64 or 128; 32 without it),
// zero-points=true for integers that have them, and activations=TYPE for what is multiplied: "int16", which int8 has
// without it, "int8", as int4, or "float32" for no rounding. [NewGenerator] quantises them when it opens the model
// first, and stores them in the user's cache folder; [Quantize] writes them. Without this option weights of a
// generator are float32, as exported. docs/generation.md says what stays float32.
func Weights(name string) WeightsOption { return weightsOption(name) }

// PreferMemory chooses the KV-cache strategy of the fewest bytes instead of the fastest.
func PreferMemory() GeneratorOption {
	return generatorOption(func(o *generatorOptions) { o.decode.Attention.Prefer = plan.PreferMemory })
}

// Runtime names the libonnxruntime to use, as the environment variable GRAFT_ONNXRUNTIME does.
func Runtime(path string) ModelOption {
	return modelOption{folderOption{func(o *generatorOptions) { o.runtime = path },
		func(o *encoderOptions) { o.runtime = path }},
		func(o *quantizeOptions) { o.request.Runtime = path }}
}

// NewGenerator opens a model folder. Options of the search count for every call of Generate that does not
// set others. A context that ends makes it return at once with the context's error; what was being
// loaded is freed as soon as that can be.
func NewGenerator(ctx context.Context, folder string, opts ...GeneratorOption) (*Generator, error) {
	var o generatorOptions
	for _, x := range opts {
		x.generator(&o)
	}
	o.decode.MapWeights, o.decode.Share = o.mapWeights, o.wish()
	if o.err != nil {
		return nil, o.err
	}
	type opened struct {
		g   *Generator
		err error
	}
	done := make(chan opened, 1)
	go func() {
		g, err := o.open(ctx, folder)
		done <- opened{g, err}
	}()
	select {
	case got := <-done:
		return got.g, got.err
	case <-ctx.Done():
		go func() {
			if got := <-done; got.g != nil {
				got.g.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// open is NewGenerator after the options are read.
func (o *generatorOptions) open(ctx context.Context, folder string) (*Generator, error) {
	library, err := ort.FindAndOpen(o.runtime)
	if err != nil {
		return nil, public(err, ErrNoRuntime)
	}
	if o.weights != "" {
		if o.decode.Weights, err = prepare.ParseWeights(o.weights); err != nil {
			return nil, public(err, ErrOption)
		}
	}
	drafts := o.settings.draftModel()
	if drafts != "" {
		if o.decode.Draft, err = decode.ParseDraftModel(drafts); err != nil {
			return nil, public(err, ErrOption)
		}
	}
	set, err := o.load()
	if err != nil {
		return nil, err
	}
	if o.attention != "" {
		prefer := o.decode.Attention.Prefer
		if o.decode.Attention, err = prepare.ParseAttention(o.attention, set.Manifests()); err != nil {
			return nil, public(err, ErrOption)
		}
		o.decode.Attention.Prefer = prefer
	}
	if o.cache != "" {
		storage, err := plan.ParseStorage(o.cache)
		if err == nil {
			err = o.decode.Attention.Cache(storage)
		}
		if err != nil {
			return nil, public(err, ErrOption)
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	o.decode.Attention.Beams = o.settings.beams()
	o.decode.Library, o.decode.Plugins, o.decode.Plan = library, set, o.plan
	inner, err := generate.Open(folder, o.decode)
	if err != nil {
		return nil, public(err, ErrBadModel)
	}
	inner.MaxInput = o.maxInput
	g := &Generator{generator: inner, search: inner.Search(), draft: drafts}
	if err := o.settings.apply(&g.search); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// Close ends what is being generated with [ErrClosed] and frees the model.
func (g *Generator) Close() error {
	g.generator.Close()
	return nil
}

// Generate generates for every input and yields the results in the order of the
// inputs, each as soon as all before it are there. An input is a text; for a speech
// model it is the path of a WAV file or of a NumPy file of features, for a model of images that
// of a PNG or JPEG file. Inputs are read ahead, by another goroutine.
//
// For an input from which nothing can be generated the error is an [*InputError], and the loop
// may go on. Any other error is the last of the loop: the context's, [ErrOption],
// [ErrClosed], or that of the engine. Leaving the loop withdraws the inputs that are left.
func (g *Generator) Generate(ctx context.Context, inputs iter.Seq[string], opts ...GenerateOption) iter.Seq2[Generation,
	error] {
	return func(yield func(Generation, error) bool) {
		var list settings
		for _, x := range opts {
			x.generate(&list)
		}
		if from := list.draftModel(); from != "" && from != g.draft {
			yield(Generation{}, refuse("draft is %.80q: needed is lookup, none, or the draft model that the generator was "+
				"opened with (%q)", from, g.draft))
			return
		}
		o := g.search
		if err := list.apply(&o); err != nil {
			yield(Generation{}, err)
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		next, stop := iter.Pull(inputs)
		results := make(chan generate.Result)
		failed := make(chan error, 1)
		go func() {
			defer close(results)
			_, err := g.generator.Run(ctx, o, reader(next), func(r generate.Result) error {
				select {
				case results <- r:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}, pipeline.Options{})
			failed <- err
		}()
		defer stop() // after the run, which reads the inputs
		left := false
		for r := range results {
			if !left && !yield(generation(r)) {
				left = true
				cancel()
			}
		}
		if err := <-failed; err != nil && !left {
			yield(Generation{}, err)
		}
	}
}

// GenerateText is Generate for one input.
func (g *Generator) GenerateText(ctx context.Context, input string, opts ...GenerateOption) (Generation, error) {
	for out, err := range g.Generate(ctx, slices.Values([]string{input}), opts...) {
		return out, err
	}
	return Generation{}, context.Cause(ctx)
}

// generation is what is yielded of a result.
func generation(r generate.Result) (Generation, error) {
	out := Generation{Index: r.Index}
	if r.Err != nil {
		return out, &InputError{Index: r.Index, Err: r.Err}
	}
	for _, s := range r.Sequences {
		out.Sequences = append(out.Sequences, Sequence{Text: s.Text, Tokens: s.Tokens, Score: s.Score, Ended: s.Ended})
	}
	return out, nil
}

// reader reads a sequence as a pipeline does a file.
func reader(next func() (string, bool)) func() (string, error) {
	return func() (string, error) {
		if s, ok := next(); ok {
			return s, nil
		}
		return "", io.EOF
	}
}
