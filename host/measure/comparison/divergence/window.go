package divergence

import "fmt"

// Window is a part of a text that a model is fed at once. Tokens are numbered from 0.
type Window struct {
	Begin, End int // tokens Begin to End-1 are read, the last one as a target alone
	From       int // tokens From to End-1 are predicted, and count
}

// Windows divides a text of n tokens, of which those from the first on count, into windows of at most size tokens
// that begin stride tokens apart. Each token is predicted once, from at least size-stride tokens before it where the
// text has so many. The first token of a text has nothing before it and is not predicted. size is at least 2 and
// stride from 1 to size-1.
func Windows(n, first, size, stride int) ([]Window, error) {
	if size < 2 || stride < 1 || stride >= size {
		return nil, fmt.Errorf("windows of %d tokens that begin %d apart; needed are at least 2, and a stride from 1 to "+
			"one less", size, stride)
	}
	var list []Window
	from := max(first, 1)
	for begin := 0; from < n; begin += stride {
		w := Window{begin, min(begin+size, n), from}
		if w.End <= from {
			continue // nothing of it counts
		}
		list, from = append(list, w), w.End
	}
	return list, nil
}
