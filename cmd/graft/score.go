package main

import (
	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/generate/score"
)

func (c *cli) score() *cobra.Command {
	var form, maxLine string
	cmd := &cobra.Command{
		Use:   "score OUTPUT REFERENCE",
		Short: "Compare generated texts with references: ROUGE, BLEU, word error rate",
		Long: `Compares an output file of graft generate with a file of references, one a line in
the same order. ROUGE-1, ROUGE-2 and ROUGE-L are F1 from 0 to 1, as rouge_score
computes them without a stemmer, means over the lines. BLEU is the corpus's, from
0 to 100, as sacrebleu computes it (tokenizer 13a, exponential smoothing). The word
error rate is the corpus's, of words as they are written, as jiwer computes it. Of
several sequences of an input the first counts.`,
		Example: "  graft score summaries.txt highlights.txt\n  graft score summaries.jsonl highlights.txt --format jsonl " +
			"-o json",
		Args: exactly(2, "an output file and a file of references"),
		RunE: func(_ *cobra.Command, args []string) error {
			if form != "text" && form != "jsonl" {
				return misuse("--format "+form, "text or jsonl")
			}
			line, err := bytesOf("--max-line", maxLine, limit.Line)
			if err != nil {
				return err
			}
			s, err := score.Files(args[0], form, args[1], int(line))
			if err != nil {
				return err
			}
			return c.print(struct {
				SchemaVersion int `json:"schema_version"`
				*score.Scores
			}{schemaVersion, s}, func(w *page) { scored(w, s) })
		},
	}
	cmd.Flags().StringVar(&maxLine, "max-line", "1MiB", "a longer line is an error, with its number")
	cmd.Flags().StringVar(&form, "format", "text", "text or jsonl: the form of the output file")
	return cmd
}

// scored prints scores for people.
func scored(w *page, s *score.Scores) {
	w.printf("ROUGE-1 %.4f, ROUGE-2 %.4f, ROUGE-L %.4f (F1); BLEU %.2f; word error rate %.2f %%\n", s.ROUGE1, s.ROUGE2,
		s.ROUGEL, s.BLEU, 100*s.WER)
}
