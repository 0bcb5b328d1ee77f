package score

import "strings"

// words are runs of what is no white space, as they are written.
func words(text string) []string { return strings.Fields(text) }

// wer counts words.
type wer struct{ edits, words int }

func (w *wer) add(output, reference []string) {
	w.edits += edits(output, reference)
	w.words += len(reference)
}

// rate is that of all lines; where no reference has a word, 1 if an output has one.
func (w *wer) rate() float64 {
	if w.words == 0 {
		return float64(min(w.edits, 1))
	}
	return float64(w.edits) / float64(w.words)
}

// edits is the least number of words to insert, remove or replace (Levenshtein 1966).
func edits(a, b []string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j := range b {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
