package diagnostic

import "strings"

// Nearest is the one among some names that is the fewest edits away from name, less than a third of
// its letters, without regard to case. It is "" where none is.
func Nearest(name string, among []string) string {
	name = strings.ToLower(Clip(name))
	best, least := "", (len(name)+2)/3
	for _, a := range among {
		if d := edits(name, strings.ToLower(a)); d < least {
			best, least = a, d
		}
	}
	return best
}

// edits is the Levenshtein distance, in which two neighbours that change places are one edit (Damerau 1964).
func edits(a, b string) int {
	row := make([]int, len(b)+1) // from the letters of a so far to each prefix of b
	for j := range row {
		row[j] = j
	}
	last, next := make([]int, len(b)+1), make([]int, len(b)+1)
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			change := row[j]
			if a[i] != b[j] {
				change++
			}
			next[j+1] = min(change, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], last[j-1]+1)
			}
		}
		last, row, next = row, next, last
	}
	return row[len(b)]
}
