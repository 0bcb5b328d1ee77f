package search

import (
	"slices"
)

// prepareEdits makes what the rows share: the edits of the prompt's and the encoder's tokens, and
// the indices of their n-grams.
func (s *State) prepareEdits() {
	o := &s.o
	encoder := s.in.Encoder
	if !o.IsEncoderDecoder && len(encoder) == 0 {
		encoder = s.in.Prompt
	}
	if o.EncoderRepetitionPenalty != 1 {
		// Hugging Face takes the inverse: above 1 raises the scores of the input's tokens.
		s.encoderPenalty = s.penalties(encoder, float32(1/float64(o.EncoderRepetitionPenalty)), map[int32]bool{})
	}
	if o.RepetitionPenalty != 1 {
		s.inPrompt = map[int32]bool{}
		s.promptPenalty = s.penalties(s.in.Prompt, o.RepetitionPenalty, s.inPrompt)
	}
	if o.NoRepeatNgramSize > 0 {
		s.own = s.repeatsOf(o.NoRepeatNgramSize, s.in.Prompt, true)
	}
	if o.EncoderNoRepeatNgramSize > 0 {
		s.encoder = s.repeatsOf(o.EncoderNoRepeatNgramSize, encoder, false)
	}
	// A single end token is never a bad word.
	s.o.BadWordsIDs = slices.DeleteFunc(slices.Clone(o.BadWordsIDs), func(word []int32) bool {
		return len(word) == 1 && slices.Contains(o.EOSTokenID, word[0])
	})
}

// penalties gives one edit for each distinct token, and notes the tokens in seen.
func (s *State) penalties(tokens []int32, value float32, seen map[int32]bool) []Edit {
	var edits []Edit
	for _, t := range tokens {
		if !seen[t] {
			seen[t] = true
			edits = s.edit(edits, t, Penalise, value)
		}
	}
	return edits
}

// penalise notes in a row that it has a token, unless it or the prompt had it before.
func (s *State) penalise(r *row, token int32) {
	if s.inPrompt[token] || slices.ContainsFunc(r.penalties, func(e Edit) bool { return e.Token == token }) {
		return
	}
	r.penalties = s.edit(r.penalties, token, Penalise, s.o.RepetitionPenalty)
}

// edit appends an edit of a token that the scores have; a token outside of them has no score to edit.
func (s *State) edit(edits []Edit, token int32, op EditOp, value float32) []Edit {
	if token < 0 || int(token) >= s.in.Vocab {
		return edits
	}
	return append(edits, Edit{Token: token, Op: op, Value: value})
}

// edits appends the edits of a row in Hugging Face's order: sequence bias, diversity, encoder
// repetition, repetition, n-grams, the encoder's n-grams, bad words, minimal length, forced
// tokens, suppressed tokens.
func (s *State) edits(edits []Edit, r *row) []Edit {
	o := &s.o
	seq := s.sequence(r)
	length := seq.len()
	if forced := s.forced(length); forced != NoToken {
		// Nothing that came before is left.
		edits = s.edit(edits, forced, Only, 0)
	} else {
		edits = s.biases(edits, seq)
		edits = s.diversity(edits)
		edits = append(edits, s.encoderPenalty...)
		edits = append(append(edits, s.promptPenalty...), r.penalties...)
		ban := func(token int32) { edits = s.edit(edits, token, Ban, 0) }
		if s.own != nil {
			s.own.follow(seq, ban)
		}
		if s.encoder != nil {
			s.encoder.follow(seq, ban)
		}
		for _, word := range o.BadWordsIDs {
			if completes(seq, word) {
				ban(word[len(word)-1])
			}
		}
		if length < s.least {
			edits = s.bans(edits, o.EOSTokenID)
		}
	}
	edits = s.bans(edits, o.SuppressTokens)
	if length == s.begin {
		edits = s.bans(edits, o.BeginSuppressTokens)
	}
	return edits
}

// forced gives the only token that a sequence of that length may go on with, or NoToken.
func (s *State) forced(length int) int32 {
	if s.o.ForcedEOSTokenID != NoToken && length == s.limit-1 {
		return s.o.ForcedEOSTokenID
	}
	if length == 1 {
		return s.o.ForcedBOSTokenID
	}
	return NoToken
}

func (s *State) bans(edits []Edit, tokens []int32) []Edit {
	for _, t := range tokens {
		edits = s.edit(edits, t, Ban, 0)
	}
	return edits
}

// biases appends one addition a token: those of a token that ends several sequences are summed
// first, so that rounding is as in a vector of biases.
func (s *State) biases(edits []Edit, seq sequence) []Edit {
	start := len(edits)
	for _, single := range []bool{true, false} {
		for _, b := range s.o.SequenceBias {
			if (len(b.Tokens) == 1) != single || !completes(seq, b.Tokens) {
				continue
			}
			last := b.Tokens[len(b.Tokens)-1]
			i := slices.IndexFunc(edits[start:], func(e Edit) bool { return e.Token == last })
			if i >= 0 {
				edits[start+i].Value += b.Bias
			} else {
				edits = s.edit(edits, last, Add, b.Bias)
			}
		}
	}
	return edits
}

// completes says whether the last of tokens would complete them. Like Hugging Face, it asks that
// the sequence is as long as all of them, although one less would do.
func completes(seq sequence, tokens []int32) bool {
	if len(tokens) == 1 {
		return true
	}
	start := seq.len() - (len(tokens) - 1)
	return seq.len() >= len(tokens) && seq.equalTo(start, tokens[:len(tokens)-1])
}

// diversity lowers the tokens that the groups before have chosen in this step, once for each time.
func (s *State) diversity(edits []Edit) []Edit {
	if s.o.NumBeamGroups == 1 {
		return edits
	}
	for i, t := range s.chosen {
		if slices.Contains(s.chosen[:i], t) {
			continue
		}
		times := 0
		for _, c := range s.chosen {
			if c == t {
				times++
			}
		}
		edits = s.edit(edits, t, Add, -(s.o.DiversityPenalty * float32(times)))
	}
	return edits
}
