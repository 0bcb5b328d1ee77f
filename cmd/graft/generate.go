package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/pipeline"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
)

// generation are the flags of the command generate.
type generation struct {
	input, output string
	images, texts []string // inputs that the command line holds itself
	prompt        string
	form          string
	resume, sync  bool
	batch         string
	threads       int
	workers       int
	maxCache      string
	maxInput      int
	maxLine       string
	attention     attentionFlags
	weights       string
	baseline      bool
	set           []string
	values        map[string]*string // search options by name, as given
}

// searchFlags are the options of the search that have a flag of their own, with
// their meaning; --set reaches the others.
var searchFlags = []struct{ name, usage string }{
	{"num_beams", "beams of a request; 1 is greedy search or sampling (also --beam)"},
	{"num_beam_groups", "groups of beams that are pushed apart (diverse beam search)"},
	{"diversity_penalty", "how far groups are pushed apart"},
	{"length_penalty", "exponent of the length that divides a beam's score; above 0 favours long outputs"},
	{"early_stopping", "true, false or never: when beam search may end before the length limit"},
	{"min_length", "no end before this many tokens, the decoder's prompt included"},
	{"max_length", "maximum number of tokens, the decoder's prompt included"},
	{"min_new_tokens", "no end before this many new tokens"},
	{"max_new_tokens", "maximum number of new tokens"},
	{"no_repeat_ngram_size", "no run of this many tokens comes twice"},
	{"encoder_no_repeat_ngram_size", "no run of this many tokens of the input comes again"},
	{"repetition_penalty", "above 1 makes tokens that came before less likely"},
	{"num_return_sequences", "sequences for each input"},
	{"do_sample", "sample tokens instead of taking the best"},
	{"temperature", "of sampling"},
	{"top_k", "sample from the K best tokens"},
	{"top_p", "sample from the best tokens that make up this probability"},
	{"seed", "of sampling"},
	{"draft", "guess next tokens, which are verified several at once and stay the same: lookup (from where the last " +
		"ones stood before), the folder of a smaller model with the same tokenizer, after it ,weights=TYPE, or none"},
	{"language", "speech models: what is spoken, as german, de or <|de|> (default: the one the model detects)"},
	{"task", "speech models: transcribe, or translate to English"},
}

func (c *cli) generate() *cobra.Command {
	return c.generateWith(&generation{values: map[string]*string{}})
}

