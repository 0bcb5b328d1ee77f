package search

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/limit"
)

// setters read the value of an option from JSON. null turns the option off: Hugging Face's None.
func setters() map[string]func(*Options, json.RawMessage) error {
	return map[string]func(*Options, json.RawMessage) error{
		"num_beams":                    number(func(o *Options) *int { return &o.NumBeams }),
		"num_beam_groups":              number(func(o *Options) *int { return &o.NumBeamGroups }),
		"diversity_penalty":            number(func(o *Options) *float32 { return &o.DiversityPenalty }),
		"length_penalty":               number(func(o *Options) *float64 { return &o.LengthPenalty }),
		"early_stopping":               setEarlyStopping,
		"num_return_sequences":         number(func(o *Options) *int { return &o.NumReturnSequences }),
		"max_length":                   number(func(o *Options) *int { return &o.MaxLength }),
		"max_new_tokens":               number(func(o *Options) *int { return &o.MaxNewTokens }),
		"min_length":                   number(func(o *Options) *int { return &o.MinLength }),
		"min_new_tokens":               number(func(o *Options) *int { return &o.MinNewTokens }),
		"max_position_embeddings":      number(func(o *Options) *int { return &o.MaxPositions }),
		"no_repeat_ngram_size":         number(func(o *Options) *int { return &o.NoRepeatNgramSize }),
		"encoder_no_repeat_ngram_size": number(func(o *Options) *int { return &o.EncoderNoRepeatNgramSize }),
		"repetition_penalty":           number(func(o *Options) *float32 { return &o.RepetitionPenalty }),
		"encoder_repetition_penalty":   number(func(o *Options) *float32 { return &o.EncoderRepetitionPenalty }),
		"bad_words_ids":                setBadWords,
		"sequence_bias":                setSequenceBias,
		"draft":                        setDraft,
		"stop_strings":                 setStopStrings,
		"prompt_lookup_num_tokens":     setLookup,
		"num_assistant_tokens":         setAssistantTokens,
		"forced_bos_token_id":          token(func(o *Options) *int32 { return &o.ForcedBOSTokenID }),
		"forced_eos_token_id":          token(func(o *Options) *int32 { return &o.ForcedEOSTokenID }),
		"forced_decoder_ids":           setForcedDecoderIDs,
		"decoder_input_ids":            tokens(func(o *Options) *[]int32 { return &o.DecoderInputIDs }),
		"language":                     setText(func(o *Options) *string { return &o.Speech.Language }),
		"task":                         setText(func(o *Options) *string { return &o.Speech.Task }),
		"lang_to_id":                   setTokensByName(func(o *Options) *map[string]int32 { return &o.Speech.Languages }),
		"task_to_id":                   setTokensByName(func(o *Options) *map[string]int32 { return &o.Speech.Tasks }),
		"no_timestamps_token_id":       token(func(o *Options) *int32 { return &o.Speech.NoTimestamps }),
		"is_multilingual":              setMultilingual,
		"suppress_tokens":              tokens(func(o *Options) *[]int32 { return &o.SuppressTokens }),
		"begin_suppress_tokens":        tokens(func(o *Options) *[]int32 { return &o.BeginSuppressTokens }),
		"renormalize_logits":           number(func(o *Options) *bool { return &o.RenormalizeLogits }),
		"do_sample":                    number(func(o *Options) *bool { return &o.DoSample }),
		"temperature":                  number(func(o *Options) *float32 { return &o.Temperature }),
		"top_k":                        setTopK,
		"top_p":                        number(func(o *Options) *float32 { return &o.TopP }),
		"min_p":                        number(func(o *Options) *float32 { return &o.MinP }),
		"typical_p":                    number(func(o *Options) *float32 { return &o.TypicalP }),
		"seed":                         number(func(o *Options) *uint64 { return &o.Seed }),
		"output_scores":                number(func(o *Options) *bool { return &o.OutputScores }),
		"bos_token_id":                 token(func(o *Options) *int32 { return &o.BOSTokenID }),
		"eos_token_id":                 tokens(func(o *Options) *[]int32 { return &o.EOSTokenID }),
		"pad_token_id":                 token(func(o *Options) *int32 { return &o.PadTokenID }),
		"decoder_start_token_id":       token(func(o *Options) *int32 { return &o.DecoderStartTokenID }),
		"is_encoder_decoder":           number(func(o *Options) *bool { return &o.IsEncoderDecoder }),
	}
}

// aliases are FastSeq's names of options of the search.
var aliases = map[string]string{
	"beam":                   "num_beams",
	"max_gen_length":         "max_length",
	"min_gen_length":         "min_length",
	"output_sequence_scores": "output_scores",
}

