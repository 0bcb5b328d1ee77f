package search_test

import (
	"fmt"

	"github.com/opgraft/graft/host/generate/search"
)

// A model of five tokens in which each is followed by the next most of all, and 4 is the end.
func Example() {
	const vocab = 5
	next := func(token int32) []float32 {
		logits := []float32{-2, -1, 0, -1, -2}
		logits[(token+1)%vocab] = 3
		return logits
	}

	options := search.Default()
	options.NumBeams, options.NumReturnSequences = 2, 2
	options.EOSTokenID = []int32{4}
	options.MaxNewTokens = 8
	state, err := search.New(options, search.Input{Prompt: []int32{0}, Vocab: vocab})
	if err != nil {
		fmt.Println(err)
		return
	}

	last := []int32{0} // the last token of each row: all that this model reads
	var stepper search.Stepper
	for !state.Done() {
		var logits []float32
		for _, token := range last {
			logits = append(logits, next(token)...)
		}
		if err := stepper.Step(&search.Reference{}, logits, vocab, []*search.State{state}); err != nil {
			fmt.Println(err)
			return
		}
		last = last[:0]
		for _, move := range state.Moves() {
			last = append(last, move.Token)
		}
	}
	for _, h := range state.Results() {
		fmt.Printf("%v %.3f\n", h.Tokens, h.Score)
	}
	// Output:
	// [1 2 3 4] -0.074
	// [1 2 2 3 4] -0.675
}
