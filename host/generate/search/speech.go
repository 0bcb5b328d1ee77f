package search

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Speech is what the decoder's prompt of a speech model is made of, as Whisper's
// generation_config.json has it (Radford et al. 2022, figure 1: language, task, no
// timestamps).
type Speech struct {
	// Language and Task are what the caller chose: a name ("german"), a code ("de") or a
	// token ("<|de|>"); "transcribe" or "translate". "" is not set.
	Language, Task string
	// Languages are the tokens of languages by their text ("<|de|>"), Tasks those of
	// tasks by their name.
	Languages, Tasks map[string]int32
	// NoTimestamps ends the prompt and leaves times out of the text; NoToken: the model
	// has none.
	NoTimestamps int32
	// EnglishOnly models have neither languages nor tasks.
	EnglishOnly bool
}

// setText reads a string.
func setText(field func(*Options) *string) func(*Options, json.RawMessage) error {
	return func(o *Options, raw json.RawMessage) error {
		var v *string
		if json.Unmarshal(raw, &v) != nil {
			return fmt.Errorf("found %s, a text is needed", clip(raw))
		}
		if *field(o) = ""; v != nil {
			*field(o) = *v
		}
		return nil
	}
}

// setTokensByName reads an object of token ids.
func setTokensByName(field func(*Options) *map[string]int32) func(*Options, json.RawMessage) error {
	return func(o *Options, raw json.RawMessage) error {
		var v map[string]int32
		if json.Unmarshal(raw, &v) != nil {
			return fmt.Errorf("found %s, an object of token ids is needed", clip(raw))
		}
		*field(o) = v
		return nil
	}
}

func setMultilingual(o *Options, raw json.RawMessage) error {
	var v *bool
	if json.Unmarshal(raw, &v) != nil {
		return fmt.Errorf("found %s, true or false is needed", clip(raw))
	}
	o.Speech.EnglishOnly = v != nil && !*v
	return nil
}

// language is the token of the language that the caller chose.
func (s *Speech) language() (int32, error) {
	if s.Languages == nil {
		return 0, fmt.Errorf("language is %q, and generation_config.json has no lang_to_id: leave it out, or set "+
			"forced_decoder_ids", s.Language)
	}
	chosen := strings.ToLower(s.Language)
	code := chosen
	if full, ok := languageCodes[chosen]; ok {
		code = full
	}
	for _, text := range []string{chosen, "<|" + code + "|>"} {
		if token, ok := s.Languages[text]; ok {
			return token, nil
		}
	}
	return 0, fmt.Errorf("language is %q, needed is one of the model's: %s", s.Language,
		strings.Join(slices.Sorted(maps.Keys(s.Languages)), " "))
}

// Detected is the language of the best logit among those of the model's languages.
func (o *Options) Detected(logits []float32) (int32, error) {
	best := NoToken
	for _, t := range slices.Sorted(maps.Values(o.Speech.Languages)) {
		if t < 0 || int(t) >= len(logits) {
			return 0, fmt.Errorf("lang_to_id has the token %d, but the model has %d logits", t, len(logits))
		}
		if s := logits[t]; s == s && (best == NoToken || s > logits[best]) {
			best = t
		}
	}
	if best == NoToken {
		return 0, errors.New("no language has a finite logit")
	}
	return best, nil
}

