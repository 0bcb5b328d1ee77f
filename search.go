package graft

import (
	"encoding/json"
	"slices"

	"github.com/opgraft/graft/host/generate/search"
)

// settings are options of the search, by name, in the order in which they were given.
type settings []setting

type setting struct {
	name  string
	value any
}

// apply sets options of a search. One that changes nothing there is refused.
func (list settings) apply(o *search.Options) error {
	for _, s := range list {
		data, err := json.Marshal(s.value)
		if err != nil {
			return refuse("%s: %w", s.name, err)
		}
		if err := o.Set(s.name, data); err != nil {
			return public(err, ErrOption)
		}
	}
	if err := o.Validate(); err != nil {
		return public(err, ErrOption)
	}
	if o.IsEncoderDecoder && len(list) > 0 {
		if _, err := o.DecoderPrompt(); err != nil { // a language or a task that the model does not know
			return public(err, ErrOption)
		}
	}
	for _, s := range list {
		if why := o.Ignored(s.name); why != "" && s.value != nil {
			return refuse("%s is set and would be ignored: %s", s.name, why)
		}
	}
	return nil
}

// draftModel takes the folder of a draft model out of a list, which then asks for drafts of that model. It is the
// last that the list names, "" where it names none.
func (list settings) draftModel() (name string) {
	for i, s := range list {
		from, ok := s.value.(string)
		if s.name != draftOption || !ok ||
			slices.Contains([]string{search.DraftNone.String(), search.DraftLookup.String()}, from) {
			continue
		}
		name = from
		list[i].value = search.DraftModel.String()
	}
	return name
}

// draftOption is the name of the option that says what drafts.
const draftOption = "draft"

// beams are those that are searched with where a list sets them.
func (list settings) beams() int {
	for _, s := range slices.Backward(list) {
		if n, ok := s.value.(int); ok && s.name == "num_beams" {
			return n
		}
	}
	return 0
}

func (s setting) generator(o *generatorOptions) { o.settings = append(o.settings, s) }
func (s setting) generate(list *settings)       { *list = append(*list, s) }

// Set sets an option by its name in Hugging Face's generation configuration to any value that
// [encoding/json] writes as it stands there:
//
//	graft.Set("early_stopping", "never")
//	graft.Set("bad_words_ids", [][]int{{5, 6}, {7}})
//
// nil turns the option off. A name that is not known or not supported is [ErrOption]. What is not set
// is as the model's generation_config.json says.
func Set(name string, value any) SearchOption { return setting{name, value} }

// MaxNewTokens ends a sequence after n tokens, the prompt not counted (max_new_tokens). Where neither it nor
// a maximal length is set, here or by the model, it is 20.
func MaxNewTokens(n int) SearchOption { return setting{"max_new_tokens", n} }

// MinNewTokens lets no sequence end before n tokens, the prompt not counted (min_new_tokens).
func MinNewTokens(n int) SearchOption { return setting{"min_new_tokens", n} }

// MaxLength ends a sequence at n tokens, the decoder's prompt counted (max_length).
func MaxLength(n int) SearchOption { return setting{"max_length", n} }

// MinLength lets no sequence end before n tokens, the decoder's prompt counted (min_length).
func MinLength(n int) SearchOption { return setting{"min_length", n} }

// Beams searches with n beams (num_beams); 1 is greedy search, or sampling.
func Beams(n int) SearchOption { return setting{"num_beams", n} }

// BeamGroups divides the beams into n groups, each kept away from what those before it chose by
// [DiversityPenalty] (num_beam_groups).
func BeamGroups(n int) SearchOption { return setting{"num_beam_groups", n} }

// DiversityPenalty is subtracted from the scores of tokens that another group of beams chose in the
// same step (diversity_penalty).
func DiversityPenalty(p float64) SearchOption { return setting{"diversity_penalty", p} }

// LengthPenalty is the exponent of the length that scores of beams are divided by (length_penalty):
// above 0 favours long sequences, below 0 short ones.
func LengthPenalty(p float64) SearchOption { return setting{"length_penalty", p} }

// EarlyStopping ends beam search as soon as there are as many ended sequences as beams
// (early_stopping).
func EarlyStopping(on bool) SearchOption { return setting{"early_stopping", on} }

// ReturnSequences gives n sequences an input: the best of as many beams or more, or n samples
// (num_return_sequences).
func ReturnSequences(n int) SearchOption { return setting{"num_return_sequences", n} }

// NoRepeatNgramSize lets no n-gram of n tokens come twice in a sequence (no_repeat_ngram_size).
func NoRepeatNgramSize(n int) SearchOption { return setting{"no_repeat_ngram_size", n} }

// RepetitionPenalty above 1 makes tokens less likely that the sequence has already
// (repetition_penalty).
func RepetitionPenalty(p float64) SearchOption { return setting{"repetition_penalty", p} }

// DoSample samples tokens at random instead of taking the most likely (do_sample). [Temperature], [TopK],
// [TopP], [MinP], [TypicalP] and [Seed] apply only then.
func DoSample(on bool) SearchOption { return setting{"do_sample", on} }

// Temperature divides the logits (temperature): below 1 likely tokens become likelier.
func Temperature(t float64) SearchOption { return setting{"temperature", t} }

// TopK samples among the k most likely tokens (top_k); 0 among all. Where neither it nor the model says
// otherwise it is 50.
func TopK(k int) SearchOption { return setting{"top_k", k} }

// TopP samples among the most likely tokens whose probabilities add up to p (top_p).
func TopP(p float64) SearchOption { return setting{"top_p", p} }

// MinP samples among tokens of at least p times the probability of the most likely one (min_p).
func MinP(p float64) SearchOption { return setting{"min_p", p} }

// TypicalP samples among the tokens of the most typical information whose probabilities add up to p
// (typical_p).
func TypicalP(p float64) SearchOption { return setting{"typical_p", p} }

// Seed makes the random numbers of a call, together with the number of an input: equal seeds give equal
// tokens, whatever else runs. It is 0 where it is not set.
func Seed(seed uint64) SearchOption { return setting{"seed", seed} }

// Drafts guesses next tokens, of which a step verifies several at once. The tokens are the same, sampled ones for a
// seed too. "lookup" guesses those that followed where the last ones stood before: in the prompt, in what was
// generated and in the encoder's input. The folder of a smaller model with the same tokenizer, "FOLDER" or
// "FOLDER,weights=int8" with weights as in [Weights], guesses what that model would choose; the folder is named to
// [NewGenerator], and a call of Generate may turn it off and on by its name. "none", the default, guesses nothing.
// Groups of beams and several samples of an input run without drafts.
func Drafts(from string) SearchOption { return setting{draftOption, from} }

// Language is that of what a speech model listens to: a name in English ("german") or a code ("de").
// Without it the model detects the language.
func Language(name string) SearchOption { return setting{"language", name} }

// Task is "transcribe" or, to English, "translate": for speech models.
func Task(name string) SearchOption { return setting{"task", name} }
