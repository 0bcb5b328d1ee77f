package search

// Hypothesis is one result of a search.
type Hypothesis struct {
	// Tokens are the generated tokens without the prompt. One that ended by itself ends with its
	// end token; with diverse beams that is always the first of EOSTokenID, as with Hugging Face.
	Tokens []int32
	// Score is the sum of the tokens' log-probabilities (after bans, penalties and warpers), divided
	// with beams by the length to the power of LengthPenalty. In greedy search it is 0 unless
	// OutputScores is set.
	Score float64
	// Ended says that the last token is an end token, not just one at the length limit.
	Ended bool
}

// hypotheses are the best ended ones of a group, at most as many as it has beams. Which stay,
// and in which order, is the search's: see insert and add.
type hypotheses struct {
	best  []Hypothesis
	worst float64 // the lowest score of best, maintained by add alone
}

// weighed is the length with which EarlyStopping weighs the score of a beam that continues after that
// many generated tokens: the one that flatters it most when nothing better may be missed.
func (s *State) weighed(length int) int {
	if s.o.EarlyStopping == StopNever && s.o.LengthPenalty > 0 {
		return s.limit - len(s.in.Prompt)
	}
	return length
}
