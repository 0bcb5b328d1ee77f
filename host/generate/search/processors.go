package search

import (
	"slices"
)

// prepareProcessors makes what the rows share: the processors of the prompt's and the encoder's tokens, and
// the indices of their n-grams.
func (s *State) prepareProcessors() {
	o := &s.o
	encoder := s.in.Encoder
	if !o.IsEncoderDecoder && len(encoder) == 0 {
		encoder = s.in.Prompt
	}
	if o.EncoderRepetitionPenalty != 1 {
		// Hugging Face takes the inverse: above 1 raises the logits of the input's tokens.
		s.encoderPenalty = s.penalties(encoder, float32(1/float64(o.EncoderRepetitionPenalty)), map[int32]bool{})
	}
	if o.RepetitionPenalty != 1 {
		s.inPrompt = map[int32]bool{}
		s.promptPenalty = s.penalties(s.in.Prompt, o.RepetitionPenalty, s.inPrompt)
	}
	if o.NoRepeatNgramSize > 0 {
		s.own = newNgrams(o.NoRepeatNgramSize, s.in.Prompt)
	}
	if o.EncoderNoRepeatNgramSize > 0 {
		s.encoder = newNgrams(o.EncoderNoRepeatNgramSize, encoder)
	}
	// A single end token is never a bad word.
	s.o.BadWordsIDs = slices.DeleteFunc(slices.Clone(o.BadWordsIDs), func(word []int32) bool {
		return len(word) == 1 && slices.Contains(o.EOSTokenID, word[0])
	})
}

// penalties gives one processor for each distinct token, and notes the tokens in seen.
func (s *State) penalties(tokens []int32, value float32, seen map[int32]bool) []Processor {
	var processors []Processor
	for _, t := range tokens {
		if !seen[t] {
			seen[t] = true
			processors = s.process(processors, t, Penalise, value)
		}
	}
	return processors
}

// penalise notes in a row that it has a token, unless it or the prompt had it before.
func (s *State) penalise(r *row, token int32) {
	if s.inPrompt[token] || slices.ContainsFunc(r.penalties, func(p Processor) bool { return p.Token == token }) {
		return
	}
	r.penalties = s.process(r.penalties, token, Penalise, s.o.RepetitionPenalty)
}

// process appends a processor of a token that the logits have; any other has no logit to change.
func (s *State) process(processors []Processor, token int32, op ProcessorOp, value float32) []Processor {
	if token < 0 || int(token) >= s.in.Vocab {
		return processors
	}
	return append(processors, Processor{Token: token, Op: op, Value: value})
}

// processors appends the processors of a row in Hugging Face's order: sequence bias, diversity, encoder
// repetition, repetition, n-grams, the encoder's n-grams, bad words, minimal length, forced
// tokens, suppressed tokens.
func (s *State) processors(processors []Processor, r *row) []Processor {
	o := &s.o
	seq := s.sequence(r)
	length := seq.len()
	if forced := s.forced(length); forced != NoToken {
		// Nothing that came before is left.
		processors = s.process(processors, forced, Only, 0)
	} else {
		processors = s.biases(processors, seq)
		processors = s.diversity(processors)
		processors = append(processors, s.encoderPenalty...)
		processors = append(append(processors, s.promptPenalty...), r.penalties...)
		ban := func(token int32) { processors = s.process(processors, token, Ban, 0) }
		if s.own != nil {
			s.own.follow(seq, ban)
		}
		if s.encoder != nil {
			s.encoder.follow(seq, ban)
		}
		for _, word := range o.BadWordsIDs {
			if s.completes(seq, word) {
				ban(word[len(word)-1])
			}
		}
		if length < s.least {
			processors = s.bans(processors, o.EOSTokenID)
		}
	}
	processors = s.bans(processors, o.SuppressTokens)
	if length == s.first {
		processors = s.bans(processors, o.BeginSuppressTokens)
	}
	return processors
}

// forced gives the only token that may follow a sequence of that length, or NoToken.
func (s *State) forced(length int) int32 {
	if s.o.ForcedEOSTokenID != NoToken && length == s.limit-1 {
		return s.o.ForcedEOSTokenID
	}
	if length == 1 {
		return s.o.ForcedBOSTokenID
	}
	return NoToken
}

func (s *State) bans(processors []Processor, tokens []int32) []Processor {
	for _, t := range tokens {
		processors = s.process(processors, t, Ban, 0)
	}
	return processors
}

// biases appends one addition a token: those of a token that ends several sequences are summed
// first, so that rounding is as in a vector of biases.
func (s *State) biases(processors []Processor, seq sequence) []Processor {
	start := len(processors)
	for _, single := range []bool{true, false} {
		for _, b := range s.o.SequenceBias {
			if (len(b.Tokens) == 1) != single || !s.completes(seq, b.Tokens) {
				continue
			}
			last := b.Tokens[len(b.Tokens)-1]
			i := slices.IndexFunc(processors[start:], func(p Processor) bool { return p.Token == last })
			if i >= 0 {
				processors[start+i].Value += b.Bias
			} else {
				processors = s.process(processors, last, Add, b.Bias)
			}
		}
	}
	return processors
}

// completes says whether the last of tokens would complete them.
func (s *State) completes(seq sequence, tokens []int32) bool {
	start := seq.len() - (len(tokens) - 1)
	switch {
	case len(tokens) == 1:
		return true
	case start < 0, start == 0 && s.o.LateBias:
		return false
	}
	return seq.equalTo(start, tokens[:len(tokens)-1])
}

// diversity lowers the tokens that the groups before have chosen in this step, once for each time.
func (s *State) diversity(processors []Processor) []Processor {
	if s.o.NumBeamGroups == 1 {
		return processors
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
		processors = s.process(processors, t, Add, -(s.o.DiversityPenalty * float32(times)))
	}
	return processors
}