func (c *cli) generateWith(o *generation) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "generate MODEL_DIR [INPUT]...",
		Short: "Generate text with an exported model: greedy, beams, diverse beams or sampling",
		Long: `Takes the inputs of the command line, or reads one a line, and writes one output a
line, in the same order. MODEL_DIR is a folder as optimum writes it: encoder_model.onnx with its decoders, or
model.onnx, with config.json, generation_config.json and the tokenizer's files.
For a speech model (Whisper) a line is the path of a WAV file, or of a NumPy file
of features; for a model of images (TrOCR, Donut) that of a PNG or JPEG file,
which --image names as well.
Outputs go to --output FILE, or to stdout (-o json: as --format jsonl), and with a file
a summary to stdout (-o json: as an object). On a terminal the text of one input, and of lines that are typed, appears
as it is chosen, where the search is of one sequence. Options that are not given are those of generation_config.json;
--set takes any other of Hugging Face's, and one that is not supported is refused by name.

With --format jsonl a line is an object: index, sequences (text, score, tokens,
ended), and error where nothing could be generated for an input. In text, several
sequences of one input stand in one line with tabs between, and a failed line is
empty. Exit code 1 when any line failed.`,
		Example: `  graft generate bart-large-cnn --input articles.txt --output summaries.txt --beam 4
  graft generate models/g2p hello --beam 4
  graft generate gpt2 --input prompts.txt --do-sample --top-p 0.9 --seed 7 --format jsonl
  ls talks/*.wav | graft generate whisper-small --language en
  graft generate trocr-base-printed --image line.png
  graft generate donut-base-finetuned-cord-v2 --image receipt.png --prompt "<s_cord-v2>"`,
		Args:        atLeast(1, "one model folder, and inputs after it"),
		Annotations: map[string]string{writesFile: "true"},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.texts = args[1:]
			if o.output = c.file; o.output == "" {
				o.output = "-"
			}
			if c.json && o.output == "-" {
				if cmd.Flags().Changed("format") && o.form == "text" {
					return misuse("-o json and --format text, which both say what goes to stdout", "one of them")
				}
				o.form = "jsonl"
			}
			return c.runGenerate(cmd, args[0], o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.input, "input", "-", "file of inputs, one a line; - is stdin")
	f.StringArrayVar(&o.images, "image", nil, "models of images: a PNG or JPEG file, instead of --input; may be repeated")
	f.StringVar(&o.prompt, "prompt", "", "models of images: what the output continues, as Donut's <s_cord-v2>")
	f.StringVar(&o.form, "format", "text", "text or jsonl: the form of a line of output")
	f.BoolVar(&o.resume, "resume", false, "continue an output file where it ends")
	f.BoolVar(&o.sync, "sync", false, "do one thing after the other instead of all at once")
	f.BoolVar(&o.baseline, "baseline", false,
		"the model as exported, with past and present as tensors: what to compare with")
	f.StringVar(&o.batch, "batch-size", "8", "maximum of inputs in flight, or auto: as many as memory holds")
	between(f, &o.threads, "threads", 0, 0, limit.Threads, "threads inside an operator (default: one a core)")
	between(f, &o.workers, "workers", 2, 1, limit.Workers, "goroutines that turn text into tokens, and as many back")
	f.StringVar(&o.maxCache, "max-cache", "",
		"maximum of memory for the KV cache, such as 2GiB (default: half of the machine's)")
	o.attention.add(f)
	f.StringVar(&o.weights, "weights", "",
		"what the weights of linear layers are stored as: float32, or bf16, int8 or int4, which cost accuracy; after it "+
			",logits=TYPE of the last layer, ,group=32|64|128, ,zero-points=true and ,activations=int8|int16|float32 "+
			"(default: float32, as exported)")
	between(f, &o.maxInput, "max-input-tokens", 0, 0, limit.Tokens,
		"longer inputs are cut (default: what the model's positions allow)")
	f.StringVar(&o.maxLine, "max-line", "1MiB", "a longer line of input is an error, with its number")
	f.StringArrayVar(&o.set, "set", nil, "any option of generation_config.json, name=JSON; may be repeated")
	beam := new(string)
	f.StringVar(beam, "beam", "", "short for --num-beams")
	o.values["beam"] = beam
	for _, s := range searchFlags {
		v := new(string)
		f.StringVar(v, strings.ReplaceAll(s.name, "_", "-"), "", s.usage)
		o.values[s.name] = v
	}
	f.Lookup("do-sample").NoOptDefVal = "true"
	f.Lookup("early-stopping").NoOptDefVal = "true"
	return cmd
}

// options are the model's own with what the command line sets.
func (o *generation) options(cmd *cobra.Command, base search.Options) (search.Options, error) {
	for name, v := range o.values {
		flag := strings.ReplaceAll(name, "_", "-")
		if !cmd.Flags().Changed(flag) {
			continue
		}
		value := *v
		if !json.Valid([]byte(value)) {
			value = strconv.Quote(value)
		}
		if err := base.Set(name, []byte(value)); err != nil {
			return base, misused("--"+flag, err)
		}
	}
	if cmd.Flags().Changed("max-length") && !cmd.Flags().Changed("max-new-tokens") {
		base.MaxNewTokens = 0 // the configuration's would win over what was asked for
	}
	others := map[string]json.RawMessage{}
	if err := settings(others, o.set); err != nil {
		return base, err
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		if err := base.Set(name, others[name]); err != nil {
			return base, misused("--set", err)
		}
	}
	if err := base.Validate(); err != nil {
		return base, misused("", err)
	}
	return base, nil
}

// beams is what the command line says of them; 0 where it says nothing.
func (o *generation) beams(cmd *cobra.Command) int {
	n := 0
	for name, flag := range map[string]string{"beam": "beam", "num_beams": "num-beams"} {
		if k, err := strconv.Atoi(*o.values[name]); err == nil && cmd.Flags().Changed(flag) {
			n = max(n, k)
		}
	}
	return n
}

// settings reads --set name=JSON into options.
func settings(options map[string]json.RawMessage, set []string) error {
	for _, s := range set {
		name, value, ok := strings.Cut(s, "=")
		if !ok || !json.Valid([]byte(value)) {
			return misuse("--set "+s, "name=JSON")
		}
		options[name] = json.RawMessage(value)
	}
	return nil
}

