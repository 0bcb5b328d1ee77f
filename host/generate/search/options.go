package search

import (
	"errors"
	"fmt"
	"math"

	"github.com/opgraft/graft/host/base/limit"
)

// NoToken stands for a token that is not set.
const NoToken int32 = -1

// EarlyStopping says when beam search stops although the length limit is not reached. The zero
// value is Hugging Face's False.
type EarlyStopping uint8

const (
	// StopHeuristic (false): stop when NumBeams hypotheses have ended and the best beam that goes
	// on (in a diverse group: the best candidate), were it to end now, is no better than the
	// worst of them.
	StopHeuristic EarlyStopping = iota
	// StopFirst (true): stop as soon as NumBeams hypotheses have ended.
	StopFirst
	// StopNever ("never"): stop when the same could not become better than the worst of them at
	// any length that is left.
	StopNever
)

// String gives the value as generation_config.json has it.
func (e EarlyStopping) String() string {
	switch e {
	case StopFirst:
		return "true"
	case StopNever:
		return `"never"`
	}
	return "false"
}

// Draft says where the next tokens are guessed, which a step then verifies as rows of its own. The zero value is none.
type Draft uint8

const (
	// DraftNone guesses nothing.
	DraftNone Draft = iota
	// DraftLookup guesses what followed the last tokens where they stood before: in the prompt, in what was generated
	// and in the encoder's input.
	DraftLookup
	// DraftModel guesses what a smaller model chooses, which the engine was opened with.
	DraftModel
)

// String gives the value as Set takes it, without quotes.
func (d Draft) String() string {
	switch d {
	case DraftLookup:
		return "lookup"
	case DraftModel:
		return "model"
	}
	return "none"
}

// SequenceBias is added to the logit of the last of Tokens where the others stand before it.
type SequenceBias struct {
	Tokens []int32
	Bias   float32
}

// ForcedToken is a token that stands at an index of the decoder's sequence (0 is the start token).
// NoToken stands for one that was left open (Whisper's language).
type ForcedToken struct {
	Index int
	Token int32
}

// Options are the options of a search, under Hugging Face's names and with its meaning. Start from
// Default, FromConfig or both, then change fields or call Set.
type Options struct {
	// NumBeams is the number of beams of an input; 1 is greedy search or sampling.
	NumBeams int
	// NumBeamGroups above 1 is diverse beam search (Vijayakumar et al. 2016): groups of
	// NumBeams/NumBeamGroups beams, each group pushed away from the tokens which the groups
	// before it chose in the same step by DiversityPenalty.
	NumBeamGroups    int
	DiversityPenalty float32
	// LengthPenalty is the exponent of the length by which the score of an ended hypothesis is
	// divided: above 0 favours long ones, below 0 short ones.
	LengthPenalty float64
	EarlyStopping EarlyStopping
	// NumReturnSequences is the number of hypotheses an input gives: the best, or, when
	// sampling without beams, independent samples.
	NumReturnSequences int

	// MaxLength bounds the prompt of the decoder and what was generated, together. 0 is not
	// set: 20 new tokens, but no more than MaxPositions allows. MaxNewTokens, when not 0, wins.
	MaxLength    int
	MaxNewTokens int
	// MinLength bans the end tokens before that length, prompt included; MinNewTokens before
	// that many new tokens.
	MinLength    int
	MinNewTokens int
	// MaxPositions is max_position_embeddings of config.json (0: not known).
	MaxPositions int

	// NoRepeatNgramSize bans a token that would end an n-gram which the sequence, prompt
	// included, has already. EncoderNoRepeatNgramSize does so for the n-grams of the encoder's
	// input (of the prompt, when there is no encoder). 0: off.
	NoRepeatNgramSize        int
	EncoderNoRepeatNgramSize int
	// RepetitionPenalty lowers the logits of tokens that the sequence has already (above 1);
	// EncoderRepetitionPenalty raises those of the encoder's input. 1: off.
	RepetitionPenalty        float32
	EncoderRepetitionPenalty float32
	// BadWordsIDs are sequences that must not come up. As with Hugging Face, one that is a single end token is passed
	// over.
	BadWordsIDs [][]int32
	// SequenceBias changes logits of tokens and sequences.
	SequenceBias []SequenceBias
	// LateBias looks for a sequence of n tokens in BadWordsIDs and SequenceBias only once the context holds n tokens, as
	// transformers does before 5.18, and not once it holds n-1.
	LateBias bool
	// ForcedBOSTokenID is the first token after a prompt of one token; ForcedEOSTokenID the last
	// token at the length limit. NoToken: off.
	ForcedBOSTokenID int32
	ForcedEOSTokenID int32
	// ForcedDecoderIDs continue the decoder's start token (Whisper): see DecoderPrompt.
	ForcedDecoderIDs []ForcedToken
	// DecoderInputIDs are what a decoder beside an encoder begins with: its start token and what follows it. The start
	// token may be left out; for a model that begins with its prompt (WholePrompt: Donut) there is none but what stands
	// here.
	DecoderInputIDs []int32
	WholePrompt     bool
	// Speech makes the decoder's prompt of a speech model: see DecoderPrompt.
	Speech Speech
	// SuppressTokens are banned in every step, BeginSuppressTokens in the first.
	SuppressTokens      []int32
	BeginSuppressTokens []int32
	// RenormalizeLogits takes the log-softmax again after bans and penalties.
	RenormalizeLogits bool

	// StopStrings end a sequence with the token that completes one of them in its text: Input.Stopped says whether one
	// does. Not with beams.
	StopStrings []string

	// DoSample samples tokens instead of taking the best; with NumBeams above 1 it is beam
	// sampling. The fields below count only then. Their neutral values: 1, 0, 1, 0, 1.
	DoSample    bool
	Temperature float32
	TopK        int
	TopP        float32
	MinP        float32
	TypicalP    float32
	// Seed and the index of the input make its random numbers.
	Seed uint64

	// Draft is how tokens are drafted, where State.Drafts allows it. The tokens are the same without it. DraftTokens is
	// the maximum of a row in a step; 0 leaves it to the engine.
	Draft       Draft
	DraftTokens int

	// OutputScores gives Hypothesis.Score in greedy search too, which costs a log-softmax.
	// Beam search and sampling have it anyway.
	OutputScores bool

	// Special tokens. EOSTokenID may be several or none. PadTokenID falls back to the first
	// of them, DecoderStartTokenID to BOSTokenID.
	BOSTokenID          int32
	EOSTokenID          []int32
	PadTokenID          int32
	DecoderStartTokenID int32
	// IsEncoderDecoder says that the encoder's input is not the decoder's prompt.
	IsEncoderDecoder bool
}

