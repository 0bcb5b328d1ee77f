// Package search decides what is generated: greedy search, beam search, diverse (group) beam
// search, sampling and beam sampling, over logits that something else computes. It holds no model,
// no cache and no thread. The search over an input is a State; a Stepper takes the logits of a batch of them,
// gets candidates from a Selector (logits processors, log-softmax, top-k selection), and
// each State then says in Moves which row follows which, with which token. A cache follows the moves.
//
//	states := []*search.State{...}                     // New, one an input
//	for rows := ...; rows > 0; {                       // the sum of State.Rows
//		logits := ...                              // [rows, vocab], state by state
//		err := stepper.Step(selector, logits, vocab, states)
//		for _, s := range states { ... s.Moves() } // the rows of the next step
//	}
//	... s.Results()
//
// The host does work for each row and each processor, never for each token of the vocabulary: that is the
// Selector's. Reference is a Selector in Go and the reference of the others.
//
// Options have Hugging Face's names and meaning, and the tokens are those of transformers 4.55.4's
// generate for a batch of one (testdata/make.py), the last line of releases that has diverse beam
// search built in. Its diverse beams follow the rules which all beam search had before 4.50 (diverse.go),
// other beams have newer ones (beams.go). It differs knowingly in these:
//
//   - A batch does not matter: inputs of different lengths need no padding, and one that ends leaves.
//   - Beams that do not exist yet, or for which every token is banned, are no rows. Hugging Face
//     carries them on with scores of -1e9 or -Inf and may return them; here there are fewer results.
//   - Where every token is banned there is an error, not token 0.
//   - Of equal scores the lower row and token wins; torch.topk leaves that open.
//   - EncoderRepetitionPenalty applies to every beam; Hugging Face reads and writes the first alone.
//   - Random numbers are not torch's; their probabilities are.
package search
