package main

import "strings"

// wordErrorRate is that of all lines together, as jiwer computes it: words to insert, remove or replace over those of
// the references. Words are what white space divides, as they are written. Where no reference has a word, it is 1 if
// an output has one.
func wordErrorRate(outputs, references []string) float64 {
	edits, words := 0, 0
	for i, reference := range references {
		said := strings.Fields(reference)
		edits += editDistance(strings.Fields(outputs[i]), said)
		words += len(said)
	}
	if words == 0 {
		return float64(min(edits, 1))
	}
	return float64(edits) / float64(words)
}

// editDistance is the least number of words to insert, remove or replace (Levenshtein 1966).
func editDistance(a, b []string) int {
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