// Default gives Hugging Face's defaults: greedy search, 20 new tokens.
func Default() Options {
	return Options{
		NumBeams:                 1,
		NumBeamGroups:            1,
		LengthPenalty:            1,
		NumReturnSequences:       1,
		RepetitionPenalty:        1,
		EncoderRepetitionPenalty: 1,
		ForcedBOSTokenID:         NoToken,
		ForcedEOSTokenID:         NoToken,
		Temperature:              1,
		TopK:                     50,
		TopP:                     1,
		TypicalP:                 1,
		BOSTokenID:               NoToken,
		PadTokenID:               NoToken,
		DecoderStartTokenID:      NoToken,
		Speech:                   Speech{NoTimestamps: NoToken},
	}
}

// Validate returns an error that names the first option which is out of range or contradicts
// another one.
func (o *Options) Validate() error {
	for _, check := range []func() error{o.validateCounts, o.validateStops, o.validateNumbers, o.validateTokens} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (o *Options) validateCounts() error {
	for _, c := range []struct {
		name               string
		value, least, most int
	}{
		{"num_beams", o.NumBeams, 1, limit.Beams},
		{"num_beam_groups", o.NumBeamGroups, 1, limit.Beams},
		{"num_return_sequences", o.NumReturnSequences, 1, limit.Beams},
		{"max_length", o.MaxLength, 0, limit.Tokens},
		{"max_new_tokens", o.MaxNewTokens, 0, limit.Tokens},
		{"min_length", o.MinLength, 0, limit.Tokens},
		{"min_new_tokens", o.MinNewTokens, 0, limit.Tokens},
		{"max_position_embeddings", o.MaxPositions, 0, math.MaxInt32},
		{"no_repeat_ngram_size", o.NoRepeatNgramSize, 0, limit.Tokens},
		{"encoder_no_repeat_ngram_size", o.EncoderNoRepeatNgramSize, 0, limit.Tokens},
		{"top_k", o.TopK, 0, math.MaxInt32},
		{"prompt_lookup_num_tokens", o.DraftTokens, 0, limit.Drafts},
	} {
		if c.value < c.least {
			return fmt.Errorf("%s is %d: at least %d is needed", c.name, c.value, c.least)
		}
		if c.value > c.most {
			return fmt.Errorf("%s is %d: at most %d is possible", c.name, c.value, c.most)
		}
	}
	if o.EarlyStopping > StopNever {
		return fmt.Errorf("early_stopping is %d: false, true and \"never\" are known", o.EarlyStopping)
	}
	if o.Draft > DraftModel {
		return fmt.Errorf("draft is %d: none, lookup and model are known", o.Draft)
	}
	groups := o.NumBeamGroups > 1
	switch {
	case o.NumBeams%o.NumBeamGroups != 0:
		return fmt.Errorf("num_beams is %d and num_beam_groups %d: the beams must divide into the groups", o.NumBeams,
			o.NumBeamGroups)
	case groups && o.DoSample:
		return fmt.Errorf("num_beam_groups is %d and do_sample is on: groups of beams do not sample; drop one of the two",
			o.NumBeamGroups)
	case groups && o.DiversityPenalty == 0:
		return fmt.Errorf("num_beam_groups is %d and diversity_penalty 0: the groups would be identical; set a penalty "+
			"above 0", o.NumBeamGroups)
	case !groups && o.DiversityPenalty != 0:
		return fmt.Errorf("diversity_penalty is %g and num_beam_groups 1: a penalty needs at least 2 groups",
			o.DiversityPenalty)
	case o.NumBeams == 1 && !o.DoSample && o.NumReturnSequences > 1:
		return fmt.Errorf("num_return_sequences is %d: greedy search has only one; set num_beams or do_sample",
			o.NumReturnSequences)
	case o.NumBeams > 1 && o.NumReturnSequences > o.NumBeams:
		return fmt.Errorf("num_return_sequences is %d and num_beams %d: there cannot be more sequences than beams",
			o.NumReturnSequences, o.NumBeams)
	}
	return nil
}

func (o *Options) validateNumbers() error {
	if math.IsNaN(o.LengthPenalty) || math.IsInf(o.LengthPenalty, 0) {
		return fmt.Errorf("length_penalty is %g: a finite number is needed", o.LengthPenalty)
	}
	for _, c := range []struct {
		name        string
		value       float32
		above, upTo float64
		inclusive   bool // the lower bound is allowed itself
	}{
		{"diversity_penalty", o.DiversityPenalty, 0, math.MaxFloat32, true},
		{"repetition_penalty", o.RepetitionPenalty, 0, math.MaxFloat32, false},
		{"encoder_repetition_penalty", o.EncoderRepetitionPenalty, 0, math.MaxFloat32, false},
		{"temperature", o.Temperature, 0, math.MaxFloat32, !o.DoSample},
		{"top_p", o.TopP, 0, 1, true},
		{"min_p", o.MinP, 0, 1, true},
		{"typical_p", o.TypicalP, 0, 1, false},
	} {
		v := float64(c.value)
		if !(v > c.above || c.inclusive && v == c.above) || !(v <= c.upTo) {
			least := "above"
			if c.inclusive {
				least = "at least"
			}
			limit := ""
			if c.upTo < math.MaxFloat32 {
				limit = fmt.Sprintf(" and at most %g", c.upTo)
			}
			fix := ""
			if c.name == "temperature" {
				fix = " (turn do_sample off to take the best token)"
			}
			return fmt.Errorf("%s is %g: a number %s %g%s is needed%s", c.name, v, least, c.above, limit, fix)
		}
	}
	return nil
}

func (o *Options) validateTokens() error {
	if (o.Speech.Language != "" || o.Speech.Task != "") && !o.IsEncoderDecoder {
		return fmt.Errorf("language is %q and task %q, and the model reads no speech: leave both out", o.Speech.Language,
			o.Speech.Task)
	}
	if len(o.DecoderInputIDs) > 0 {
		if !o.IsEncoderDecoder {
			return errors.New("decoder_input_ids are set, and the model has no encoder: leave them out")
		}
		if err := validateSequence("decoder_input_ids", 0, o.DecoderInputIDs); err != nil {
			return err
		}
	}
	for i, word := range o.BadWordsIDs {
		if err := validateSequence("bad_words_ids", i, word); err != nil {
			return err
		}
	}
	for i, b := range o.SequenceBias {
		if err := validateSequence("sequence_bias", i, b.Tokens); err != nil {
			return err
		}
		if b.Bias != b.Bias || math.IsInf(float64(b.Bias), 1) {
			return fmt.Errorf("sequence_bias: entry %d has the bias %g: a number or -Inf is needed", i, b.Bias)
		}
	}
	for _, c := range []struct {
		name  string
		token int32
	}{
		{"forced_bos_token_id", o.ForcedBOSTokenID},
		{"forced_eos_token_id", o.ForcedEOSTokenID},
		{"decoder_start_token_id", o.DecoderStartTokenID},
		{"bos_token_id", o.BOSTokenID},
	} {
		if c.token < NoToken {
			return fmt.Errorf("%s is %d: a token id is needed", c.name, c.token)
		}
	}
	return nil
}

func validateSequence(name string, i int, tokens []int32) error {
	if len(tokens) == 0 {
		return fmt.Errorf("%s: entry %d is empty: at least one token id is needed", name, i)
	}
	for _, t := range tokens {
		if t < 0 {
			return fmt.Errorf("%s: entry %d has the token %d: token ids are not negative", name, i, t)
		}
	}
	return nil
}

// LengthLimit gives the length, prompt included, at which a sequence with a decoder's prompt of that many
// tokens ends.
func (o *Options) LengthLimit(prompt int) int {
	switch {
	case o.MaxNewTokens > 0:
		return prompt + o.MaxNewTokens
	case o.MaxLength > 0:
		return o.MaxLength
	}
	limit := prompt + 20
	if o.MaxPositions > 0 {
		limit = min(limit, o.MaxPositions)
	}
	return limit
}
