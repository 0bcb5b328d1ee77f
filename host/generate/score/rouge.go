package score

import (
	"strings"
)

// rougeTokens are runs of a to z and 0 to 9 in the text's lower case; everything
// else divides them.
func rougeTokens(text string) []string {
	// The lower case of U+0130 is an i and a mark that divides, in Python; in Go an i.
	text = strings.ToLower(strings.ReplaceAll(text, "\u0130", "i\u0307"))
	return strings.FieldsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
}

// rougeN is the F1 of runs of n tokens, each counted as often as both have it.
func rougeN(output, reference []string, n int) float64 {
	a, b := ngramCounts(output, n), ngramCounts(reference, n)
	common := 0
	for gram, count := range a {
		common += min(count, b[gram])
	}
	return f1(common, len(output)-n+1, len(reference)-n+1)
}

// ngramCounts counts runs of n tokens, which have no spaces in them.
func ngramCounts(tokens []string, n int) map[string]int {
	counts := make(map[string]int, len(tokens))
	for i := 0; i+n <= len(tokens); i++ {
		counts[strings.Join(tokens[i:i+n], " ")]++
	}
	return counts
}

// rougeL is the F1 of the longest common subsequence.
func rougeL(output, reference []string) float64 {
	return f1(common(output, reference), len(output), len(reference))
}

// common is the length of the longest common subsequence.
func common(a, b []string) int {
	row, above := make([]int, len(b)+1), make([]int, len(b)+1)
	for i := range a {
		for j := range b {
			if a[i] == b[j] {
				row[j+1] = above[j] + 1
			} else {
				row[j+1] = max(row[j], above[j+1])
			}
		}
		row, above = above, row
	}
	return above[len(b)]
}

// f1 is the harmonic mean of common/output and common/reference.
func f1(common, output, reference int) float64 {
	if common == 0 {
		return 0
	}
	precision, recall := float64(common)/float64(output), float64(common)/float64(reference)
	return 2 * precision * recall / (precision + recall)
}