func (c *cli) runGenerate(cmd *cobra.Command, folder string, o *generation) error {
	if o.form != "text" && o.form != "jsonl" {
		return misuse("--format "+o.form, "text or jsonl")
	}
	line, err := bytesOf("--max-line", o.maxLine, limit.Line)
	if err != nil {
		return err
	}
	batch, err := o.batchSize()
	if err != nil {
		return err
	}
	if o.resume && o.output == "-" {
		return misuse("--resume and results on stdout", "--output FILE")
	}
	if o.baseline && o.maxCache != "" {
		return misuse("--max-cache with --baseline, which has no cache to bound", "a lower --batch-size")
	}
	cache, err := bytesOf("--max-cache", o.maxCache, limit.Cache)
	if err != nil {
		return err
	}
	if o.baseline && o.attention != (attentionFlags{prefer: string(plan.PreferSpeed)}) {
		return misuse("--attention, --cache or --prefer with --baseline, which runs the model as exported", "one of them")
	}
	var weights prepare.Weights
	if o.weights != "" {
		if o.baseline {
			return misuse("--weights with --baseline, which runs the model as exported", "one of them")
		}
		if weights, err = prepare.ParseWeights(o.weights); err != nil {
			return misused("--weights", err)
		}
	}
	small, err := o.draftModel()
	if err != nil {
		return err
	}
	if err := o.oneSource(cmd); err != nil {
		return err
	}
	read, total, done, err := o.inputs(int(line))
	if err != nil {
		return err
	}
	defer done()
	l, err := ort.FindAndOpen(c.runtime)
	if err != nil {
		return err
	}
	set, err := c.load(!o.baseline)
	if err != nil {
		return err
	}
	attention, err := o.attention.parse(set.Manifests())
	if err != nil {
		return err
	}
	attention.Beams = o.beams(cmd)
	open := generate.Open
	if o.baseline {
		open = generate.OpenExported
	}
	g, err := open(cmd.Context(), folder, decode.Options{Library: l, Plugins: set, Threads: o.threads,
		CacheBytes: cache, Batch: batch,
		Attention: attention, Weights: weights, Draft: small})
	if err != nil {
		return err
	}
	defer g.Close()
	g.MaxInput = o.maxInput
	options, err := o.options(cmd, g.Search())
	if err != nil {
		return err
	}
	if err := o.ofImages(cmd.Context(), folder, g, &options); err != nil {
		return err
	}
	if err := c.drafts(cmd, o, &options); err != nil {
		return err
	}
	var origin *generate.Origin
	if o.output != "-" {
		more := map[string]string{"format": o.form, "max_input_tokens": strconv.Itoa(o.maxInput),
			"attention": o.attention.name}
		if len(o.images) > 0 {
			more["images"] = strings.Join(o.images, "\n")
		}
		if len(o.texts) > 0 {
			more["inputs"] = strings.Join(o.texts, "\n")
		}
		if weights.Quantizes() {
			more["weights"] = weights.String()
		}
		if attention.Storage.Rounds() {
			more["cache"] = string(attention.Storage)
		}
		if origin, err = generate.OriginOf(folder, o.input, options, more); err != nil {
			return err
		}
	}
	write, finish, skipped, err := o.results(c.out, origin)
	if err != nil {
		return err
	}
	g.First = skipped
	if o.streams(c, options) {
		s := newTextStream(c.out, func() *generate.Incremental { return g.Incremental(options) })
		defer s.end()
		g.Chosen, write = s.chosen, s.write
	}
	if err := pipeline.Skip(read, skipped); err != nil {
		return errors.Join(err, finish())
	}
	start, p := time.Now(), c.progressOver("generating", o.reads(), o.output == "-")
	if o.output != "-" {
		c.resumable = "; go on with --resume"
	}
	summary, err := g.Run(cmd.Context(), options, read, func(r generate.Result) error {
		r.Index += skipped
		if r.Error != "" {
			c.warn("graft: line %d: %s", r.Index+1, r.Error)
		}
		return write(r)
	}, pipeline.Options{Workers: o.workers, Sync: o.sync, Done: func(n int) {
		p.say(fmt.Sprintf("generated %d, %.1f/s", n, float64(n)/time.Since(start).Seconds()))
		p.set(int64(skipped+n), total)
	}})
	p.end()
	if err := errors.Join(err, finish()); err != nil {
		return err
	}
	if o.output != "-" {
		if err := c.print(summary, func(w *page) { generated(w, summary) }); err != nil {
			return err
		}
	}
	if summary.Failed > 0 {
		return fmt.Errorf("%d of %d lines could not be generated", summary.Failed, summary.Inputs)
	}
	return nil
}