// unsupported are options that change what Hugging Face generates and that this package does not have,
// with the values (besides null) at which they change nothing.
var unsupported = map[string][]string{
	"max_time":                         nil,
	"penalty_alpha":                    {"0"},
	"dola_layers":                      nil,
	"epsilon_cutoff":                   {"0"},
	"eta_cutoff":                       {"0"},
	"top_h":                            nil,
	"force_words_ids":                  nil,
	"constraints":                      nil,
	"cache_implementation":             exactCaches,
	"remove_invalid_values":            {"false"},
	"exponential_decay_length_penalty": nil,
	"token_healing":                    {"false"},
	"guidance_scale":                   {"1"},
	"watermarking_config":              nil,
	"assistant_early_exit":             nil,
	"return_timestamps":                {"false"},
	"return_token_timestamps":          {"false"},
	"prompt_ids":                       nil,
	"condition_on_prev_tokens":         {"false"},
	"logprob_threshold":                nil,
	"compression_ratio_threshold":      nil,
	"no_speech_threshold":              nil,
}

// exactCaches are Hugging Face's KV caches that keep keys and values as they are: all but a quantized one.
var exactCaches = []string{`"static"`, `"offloaded_static"`, `"dynamic"`, `"offloaded"`, `"sliding_window"`,
	`"hybrid"`, `"hybrid_chunked"`, `"offloaded_hybrid"`, `"offloaded_hybrid_chunked"`, `"paged"`}

// names gives the names that Set knows, in order, FastSeq's among them.
func names() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(setters())), maps.Keys(aliases))
	slices.Sort(names)
	return names
}

