// Package search decides what is generated: greedy search, beam search, diverse (group) beam
// search, sampling and beam sampling, over scores that something else computes. It holds no model,
// no cache and no thread. A sample is a State; a Stepper takes the scores of a batch of samples,
// asks a Tail (the end of a step: bans, penalties, log-softmax, the best tokens) for candidates, and
// each State then says in Moves which row follows which, with which token. A cache follows the moves.
//
//	states := []*search.State{...}                     // New, one an input
//	for rows := ...; rows > 0; {                       // the sum of State.Rows
//		scores := ...                              // [rows, vocab], sample by sample
//		err := stepper.Step(tail, scores, vocab, states)
//		for _, s := range states { ... s.Moves() } // the rows of the next step
//	}
//	... s.Results()
//
// The host does work for each row and each edit, never for each token of the vocabulary: that is the
// Tail's. Plain is a Tail in Go and the reference of the others.
//
// Options have Hugging Face's names and meaning, and the tokens are those of transformers 4.55.4's
// generate for a batch of one (testdata/make.py), the last line of releases that has diverse beam
// search built in. Its diverse beams keep the rules which all beam search had before 4.50 (diverse.go),
// other beams have newer ones (beams.go). It differs knowingly in these:
//
//   - A batch does not matter: samples of different lengths need no padding, and one that ends leaves.
//   - Beams that do not exist yet, or for which every token is banned, are no rows. Hugging Face
//     carries them on with scores of -1e9 or -Inf and may return them; here there are fewer results.
//   - Where every token is banned there is an error, not token 0.
//   - Of equal scores the lower row and token wins; torch.topk leaves that open.
//   - EncoderRepetitionPenalty applies to every beam; Hugging Face reads and writes the first alone.
//   - Random numbers are not torch's; their probabilities are.
package search
