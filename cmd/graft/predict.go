package main

import (
	"bytes"
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/encode/encoder"
	"github.com/opgraft/graft/host/generate/pipeline"
)

func (c *cli) predict() *cobra.Command {
	var o encoding
	var q encoder.Questions
	var tokens encoder.TokenQuestions
	var tsv bool
	cmd := &cobra.Command{
		Use:   "predict MODEL_DIR",
		Short: "Label lines of text, or entities in them, with an exported classifier",
		Long: `Reads one text a line and writes its labels with their scores, the best first, in the
same order. MODEL_DIR is a folder of a model for text or token classification, as
transformers, sentence-transformers or optimum saves it; id2label of config.json names the
labels.

Scores are those of transformers' pipeline (problem_type of config.json: softmax,
sigmoid or neither), or what the activation makes of them that a CrossEncoder's folder
names. With --label, a model of natural language inference judges labels of your own
(zero-shot classification).

A model for token classification gives the entities of a text, each with its label, score,
word, and first character and the one after its last; --aggregation joins tokens as
transformers does.

-o jsonl writes objects: index, labels (label, score) or entities, and error where a line
has none. -o text writes a line for each label or entity: the number of the line, the label,
the score, of an entity start, end and word, with tabs between. -o FILE writes to a file and a summary to stdout. Exit code 1 when any line
failed.`,
		Example: `  graft predict distilbert-sst2 --input texts.txt -o labels.jsonl
  graft predict models/encoders/reranker --top-k 1 -o text < texts.txt
  graft predict bert-ner --aggregation simple < texts.txt
  graft predict deberta-v3-mnli --label sports --label politics < texts.txt`,
		Args:        exactly(1, "one model folder"),
		Annotations: map[string]string{writesFile: "true", takesForms: "jsonl"},
		RunE: func(cmd *cobra.Command, args []string) error {
			in, options, err := o.open(c)
			if err != nil {
				return err
			}
			defer in.close()
			m, err := encoder.OpenClassifier(cmd.Context(), args[0], options)
			if err != nil {
				return err
			}
			defer m.Close()
			run, err := predictor(m, q, tokens, tsv)
			if err != nil {
				return err
			}
			var write func(encoder.Prediction) error
			return c.encoded("labelled", o.input, in.total, nil, func(form string, to io.Writer) (func() error, error) {
				write = predictions(form, to)
				return func() error { return nil }, nil
			}, func(opts pipeline.Options) (*encoder.Summary, error) {
				opts.Workers = o.workers
				return run(cmd.Context(), in.read, func(v encoder.Prediction) error {
					if v.Error != "" {
						c.warn("graft: line %d: %s", v.Index+1, v.Error)
					}
					return write(v)
				}, opts)
			})
		},
	}
	o.add(cmd)
	f := cmd.Flags()
	f.StringVar(&q.Function, "function", "",
		"what makes scores of logits: none, sigmoid or softmax (default: what the model's configuration says)")
	f.StringArrayVar(&q.Candidates, "label", nil, "a label of your own, in place of the model's; may be repeated")
	f.StringVar(&q.Hypothesis, "hypothesis", "", `with --label, a text with {} for it (default "This example is {}.")`)
	f.BoolVar(&q.Several, "multi-label", false, "with --label, each is judged by itself")
	f.BoolVar(&tsv, "tsv", false, "a line is two texts with a tab between, which are read together")
	f.StringVar(&tokens.Aggregation, "aggregation", "",
		"how labels of tokens become those of entities: "+strings.Join(encoder.Aggregations, ", ")+
			" (default none)")
	f.StringArrayVar(&tokens.Ignore, "ignore-label", nil,
		"a label of tokens that is left out; may be repeated (default O)")
	between(f, &q.TopK, "top-k", 0, 0, limit.Tokens, "maximum of labels of a line of output (default: all)")
	return cmd
}

// predicts reads lines and writes what a model says of them.
type predicts func(ctx context.Context, read func() (string, error), write func(encoder.Prediction) error,
	o pipeline.Options) (*encoder.Summary, error)

// predictor asks a model what its kind can answer. Flags of the other kind are refused.
func predictor(m *encoder.Classifier, q encoder.Questions, tokens encoder.TokenQuestions,
	pairs bool) (predicts, error) {
	ofTexts := pairs || q.TopK > 0 || q.Function != "" || q.Candidates != nil || q.Hypothesis != "" || q.Several
	if ofTexts || !m.Tokens() && tokens.Aggregation == "" && tokens.Ignore == nil {
		p, err := m.Predictor(q)
		return func(ctx context.Context, read func() (string, error), write func(encoder.Prediction) error,
			o pipeline.Options) (*encoder.Summary, error) {
			return p.Run(ctx, read, pairs, write, o)
		}, err
	}
	t, err := m.Tagger(tokens)
	return t.Run, err
}

// predictions writes them in a form.
func predictions(form string, to io.Writer) func(encoder.Prediction) error {
	if form != "text" {
		return func(p encoder.Prediction) error { return object(to, p) }
	}
	return func(p encoder.Prediction) error {
		var b bytes.Buffer
		for _, l := range p.Labels {
			b.WriteString(strconv.Itoa(p.Index) + "\t" + diagnostic.Printable(l.Label) + "\t" + shortest(l.Score) + "\n")
		}
		for _, e := range p.Entities {
			b.WriteString(strings.Join([]string{strconv.Itoa(p.Index), diagnostic.Printable(e.Label), shortest(e.Score),
				strconv.Itoa(e.Start), strconv.Itoa(e.End), diagnostic.Printable(e.Word)}, "\t") + "\n")
		}
		_, err := to.Write(b.Bytes())
		return err
	}
}
