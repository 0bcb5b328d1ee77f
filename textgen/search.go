package textgen

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/internal/opening"
)

// Search says what is generated, with the names and the meaning of Hugging Face's generation configuration. What has
// its zero value is as [New] was told, else as the model's generation_config.json says. What is set and would have no
// effect, such as Temperature without DoSample, is graft.ErrOption.
type Search struct {
	// MaxNewTokens ends a sequence after so many tokens, the prompt not counted (max_new_tokens). Where neither it nor a
	// maximal length is set, here or by the model, it is 20.
	MaxNewTokens int
	// MinNewTokens lets no sequence end before so many tokens, the prompt not counted (min_new_tokens).
	MinNewTokens int
	// MaxLength ends a sequence at so many tokens, the decoder's prompt counted (max_length).
	MaxLength int
	// MinLength lets no sequence end before so many tokens, the decoder's prompt counted (min_length).
	MinLength int
	// StopStrings end a sequence with the token that completes one of them in its text, which has it then
	// (stop_strings). Not with beams.
	StopStrings []string

	// Beams is the number of beams, 1 to 1,024 (num_beams); 1 is greedy search, or sampling.
	Beams int
	// BeamGroups divides the beams into groups, each kept away from what those before it chose (num_beam_groups).
	BeamGroups int
	// DiversityPenalty is subtracted from scores of tokens that another group of beams chose in the same step
	// (diversity_penalty).
	DiversityPenalty float64
	// LengthPenalty is the exponent of the length that scores of beams are divided by (length_penalty): above 0 favours
	// long sequences, below 0 short ones.
	LengthPenalty float64
	// EarlyStopping ends beam search as soon as there are as many ended sequences as beams (early_stopping).
	EarlyStopping bool
	// ReturnSequences is the number of sequences an input: the best of as many beams or more, or samples
	// (num_return_sequences).
	ReturnSequences int

	// NoRepeatNgramSize lets no n-gram of so many tokens come twice in a sequence (no_repeat_ngram_size).
	NoRepeatNgramSize int
	// RepetitionPenalty above 1 makes tokens less likely that the sequence has already (repetition_penalty).
	RepetitionPenalty float64

	// DoSample samples tokens at random instead of taking the most likely (do_sample). The six below apply only then.
	DoSample bool
	// Temperature divides the logits (temperature): below 1 likely tokens become likelier.
	Temperature float64
	// TopK samples among the k most likely tokens (top_k). Where neither it nor the model says otherwise it is 50; for
	// all tokens, Set it to 0.
	TopK int
	// TopP samples among the most likely tokens whose probabilities add up to it (top_p).
	TopP float64
	// MinP samples among tokens of at least so many times the probability of the most likely one (min_p).
	MinP float64
	// TypicalP samples among the tokens of the most typical information whose probabilities add up to it (typical_p).
	TypicalP float64
	// Seed makes the random numbers of a call, together with the number of an input: equal seeds give equal tokens,
	// whatever else runs.
	Seed uint64

	// Drafts says what guesses next tokens, of which a step verifies several at once. The tokens are the same. Groups of
	// beams and several samples of an input run without.
	Drafts Drafts

	// Language is that of what a speech model listens to: a name in English ("german") or a code ("de"). Without it the
	// model detects the language.
	Language string
	// Task is "transcribe" or, to English, "translate": for speech models.
	Task string

	// Set has options by their names in Hugging Face's configuration: those that have no field here, and zeros, such as
	// {"do_sample": false} for a model that samples by itself. A value is what [encoding/json] writes as it stands
	// there; nil turns the option off. They go before fields.
	Set map[string]any
}

// Drafts says what guesses next tokens.
type Drafts string

const (
	// NoDrafts guesses nothing.
	NoDrafts Drafts = "none"
	// LookupDrafts guesses those that followed where the last tokens stood before: in the prompt, in what was generated
	// and in the encoder's input.
	LookupDrafts Drafts = "lookup"
	// ModelDrafts guesses what the draft model chooses that [New] opened.
	ModelDrafts Drafts = "model"
)

// setting is an option of the search by its name.
type setting struct {
	name  string
	value any
}

// settings are the options that are set: fields in their order, then Set by name.
func (s *Search) settings() (list []setting) {
	field := func(name string, set bool, value any) {
		if _, again := s.Set[name]; set && !again {
			list = append(list, setting{name, value})
		}
	}
	field("max_new_tokens", s.MaxNewTokens != 0, s.MaxNewTokens)
	field("min_new_tokens", s.MinNewTokens != 0, s.MinNewTokens)
	field("max_length", s.MaxLength != 0, s.MaxLength)
	field("min_length", s.MinLength != 0, s.MinLength)
	field("stop_strings", s.StopStrings != nil, s.StopStrings)
	field("num_beams", s.Beams != 0, s.Beams)
	field("num_beam_groups", s.BeamGroups != 0, s.BeamGroups)
	field("diversity_penalty", s.DiversityPenalty != 0, s.DiversityPenalty)
	field("length_penalty", s.LengthPenalty != 0, s.LengthPenalty)
	field("early_stopping", s.EarlyStopping, true)
	field("num_return_sequences", s.ReturnSequences != 0, s.ReturnSequences)
	field("no_repeat_ngram_size", s.NoRepeatNgramSize != 0, s.NoRepeatNgramSize)
	field("repetition_penalty", s.RepetitionPenalty != 0, s.RepetitionPenalty)
	field("do_sample", s.DoSample, true)
	field("temperature", s.Temperature != 0, s.Temperature)
	field("top_k", s.TopK != 0, s.TopK)
	field("top_p", s.TopP != 0, s.TopP)
	field("min_p", s.MinP != 0, s.MinP)
	field("typical_p", s.TypicalP != 0, s.TypicalP)
	field("seed", s.Seed != 0, s.Seed)
	field("draft", s.Drafts != "", string(s.Drafts))
	field("language", s.Language != "", s.Language)
	field("task", s.Task != "", s.Task)
	for _, name := range slices.Sorted(maps.Keys(s.Set)) {
		list = append(list, setting{name, s.Set[name]})
	}
	return list
}

// apply sets options of a search. One that changes nothing there is refused.
func (s *Search) apply(o *search.Options) error {
	list := s.settings()
	for _, x := range list {
		data, err := json.Marshal(x.value)
		if err != nil {
			return opening.Refuse("%s: %w", x.name, err)
		}
		if err := o.Set(x.name, data); err != nil {
			return opening.Public(err, opening.ErrOption)
		}
	}
	if err := o.Validate(); err != nil {
		return opening.Public(err, opening.ErrOption)
	}
	if o.IsEncoderDecoder && len(list) > 0 {
		if _, err := o.DecoderPrompt(); err != nil { // a language or a task that the model does not know
			return opening.Public(err, opening.ErrOption)
		}
	}
	for _, x := range list {
		if why := o.Ignored(x.name); why != "" && x.value != nil {
			return opening.Refuse("%s is set and would be ignored: %s", x.name, why)
		}
	}
	return nil
}
