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

// edits is the Levenshtein distance.
func edits(a, b string) int {
	row := make([]int, len(b)+1) // from the letters of a so far to each prefix of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