// generated prints a summary for people.
func generated(w *page, s *generate.Summary) {
	w.printf("%s, %s in, %d out, %.1f tokens/s, at most %s at once\n", counted(s.Inputs, "input"),
		counted(s.InputTokens, "token"), s.NewTokens, s.TokensPerSecond, counted(s.BatchSize, "input"))
	of := ""
	if s.Cache != "" {
		of = " in " + string(s.Cache)
	}
	w.printf("cache%s: at most %.1f MB of the decoder's, %.1f MB of the encoder's; %d of %d steps reordered rows\n",
		of, float64(s.SelfCacheBytes)/1e6, float64(s.CrossCacheBytes)/1e6, s.Reorders, s.Steps)
	if s.Weights != nil {
		weighed(w, s.Weights)
	}
	if s.Drafted > 0 {
		w.printf("drafts: %d of %d accepted, %d steps instead of %d\n", s.Accepted, s.Drafted, s.Steps, s.Steps+s.Accepted)
	}
	if d := s.DraftModel; d != nil {
		w.printf("draft model: %s of its own, a cache of at most %s MB\n", counted(d.Steps, "step"),
			megabytes(d.SelfCacheBytes+d.CrossCacheBytes))
		if d.Weights != nil {
			w.printf("draft model's ")
			weighed(w, d.Weights)
		}
	}
	if s.Skipped != nil {
		w.printf("attention left out %.2g of the probability on average, %.2g of one query and head at most\n",
			s.Skipped.Mean, s.Skipped.Greatest)
	}
}

// weighed prints what weights are stored as.
func weighed(w *page, r *engine.WeightReport) {
	from := "quantised now"
	switch {
	case r.Stored:
		from = "quantised before, and read from the cache"
	case r.Exported && r.Requested == string(prepare.Float32Weights):
		from = "and integers where the model holds these"
	}
	w.printf("weights: %s, %s\n", r.Requested, from)
	for _, l := range r.Linear {
		w.printf("  %s: %d matrices of linear layers, %s MB of %s MB\n", l.Type, l.Matrices, megabytes(l.Bytes),
			megabytes(l.Float32Bytes))
	}
	for _, f := range r.Float32 {
		w.printf("  float32: %d tensors, %s MB: %s\n", f.Tensors, megabytes(f.Bytes), f.Reason)
	}
}

// batchSize reads --batch-size.
func (o *generation) batchSize() (int, error) {
	if o.batch == "auto" {
		if o.baseline {
			return 0, misuse("--batch-size auto with --baseline, which has no cache to ask", "a number")
		}
		return decode.AutoBatch, nil
	}
	n, err := strconv.Atoi(o.batch)
	if err != nil || n < 1 || n > limit.Batch {
		return 0, misuse("--batch-size "+o.batch, fmt.Sprintf("1 to %d, or auto", limit.Batch))
	}
	return n, nil
}

// results opens what is written, and says how many results it holds already.
func (o *generation) results(stdout *output, origin *generate.Origin) (write func(generate.Result) error,
	finish func() error, held int, err error) {
	var line func(string) error
	if o.output == "-" {
		b := bufio.NewWriter(stdout)
		line = func(text string) error {
			_, err := b.WriteString(pipeline.OneLine(text) + "\n")
			return errors.Join(err, b.Flush())
		}
		finish = func() error { return nil }
	} else {
		open := func() (*pipeline.Output, int, error) {
			out, err := pipeline.Create(o.output)
			return out, 0, err
		}
		begun := false
		if o.resume {
			open = func() (*pipeline.Output, int, error) { return pipeline.Resume(o.output) }
			info, err := os.Stat(o.output)
			if begun = err == nil && info.Size() > 0; begun {
				if err := origin.Continues(o.output, o.input); err != nil {
					return nil, nil, 0, err
				}
			}
		}
		var out *pipeline.Output
		if out, held, err = open(); err != nil {
			return nil, nil, 0, err
		}
		line, finish = out.Write, out.Close
		if !begun {
			if err := origin.Write(o.output); err != nil {
				return nil, nil, 0, errors.Join(err, out.Remove())
			}
		}
	}
	return func(r generate.Result) error {
		if o.form == "jsonl" {
			data, err := json.Marshal(r)
			if err != nil {
				return err
			}
			return line(string(diagnostic.PrintableJSON(data)))
		}
		var texts []string
		for _, s := range r.Sequences {
			text := strings.ReplaceAll(s.Text, "\t", " ")
			if o.output == "-" && stdout.terminal() {
				text = diagnostic.Printable(pipeline.OneLine(text))
			}
			texts = append(texts, text)
		}
		return line(strings.Join(texts, "\t"))
	}, finish, held, nil
}
