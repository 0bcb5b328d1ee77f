package graft

import (
	"context"
	"io"
	"iter"
	"strconv"

	"github.com/opgraft/graft/host/decode"
	"github.com/opgraft/graft/host/decode/prepare"
	"github.com/opgraft/graft/host/decode/search"
	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/pipeline"
	"github.com/opgraft/graft/host/plan"
)

// Generator generates text with an exported model: a folder as optimum writes
// it, of a decoder or an encoder-decoder with its tokenizer, speech models
// included. One run at a time.
type Generator struct {
	generator *generate.Generator
	search    search.Options
	pipeline  pipeline.Options
}

// Generation is what became of one input: its sequences, best first, or why
// there are none.
type Generation = generate.Result

// GeneratorOption adjusts NewGenerator.
type GeneratorOption func(*generatorOptions)

type generatorOptions struct {
	options
	decode   decode.Options
	pipeline pipeline.Options
	runtime  string
	set      []setting

	attention string
	prefer    plan.Prefer
}

type setting struct {
	name string
	json string
}

// With sets an option of the search by its name in Hugging Face's generation
// configuration ("no_repeat_ngram_size") to a JSON value ("3"). What is not set
// is as generation_config.json says.
func With(name, json string) GeneratorOption {
	return func(o *generatorOptions) { o.set = append(o.set, setting{name, json}) }
}

// WithBeams searches with so many beams.
func WithBeams(n int) GeneratorOption {
	return func(o *generatorOptions) { o.set = append(o.set, setting{"num_beams", strconv.Itoa(n)}) }
}

// WithMaxNewTokens ends outputs after so many tokens.
func WithMaxNewTokens(n int) GeneratorOption {
	return func(o *generatorOptions) { o.set = append(o.set, setting{"max_new_tokens", strconv.Itoa(n)}) }
}

// WithBatch has at most so many inputs under way at once; 8 without it.
func WithBatch(n int) GeneratorOption { return func(o *generatorOptions) { o.decode.Batch = n } }

// WithMaxCache bounds the memory for keys and values, in bytes; without it half
// of the machine's.
func WithMaxCache(bytes int64) GeneratorOption {
	return func(o *generatorOptions) { o.decode.CacheBytes = bytes }
}

// WithAttention names what attention keeps, instead of what is expected to be best:
// flash-decode, el-attention, slim-keys, slim-inputs or slim-hybrid, or self=NAME and
// cross=NAME with a comma between. Layers that cannot keep it keep something else.
func WithAttention(name string) GeneratorOption {
	return func(o *generatorOptions) { o.attention = name }
}

// WithMemory lets attention keep as few bytes as it can, whatever that does to speed.
func WithMemory() GeneratorOption {
	return func(o *generatorOptions) { o.prefer = plan.PreferMemory }
}

// WithThreads sets the threads inside an operator; one a core without it.
func WithThreads(n int) GeneratorOption { return func(o *generatorOptions) { o.decode.Threads = n } }

// WithRuntime names the libonnxruntime to use, as GRAFT_ONNXRUNTIME does.
func WithRuntime(path string) GeneratorOption { return func(o *generatorOptions) { o.runtime = path } }

// WithPlugins takes the options that Enable takes: Folders, Plugins, Except,
// Force, AcceptUnverified.
func WithPlugins(opts ...Option) GeneratorOption {
	return func(o *generatorOptions) {
		for _, f := range opts {
			f(&o.options)
		}
	}
}

// NewGenerator opens a model folder. Errors name the file, what was found there
// and what is needed.
func NewGenerator(folder string, opts ...GeneratorOption) (*Generator, error) {
	var o generatorOptions
	for _, f := range opts {
		f(&o)
	}
	l, err := ort.FindAndOpen(o.runtime)
	if err != nil {
		return nil, err
	}
	set, err := o.load()
	if err != nil {
		return nil, err
	}
	if o.attention != "" {
		if o.decode.Attention, err = prepare.ParseAttention(o.attention, set.Manifests()); err != nil {
			return nil, err
		}
	}
	o.decode.Attention.Prefer = o.prefer
	for _, s := range o.set {
		if s.name == "num_beams" {
			o.decode.Attention.Beams, _ = strconv.Atoi(s.json) // what is no number is refused below
		}
	}
	o.decode.Library, o.decode.Plugins, o.decode.Plan = l, set, o.plan
	inner, err := generate.Open(folder, o.decode)
	if err != nil {
		return nil, err
	}
	g := &Generator{generator: inner, search: inner.Search(), pipeline: o.pipeline}
	for _, s := range o.set {
		if err = g.search.Set(s.name, []byte(s.json)); err != nil {
			break
		}
	}
	if err == nil {
		err = g.search.Validate()
	}
	if err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// Close frees the model.
func (g *Generator) Close() { g.generator.Close() }

// Generate generates for every input and yields the results in the order of the
// inputs, each as soon as all before it are there. An input is a text, for a speech
// model the path of a WAV file or a NumPy file of features. Inputs are drawn as they are
// needed; an input that cannot be served yields a Generation with an Error. The
// error that is yielded last, if any, ended the run: ctx's, or the engine's.
// Leaving the loop ends it too.
func (g *Generator) Generate(ctx context.Context, inputs iter.Seq[string]) iter.Seq2[Generation, error] {
	return func(yield func(Generation, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		next, stop := iter.Pull(inputs)
		results := make(chan Generation)
		failed := make(chan error, 1)
		go func() {
			defer close(results)
			_, err := g.generator.Run(ctx, g.search, reader(next), func(r Generation) error {
				select {
				case results <- r:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}, g.pipeline)
			failed <- err
		}()
		defer stop() // after the run, which draws from the inputs
		left := false
		for r := range results {
			if !left && !yield(r, nil) {
				left = true
				cancel()
			}
		}
		if err := <-failed; err != nil && !left {
			yield(Generation{}, err)
		}
	}
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
