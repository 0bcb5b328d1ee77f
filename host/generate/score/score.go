// Package score says how close outputs come to references: ROUGE, as the Python
// package rouge_score computes it without a stemmer, BLEU, as sacrebleu does
// with its tokenizer 13a and exponential smoothing, and the word error rate, as jiwer does.
package score

import "fmt"

// Scores are of a whole file.
type Scores struct {
	// ROUGE1, ROUGE2 and ROUGEL are F1 from 0 to 1, means over the lines: of words, of
	// pairs of words, and of the longest common subsequence of words (Lin 2004,
	// "ROUGE: a package for automatic evaluation of summaries").
	ROUGE1 float64 `json:"rouge1"`
	ROUGE2 float64 `json:"rouge2"`
	ROUGEL float64 `json:"rougeL"`
	// BLEU is from 0 to 100, of all lines together (Papineni et al. 2002, "BLEU: a
	// method for automatic evaluation of machine translation").
	BLEU float64 `json:"bleu"`
	// WER is the word error rate, of all lines together: words to insert, remove or replace, over those of the references.
	// Words are what white space divides, as they are written. 0 is best; outputs that are longer than their references
	// can be above 1.
	WER float64 `json:"wer"`
}

// Of compares each output with the reference of the same number.
func Of(outputs, references []string) (*Scores, error) {
	if len(outputs) != len(references) {
		return nil, fmt.Errorf("there are %d outputs and %d references: one a line is needed, in the same order",
			len(outputs), len(references))
	}
	s := &Scores{}
	if len(outputs) == 0 {
		return s, nil
	}
	var counts bleuCounts
	var errs wer
	for i, output := range outputs {
		a, b := rougeTokens(output), rougeTokens(references[i])
		s.ROUGE1 += rougeN(a, b, 1)
		s.ROUGE2 += rougeN(a, b, 2)
		s.ROUGEL += rougeL(a, b)
		counts.add(bleuTokens(output), bleuTokens(references[i]))
		errs.add(words(output), words(references[i]))
	}
	n := float64(len(outputs))
	s.ROUGE1, s.ROUGE2, s.ROUGEL = s.ROUGE1/n, s.ROUGE2/n, s.ROUGEL/n
	s.BLEU, s.WER = counts.score(), errs.rate()
	return s, nil
}