// Set sets an option by its name (Hugging Face's, or FastSeq's where it has another) from a JSON
// value such as 4, true, "never" or [[5,6]]; null turns it off. It is an error that the name is not known or not
// supported, or that the value is of another type; ranges are checked by Validate.
func (o *Options) Set(name string, value []byte) error {
	if full, ok := aliases[name]; ok {
		name = full
	}
	if set, ok := setters()[name]; ok {
		raw := json.RawMessage(bytes.TrimSpace(value))
		if !json.Valid(raw) {
			return fmt.Errorf("%s: %q is not a JSON value", name, value)
		}
		if err := set(o, raw); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	if neutral, ok := unsupported[name]; ok {
		if isNeutral(value, neutral) {
			return nil
		}
		return fmt.Errorf("%s is %s: this option is not supported; leave it out (supported: %s)", name, clip(value),
			strings.Join(names(), ", "))
	}
	return fmt.Errorf("%s is not an option of the search (supported: %s)", name, strings.Join(names(), ", "))
}

// isNeutral says whether a JSON value is null or one of those listed, numbers compared as numbers.
func isNeutral(value []byte, neutral []string) bool {
	var v any
	if json.Unmarshal(value, &v) != nil {
		return false
	}
	if v == nil {
		return true
	}
	for _, n := range neutral {
		var w any
		if json.Unmarshal([]byte(n), &w) != nil {
			continue
		}
		switch w.(type) {
		case float64, bool, string:
			if v == w {
				return true
			}
		}
	}
	return false
}

// clip shortens a value for an error text.
func clip(value []byte) string {
	if len(value) > 60 {
		return string(value[:60]) + "..."
	}
	return string(value)
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

// reset gives a field its default.
func reset[T any](o *Options, field func(*Options) *T) {
	fresh := Default()
	*field(o) = *field(&fresh)
}

// setTopK exists because the default of top_k is not its neutral value.
func setTopK(o *Options, raw json.RawMessage) error {
	if isNull(raw) {
		o.TopK = 0
		return nil
	}
	return number(func(o *Options) *int { return &o.TopK })(o, raw)
}

// number reads a number or a boolean.
func number[T int | uint64 | float32 | float64 | bool](field func(*Options) *T) func(*Options, json.RawMessage) error {
	return func(o *Options, raw json.RawMessage) error {
		if isNull(raw) {
			reset(o, field)
			return nil
		}
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			// Whole numbers are written 4.0 by some tools.
			var f float64
			if i, ok := any(&v).(*int); ok && json.Unmarshal(raw, &f) == nil && f == math.Trunc(f) && math.Abs(f) < 1<<31 {
				*i = int(f)
			} else {
				return fmt.Errorf("found %s, a value of type %T is needed", clip(raw), v)
			}
		}
		*field(o) = v
		return nil
	}
}

// token reads one token id, alone or as a list of one.
func token(field func(*Options) *int32) func(*Options, json.RawMessage) error {
	return func(o *Options, raw json.RawMessage) error {
		if isNull(raw) {
			reset(o, field)
			return nil
		}
		list, err := readTokens(raw)
		if err != nil {
			return err
		}
		if len(list) != 1 {
			return fmt.Errorf("found %s, one token id is needed (several are not supported here)", clip(raw))
		}
		*field(o) = list[0]
		return nil
	}
}

// tokens reads a token id or a list of them.
func tokens(field func(*Options) *[]int32) func(*Options, json.RawMessage) error {
	return func(o *Options, raw json.RawMessage) error {
		if isNull(raw) {
			reset(o, field)
			return nil
		}
		list, err := readTokens(raw)
		if err != nil {
			return err
		}
		*field(o) = list
		return nil
	}
}

func readTokens(raw json.RawMessage) ([]int32, error) {
	var one int32
	if json.Unmarshal(raw, &one) == nil {
		return []int32{one}, nil
	}
	list, ok := readList(raw)
	if !ok {
		return nil, fmt.Errorf("found %s, a token id or a list of token ids is needed", clip(raw))
	}
	return list, nil
}

// readList reads a list of token ids; null is neither a list nor an id.
func readList(raw json.RawMessage) ([]int32, bool) {
	var found []*int32
	if json.Unmarshal(raw, &found) != nil || found == nil || slices.Contains(found, nil) {
		return nil, false
	}
	list := make([]int32, len(found))
	for i, t := range found {
		list[i] = *t
	}
	return list, true
}

func setEarlyStopping(o *Options, raw json.RawMessage) error {
	switch string(raw) {
	case "false", "null":
		o.EarlyStopping = StopHeuristic
	case "true":
		o.EarlyStopping = StopFirst
	case `"never"`:
		o.EarlyStopping = StopNever
	default:
		return fmt.Errorf(`found %s, one of false, true and "never" is needed`, clip(raw))
	}
	return nil
}

func setDraft(o *Options, raw json.RawMessage) error {
	switch string(raw) {
	case `"none"`, "null":
		o.Draft = DraftNone
	case `"lookup"`:
		o.Draft = DraftLookup
	case `"model"`:
		o.Draft = DraftModel
	default:
		return fmt.Errorf(`found %s, "none", "lookup" or "model" is needed`, clip(raw))
	}
	return nil
}

// setLookup is Hugging Face's way of turning lookup on: by the maximum of tokens.
func setLookup(o *Options, raw json.RawMessage) error {
	if err := number(func(o *Options) *int { return &o.DraftTokens })(o, raw); err != nil {
		return err
	}
	o.Draft = DraftNone
	if o.DraftTokens > 0 {
		o.Draft = DraftLookup
	}
	return nil
}

// setAssistantTokens is Hugging Face's maximum of tokens that a draft model makes.
func setAssistantTokens(o *Options, raw json.RawMessage) error {
	if err := number(func(o *Options) *int { return &o.DraftTokens })(o, raw); err != nil {
		return err
	}
	if o.DraftTokens < 0 || o.DraftTokens > limit.Drafts {
		return fmt.Errorf("found %d, 0 to %d is needed", o.DraftTokens, limit.Drafts)
	}
	return nil
}

func setBadWords(o *Options, raw json.RawMessage) error {
	if isNull(raw) {
		o.BadWordsIDs = nil
		return nil
	}
	bad := fmt.Errorf("found %s, a list of lists of token ids is needed", clip(raw))
	var lists []json.RawMessage
	if json.Unmarshal(raw, &lists) != nil {
		return bad
	}
	words := make([][]int32, len(lists))
	for i, list := range lists {
		var ok bool
		if words[i], ok = readList(list); !ok {
			return bad
		}
	}
	o.BadWordsIDs = words
	return nil
}

// setSequenceBias reads [[[token, ...], bias], ...]; a sequence that comes twice counts once, with its
// last bias.
func setSequenceBias(o *Options, raw json.RawMessage) error {
	bad := fmt.Errorf("found %s, a list of [[token ids], bias] is needed", clip(raw))
	var pairs [][]json.RawMessage
	if json.Unmarshal(raw, &pairs) != nil {
		return bad
	}
	var biases []SequenceBias
	for _, pair := range pairs {
		var b SequenceBias
		if len(pair) != 2 || string(pair[1]) == "null" || json.Unmarshal(pair[1], &b.Bias) != nil {
			return bad
		}
		var ok bool
		if b.Tokens, ok = readList(pair[0]); !ok {
			return bad
		}
		i := slices.IndexFunc(biases, func(a SequenceBias) bool { return slices.Equal(a.Tokens, b.Tokens) })
		if i >= 0 {
			biases[i] = b
		} else {
			biases = append(biases, b)
		}
	}
	o.SequenceBias = biases
	return nil
}

func setForcedDecoderIDs(o *Options, raw json.RawMessage) error {
	bad := fmt.Errorf("found %s, a list of [index, token id] is needed", clip(raw))
	var pairs [][]*int32
	if json.Unmarshal(raw, &pairs) != nil {
		return bad
	}
	var forced []ForcedToken
	for _, p := range pairs {
		if len(p) != 2 || p[0] == nil {
			return bad
		}
		f := ForcedToken{Index: int(*p[0]), Token: NoToken}
		if p[1] != nil {
			f.Token = *p[1]
		}
		forced = append(forced, f)
	}
	o.ForcedDecoderIDs = forced
	return nil
}

// readObject reads a configuration file; an empty one has no fields.
func readObject(name string, data []byte) (map[string]json.RawMessage, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, fmt.Errorf("%s: %w at byte %d", name, err, syntax.Offset)
		}
		return nil, fmt.Errorf("%s: a JSON object is needed: %w", name, err)
	}
	return fields, nil
}