// DecoderPrompt gives the tokens with which an encoder-decoder model's sequence starts: the start
// token, then DecoderInputIDs or ForcedDecoderIDs or, for a speech model, language, task and that there are no
// timestamps, as Whisper's generate does for one window of sound. A NoToken among them, always at
// index 1, is the language where none was chosen: what Detected makes of the logits after the start
// token takes its place. It is an error that there is no start token, that the forced tokens do not follow
// one another from index 1 or leave one open, or that the model does not know the language or task.
func (o *Options) DecoderPrompt() ([]int32, error) {
	start := o.DecoderStartTokenID
	if start == NoToken {
		start = o.BOSTokenID
	}
	if start == NoToken {
		return nil, errors.New("decoder_start_token_id and bos_token_id are not set: an encoder-decoder model needs one " +
			"of them to start with")
	}
	prompt := []int32{start}
	s := &o.Speech
	if ids := o.DecoderInputIDs; len(ids) > 0 {
		switch {
		case s.Languages != nil || s.NoTimestamps != NoToken:
			return nil, errors.New("decoder_input_ids are set, and the model reads speech: set language and task instead")
		case o.WholePrompt || ids[0] == start:
			return slices.Clone(ids), nil
		}
		return append(prompt, ids...), nil
	}
	chosen := s.Language != "" || s.Task != ""
	if chosen && s.EnglishOnly {
		return nil, fmt.Errorf("language is %q and task %q, and the model is for English only (is_multilingual): leave "+
			"both out", s.Language, s.Task)
	}
	if !chosen {
		for i, f := range o.ForcedDecoderIDs {
			if f.Index != i+1 {
				return nil, fmt.Errorf("forced_decoder_ids: entry %d is for index %d: forced tokens that follow the start "+
					"token, from index 1 on, are supported", i, f.Index)
			}
			if f.Token == NoToken && (i > 0 || s.Languages == nil) {
				return nil, fmt.Errorf("forced_decoder_ids: the token at index %d is open (the language, for Whisper): choose one",
					f.Index)
			}
			prompt = append(prompt, f.Token)
		}
	}
	switch {
	case s.Language != "":
		token, err := s.language()
		if err != nil {
			return nil, err
		}
		prompt = append(prompt, token)
	case s.Languages != nil && len(prompt) == 1:
		prompt = append(prompt, NoToken)
	}
	task := s.Task
	if task == "" && s.Language != "" && s.Tasks != nil {
		task = "transcribe"
	}
	if task != "" {
		token, ok := s.Tasks[task]
		if !ok {
			return nil, fmt.Errorf("task is %q, needed is one of the model's (task_to_id): %q", task,
				slices.Sorted(maps.Keys(s.Tasks)))
		}
		prompt = append(prompt, token)
	}
	if s.NoTimestamps != NoToken && prompt[len(prompt)-1] != s.NoTimestamps {
		prompt = append(prompt, s.NoTimestamps)
	}
	return prompt, nil
}

// languageCodes are the codes of languages by their names in English, those that Whisper was
// trained on and other names of some of them.
var languageCodes = map[string]string{
	"afrikaans": "af", "albanian": "sq", "amharic": "am", "arabic": "ar", "armenian": "hy", "assamese": "as",
	"azerbaijani": "az", "bashkir": "ba", "basque": "eu", "belarusian": "be", "bengali": "bn", "bosnian": "bs",
	"breton": "br", "bulgarian": "bg", "burmese": "my", "cantonese": "yue", "castilian": "es", "catalan": "ca",
	"chinese": "zh", "croatian": "hr", "czech": "cs", "danish": "da", "dutch": "nl", "english": "en",
	"estonian": "et", "faroese": "fo", "finnish": "fi", "flemish": "nl", "french": "fr", "galician": "gl",
	"georgian": "ka", "german": "de", "greek": "el", "gujarati": "gu", "haitian": "ht", "haitian creole": "ht",
	"hausa": "ha", "hawaiian": "haw", "hebrew": "he", "hindi": "hi", "hungarian": "hu", "icelandic": "is",
	"indonesian": "id", "italian": "it", "japanese": "ja", "javanese": "jw", "kannada": "kn", "kazakh": "kk",
	"khmer": "km", "korean": "ko", "lao": "lo", "latin": "la", "latvian": "lv", "letzeburgesch": "lb",
	"lingala": "ln", "lithuanian": "lt", "luxembourgish": "lb", "macedonian": "mk", "malagasy": "mg", "malay": "ms",
	"malayalam": "ml", "maltese": "mt", "mandarin": "zh", "maori": "mi", "marathi": "mr", "moldavian": "ro",
	"moldovan": "ro", "mongolian": "mn", "myanmar": "my", "nepali": "ne", "norwegian": "no", "nynorsk": "nn",
	"occitan": "oc", "panjabi": "pa", "pashto": "ps", "persian": "fa", "polish": "pl", "portuguese": "pt",
	"punjabi": "pa", "pushto": "ps", "romanian": "ro", "russian": "ru", "sanskrit": "sa", "serbian": "sr",
	"shona": "sn", "sindhi": "sd", "sinhala": "si", "sinhalese": "si", "slovak": "sk", "slovenian": "sl",
	"somali": "so", "spanish": "es", "sundanese": "su", "swahili": "sw", "swedish": "sv", "tagalog": "tl",
	"tajik": "tg", "tamil": "ta", "tatar": "tt", "telugu": "te", "thai": "th", "tibetan": "bo",
	"turkish": "tr", "turkmen": "tk", "ukrainian": "uk", "urdu": "ur", "uzbek": "uz", "valencian": "ca",
	"vietnamese": "vi", "welsh": "cy", "yiddish": "yi", "yoruba": "yo",
}
