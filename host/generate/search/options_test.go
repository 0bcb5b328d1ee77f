package search

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// field gives the value of an option as JSON would have it.
func field(o *Options, name string) any {
	one := func(t int32) any {
		if t == NoToken {
			return nil
		}
		return float64(t)
	}
	list := func(tokens []int32) any {
		if tokens == nil {
			return nil
		}
		values := []any{}
		for _, t := range tokens {
			values = append(values, float64(t))
		}
		return values
	}
	switch name {
	case "early_stopping":
		return map[EarlyStopping]any{StopHeuristic: false, StopFirst: true, StopNever: "never"}[o.EarlyStopping]
	case "bad_words_ids":
		if o.BadWordsIDs == nil {
			return nil
		}
		values := []any{}
		for _, w := range o.BadWordsIDs {
			values = append(values, list(w))
		}
		return values
	case "forced_decoder_ids":
		if o.ForcedDecoderIDs == nil {
			return nil
		}
		values := []any{}
		for _, f := range o.ForcedDecoderIDs {
			values = append(values, []any{float64(f.Index), one(f.Token)})
		}
		return values
	case "eos_token_id":
		if len(o.EOSTokenID) == 1 {
			return one(o.EOSTokenID[0])
		}
		return list(o.EOSTokenID)
	}
	return map[string]any{
		"num_beams": o.NumBeams, "num_beam_groups": o.NumBeamGroups, "diversity_penalty": o.DiversityPenalty,
		"length_penalty": o.LengthPenalty, "num_return_sequences": o.NumReturnSequences,
		"max_new_tokens": o.MaxNewTokens, "min_length": o.MinLength, "min_new_tokens": o.MinNewTokens,
		"no_repeat_ngram_size": o.NoRepeatNgramSize, "encoder_no_repeat_ngram_size": o.EncoderNoRepeatNgramSize,
		"repetition_penalty": o.RepetitionPenalty, "encoder_repetition_penalty": o.EncoderRepetitionPenalty,
		"forced_bos_token_id": one(o.ForcedBOSTokenID), "forced_eos_token_id": one(o.ForcedEOSTokenID),
		"suppress_tokens": list(o.SuppressTokens), "begin_suppress_tokens": list(o.BeginSuppressTokens),
		"renormalize_logits": o.RenormalizeLogits, "do_sample": o.DoSample, "temperature": o.Temperature,
		"top_k": o.TopK, "top_p": o.TopP, "min_p": o.MinP, "typical_p": o.TypicalP, "output_scores": o.OutputScores,
		"bos_token_id": one(o.BOSTokenID), "pad_token_id": one(o.PadTokenID),
		"decoder_start_token_id": one(o.DecoderStartTokenID),
	}[name]
}

// sameValue compares an option with Hugging Face's value, whose None is this package's 0.
func sameValue(found, want any) bool {
	number := func(v any) (float64, bool) {
		switch v := v.(type) {
		case nil:
			return 0, true
		case int:
			return float64(v), true
		case float32:
			return float64(v), true
		case float64:
			return v, true
		}
		return 0, false
	}
	if _, ok := found.(float64); !ok || want != nil {
		a, okA := number(found)
		b, okB := number(want)
		if okA && okB && found != nil {
			return math.Abs(a-b) < 1e-6
		}
	}
	return reflect.DeepEqual(found, want)
}

// TestFromConfig: the effective options of pairs of files are those which Hugging Face would use.
func TestFromConfig(t *testing.T) {
	var cases []struct {
		Config, Generation json.RawMessage
		Options            map[string]any
		Limit              int
		EncoderDecoder     bool `json:"encoder_decoder"`
	}
	readGolden(t, "configs.json.gz", &cases)
	if len(cases) < 20 {
		t.Fatalf("%d cases, 20 are wanted", len(cases))
	}
	for i, c := range cases {
		generation := c.Generation
		if string(generation) == "null" {
			generation = nil
		}
		o, err := FromConfig(generation, c.Config)
		if err != nil {
			t.Errorf("case %d: %v", i, err)
			continue
		}
		for name, want := range c.Options {
			if found := field(&o, name); !sameValue(found, want) {
				t.Errorf("case %d (%s and %s): %s is %v, want %v", i, c.Config, c.Generation, name, found, want)
			}
		}
		must.Equal(t, o.LengthLimit(7), c.Limit, c.Config, c.Generation)
		must.Equal(t, o.IsEncoderDecoder, c.EncoderDecoder, i)
	}
}

// Hugging Face takes options of config.json in place of those of a generation_config.json that was made from it only
// where they are not the class's own.
func TestFromConfigKnowsOptionsOfClasses(t *testing.T) {
	const generation = `{"_from_model_config": true, "eos_token_id": 2}`
	for _, c := range []struct {
		config string
		ngram  int
		forced bool
	}{
		{`{"model_type": "blenderbot", "encoder_no_repeat_ngram_size": 3, "forced_eos_token_id": 2}`, 0, false},
		{`{"model_type": "blenderbot", "encoder_no_repeat_ngram_size": 3, "forced_eos_token_id": 2, "length_penalty": 0.65}`,
			3, true},
		{`{"model_type": "blenderbot-small", "forced_eos_token_id": 2}`, 0, false},
		{`{"model_type": "plbart", "forced_eos_token_id": 2}`, 0, false},
		{`{"model_type": "mvp", "forced_eos_token_id": 2}`, 0, false},
		{`{"model_type": "pegasus_x", "forced_eos_token_id": 1}`, 0, false},
		{`{"model_type": "fsmt", "forced_eos_token_id": 2, "max_length": 200, "num_beams": 5}`, 0, false},
	} {
		o, err := FromConfig([]byte(generation), []byte(c.config))
		if err != nil {
			t.Errorf("%s: %v", c.config, err)
			continue
		}
		if o.EncoderNoRepeatNgramSize != c.ngram || (o.ForcedEOSTokenID != NoToken) != c.forced {
			t.Errorf("%s: encoder_no_repeat_ngram_size %d, forced_eos_token_id %v; want %d, %t", c.config,
				o.EncoderNoRepeatNgramSize, o.ForcedEOSTokenID, c.ngram, c.forced)
		}
	}
}

// TestMaxLengthOfFiles: a max_length of 20 is a choice since transformers 5.0, whose default is none; before, it is the
// default, and 20 tokens are new.
func TestMaxLengthOfFiles(t *testing.T) {
	for _, c := range []struct {
		generation, config string
		want               int
	}{
		{`{"transformers_version": "4.57.6", "max_length": 20}`, `{}`, 0},
		{`{"transformers_version": "4.57.6", "max_length": 21}`, `{}`, 21},
		{`{"transformers_version": "5.0.0", "max_length": 20}`, `{}`, 20},
		{`{"transformers_version": "5.24.0", "max_length": 20}`, `{}`, 20},
		{`{"max_length": 20}`, `{"transformers_version": "4.57.6"}`, 0},
		{`{"max_length": 20}`, `{}`, 20},
		{`{"transformers_version": "5.24.0"}`, `{}`, 0},
	} {
		o := must.Value(FromConfig([]byte(c.generation), []byte(c.config)))(t)
		must.Equal(t, o.MaxLength, c.want, c.generation, c.config)
	}
}

func TestFromConfigErrors(t *testing.T) {
	for _, c := range []struct{ generation, config, want string }{
		{`{"num_beams": "four"}`, ``, `generation_config.json: num_beams: found "four", a value of type int is needed`},
		{``, `{"early_stopping": "maybe"}`,
			`config.json: early_stopping: found "maybe", one of false, true and "never" is needed`},
		{`{"num_beams": 4`, ``, `generation_config.json: unexpected end of JSON input at byte 15`},
		{`[1]`, ``, `generation_config.json: a JSON object is needed: `},
		{`{"penalty_alpha": 0.6}`, ``,
			`generation_config.json: penalty_alpha is 0.6: this option is not supported; leave it out (supported: `},
		{`{"cache_implementation": "quantized"}`, ``,
			`generation_config.json: cache_implementation is "quantized": this option is not supported`},
		{`{"force_words_ids": [[1]]}`, ``, `generation_config.json: force_words_ids is [[1]]: this option is not supported`},
		{`{"forced_eos_token_id": [1, 2]}`, ``,
			`generation_config.json: forced_eos_token_id: found [1, 2], one token id is needed (several are not supported here)`},
		{`{"eos_token_id": [1, null]}`, ``,
			`generation_config.json: eos_token_id: found [1, null], a token id or a list of token ids is needed`},
		{`{"bad_words_ids": [1]}`, ``,
			`generation_config.json: bad_words_ids: found [1], a list of lists of token ids is needed`},
		{`{"forced_decoder_ids": [[1]]}`, ``,
			`generation_config.json: forced_decoder_ids: found [[1]], a list of [index, token id] is needed`},
		{`{"sequence_bias": {"5": 1}}`, ``,
			`generation_config.json: sequence_bias: found {"5": 1}, a list of [[token ids], bias] is needed`},
		{``, `{"is_encoder_decoder": 1}`, `config.json: is_encoder_decoder: found 1, a value of type bool is needed`},
	} {
		_, err := FromConfig([]byte(c.generation), []byte(c.config))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s and %s: found %v, want %s", c.generation, c.config, err, c.want)
		}
	}
	// Neutral values of what is not supported are no reason to refuse a model.
	if _, err := FromConfig([]byte(
		`{"penalty_alpha": null, "epsilon_cutoff": 0.0, "guidance_scale": 1, "remove_invalid_values": false, "something_else": {}, "use_cache": true, "cache_implementation": "static"}`), nil); err != nil {
		t.Error(err)
	}
}

func TestSet(t *testing.T) {
	o := Default()
	for _, c := range []struct {
		name, value string
		field       func() any
		want        any
	}{
		{"beam", "5", func() any { return o.NumBeams }, 5},
		{"max_gen_length", "140", func() any { return o.MaxLength }, 140},
		{"min_gen_length", "55", func() any { return o.MinLength }, 55},
		{"output_sequence_scores", "true", func() any { return o.OutputScores }, true},
		{"num_beams", "4.0", func() any { return o.NumBeams }, 4},
		{"num_beams", "null", func() any { return o.NumBeams }, 1},
		{"top_k", "null", func() any { return o.TopK }, 0},
		{"length_penalty", " 2 ", func() any { return o.LengthPenalty }, 2.0},
		{"early_stopping", `"never"`, func() any { return o.EarlyStopping }, StopNever},
		{"forced_eos_token_id", "0", func() any { return o.ForcedEOSTokenID }, int32(0)},
		{"forced_eos_token_id", "null", func() any { return o.ForcedEOSTokenID }, NoToken},
		{"eos_token_id", "[3,4]", func() any { return o.EOSTokenID }, []int32{3, 4}},
		{"sequence_bias", "[[[3],1],[[3],2]]", func() any { return o.SequenceBias }, []SequenceBias{{[]int32{3}, 2}}},
		{"seed", "18446744073709551615", func() any { return o.Seed }, uint64(math.MaxUint64)},
	} {
		if err := o.Set(c.name, []byte(c.value)); err != nil {
			t.Errorf("%s = %s: %v", c.name, c.value, err)
		} else if found := c.field(); !reflect.DeepEqual(found, c.want) {
			t.Errorf("%s = %s: found %v, want %v", c.name, c.value, found, c.want)
		}
	}
	for name, want := range map[string]string{
		"beams":        "beams is not an option of the search (supported: ",
		"stop_strings": "stop_strings: found 4, a string or a list of strings is needed",
		"max_time":     `max_time is 4: this option is not supported; leave it out (supported: `,
		"do_sample":    "do_sample: found 4, a value of type bool is needed",
	} {
		if err := o.Set(name, []byte("4")); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: found %v, want %s", name, err, want)
		}
	}
	must.FailExactly(t, o.Set("num_beams", []byte("four")), `num_beams: "four" is not a JSON value`)
	if !slices.IsSorted(names()) || !slices.Contains(names(), "beam") || !slices.Contains(names(), "num_beams") {
		t.Errorf("names: %v", names())
	}
	for _, value := range []string{"false", "true", `"never"`} {
		if err := o.Set("early_stopping", []byte(value)); err != nil || o.EarlyStopping.String() != value {
			t.Errorf("early_stopping = %s: found %s, %v", value, o.EarlyStopping, err)
		}
	}
	// Every option can be turned off.
	for _, name := range names() {
		must.Succeed(t, o.Set(name, []byte("null")), name, "= null")
	}
	want := Default()
	want.TopK = 0
	if !reflect.DeepEqual(o, want) {
		t.Errorf("after null for everything: %+v, want %+v", o, want)
	}
}

// TestRefused: contradictions are one error that names the options.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		options map[string]string
		want    string
	}{
		{map[string]string{"num_beams": "0"}, "num_beams is 0: at least 1 is needed"},
		{map[string]string{"num_beams": "4", "num_beam_groups": "3", "diversity_penalty": "1"},
			"num_beams is 4 and num_beam_groups 3: the beams must divide into the groups"},
		{map[string]string{"num_beams": "4", "num_beam_groups": "2"},
			"num_beam_groups is 2 and diversity_penalty 0: the groups would be identical; set a penalty above 0"},
		{map[string]string{"num_beams": "4", "diversity_penalty": "1"},
			"diversity_penalty is 1 and num_beam_groups 1: a penalty needs at least 2 groups"},
		{map[string]string{"num_beams": "4", "num_beam_groups": "2", "diversity_penalty": "1", "do_sample": "true"},
			"num_beam_groups is 2 and do_sample is on: groups of beams do not sample; drop one of the two"},
		{map[string]string{"num_return_sequences": "2"},
			"num_return_sequences is 2: greedy search has only one; set num_beams or do_sample"},
		{map[string]string{"num_beams": "2", "num_return_sequences": "3"},
			"num_return_sequences is 3 and num_beams 2: there cannot be more sequences than beams"},
		{map[string]string{"do_sample": "true", "temperature": "0"},
			"temperature is 0: a number above 0 is needed (turn do_sample off to take the best token)"},
		{map[string]string{"top_p": "1.5"}, "top_p is 1.5: a number at least 0 and at most 1 is needed"},
		{map[string]string{"repetition_penalty": "0"}, "repetition_penalty is 0: a number above 0 is needed"},
		{map[string]string{"bad_words_ids": "[[1],[]]"}, "bad_words_ids: entry 1 is empty: at least one token id is needed"},
		{map[string]string{"bad_words_ids": "[[-1]]"}, "bad_words_ids: entry 0 has the token -1: token ids are not negative"},
		{map[string]string{"bad_words_ids": "[[99]]"}, "bad_words_ids has the token 99, but the model has 10 logits"},
		{map[string]string{"forced_bos_token_id": "10"}, "forced_bos_token_id has the token 10, but the model has 10 logits"},
		{map[string]string{"max_length": "3"},
			"the prompt has 3 tokens and max_length allows 3 in all: shorten the prompt or set max_new_tokens"},
		{map[string]string{"is_encoder_decoder": "true", "encoder_no_repeat_ngram_size": "2"},
			"encoder_no_repeat_ngram_size is set, but the encoder's input is not made of tokens: leave it out"},
		{map[string]string{"sequence_bias": "[[[10],1]]"}, "sequence_bias has the token 10, but the model has 10 logits"},
	} {
		o := Default()
		for name, value := range c.options {
			must.Succeed(t, o.Set(name, []byte(value)))
		}
		must.FailExactly(t, must.Error(New(o, Input{Prompt: []int32{1, 2, 3}, Vocab: 10})), c.want)
	}
	for _, c := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.EarlyStopping = 9 }, `early_stopping is 9: false, true and "never" are known`},
		{func(o *Options) { o.LengthPenalty = math.NaN() }, "length_penalty is NaN: a finite number is needed"},
		{func(o *Options) { o.SequenceBias = []SequenceBias{{nil, 1}} },
			"sequence_bias: entry 0 is empty: at least one token id is needed"},
		{func(o *Options) { o.SequenceBias = []SequenceBias{{[]int32{1}, float32(math.Inf(1))}} },
			"sequence_bias: entry 0 has the bias +Inf: a number or -Inf is needed"},
		{func(o *Options) { o.ForcedEOSTokenID = -2 }, "forced_eos_token_id is -2: a token id is needed"},
		{func(o *Options) { o.TopP = float32(math.NaN()) }, "top_p is NaN: a number at least 0 and at most 1 is needed"},
	} {
		o := Default()
		c.change(&o)
		must.FailExactly(t, o.Validate(), c.want)
	}
	if _, err := New(Default(), Input{Vocab: 10}); err == nil || !strings.HasPrefix(err.Error(), "the prompt is empty") {
		t.Error(err)
	}
}

func TestDecoderPrompt(t *testing.T) {
	for _, c := range []struct {
		options string
		want    []int32
		err     string
	}{
		{`{"decoder_start_token_id": 2}`, []int32{2}, ""},
		{`{"bos_token_id": 0}`, []int32{0}, ""},
		{`{"decoder_start_token_id": 9, "forced_decoder_ids": [[1, 5], [2, 6]]}`, []int32{9, 5, 6}, ""},
		{`{}`, nil, "decoder_start_token_id and bos_token_id are not set: an encoder-decoder model needs one of them to " +
			"start with"},
		{`{"decoder_start_token_id": 9, "decoder_input_ids": [5, 6]}`, []int32{9, 5, 6}, ""},
		{`{"decoder_start_token_id": 9, "decoder_input_ids": [9, 6]}`, []int32{9, 6}, ""},
		{`{"decoder_start_token_id": 9, "decoder_input_ids": [5], "no_timestamps_token_id": 3}`, nil,
			"decoder_input_ids are set, and the model reads speech: set language and task instead"},
		{`{"decoder_start_token_id": 9, "forced_decoder_ids": [[2, 6]]}`, nil,
			"forced_decoder_ids: entry 0 is for index 2: forced tokens that follow the start token, from index 1 on, are " +
				"supported"},
		{`{"decoder_start_token_id": 9, "forced_decoder_ids": [[1, null]]}`, nil,
			"forced_decoder_ids: the token at index 1 is open (the language, for Whisper): choose one"},
	} {
		o := must.Value(FromConfig([]byte(c.options), nil))(t)
		found, err := o.DecoderPrompt()
		if !slices.Equal(found, c.want) || c.err != "" && (err == nil || err.Error() != c.err) {
			t.Errorf("%s: found %v, %v", c.options, found, err)
		}
	}
}

// TestModelsOfTwo: the options of a model of an image encoder and a decoder are its own, then its decoder's, then
// those of the decoder's class; Donut's prompt is all that its decoder begins with.
func TestModelsOfTwo(t *testing.T) {
	for _, c := range []struct {
		generation, config string
		want               []int32 // prompt
		eos                int32
	}{
		{``, `{"model_type": "vision-encoder-decoder", "decoder": {"model_type": "trocr", "is_encoder_decoder": false}}`,
			[]int32{2, 7}, 2},
		{``,
			`{"model_type": "vision-encoder-decoder", "eos_token_id": null, "decoder": {"model_type": "trocr", "eos_token_id": 5, "decoder_start_token_id": 7}}`, []int32{7}, 5},
		{``,
			`{"model_type": "vision-encoder-decoder", "eos_token_id": 4, "decoder": {"model_type": "trocr", "eos_token_id": 5}}`,
			[]int32{2, 7}, 4},
		{`{"eos_token_id": 3, "decoder_start_token_id": 1}`,
			`{"model_type": "vision-encoder-decoder", "encoder": {"model_type": "donut-swin"}, "decoder": {"model_type": "mbart"}}`, []int32{7}, 3},
	} {
		o := must.Value(FromConfig([]byte(c.generation), []byte(c.config)))(t)
		o.DecoderInputIDs = []int32{7}
		found, err := o.DecoderPrompt()
		if err != nil || !slices.Equal(found, c.want) || !slices.Equal(o.EOSTokenID, []int32{c.eos}) || !o.IsEncoderDecoder ||
			o.Validate() != nil {
			t.Errorf("%s: found %v, ends %v, %v", c.config, found, o.EOSTokenID, err)
		}
	}
	o := Default()
	o.DecoderInputIDs = []int32{7}
	must.Fail(t, o.Validate(), "decoder_input_ids are set, and the model has no encoder")
	o.IsEncoderDecoder, o.DecoderInputIDs = true, []int32{-1}
	must.Fail(t, o.Validate(), "token ids are not negative")
}

// TestSpeechPrompt: the decoder's prompt of Whisper, with what its generate makes of one window.
func TestSpeechPrompt(t *testing.T) {
	const multilingual = `"decoder_start_token_id": 1, "is_multilingual": true, "no_timestamps_token_id": 9,
		"lang_to_id": {"<|en|>": 2, "<|de|>": 3, "<|yue|>": 4}, "task_to_id": {"transcribe": 6, "translate": 5}`
	for _, c := range []struct {
		options, config string
		want            []int32
		err             string
	}{
		{multilingual, "", []int32{1, NoToken, 9}, ""},
		{multilingual + `, "forced_decoder_ids": [[1, null], [2, 6]]`, "", []int32{1, NoToken, 6, 9}, ""},
		{multilingual + `, "forced_decoder_ids": [[1, 3], [2, 5], [3, 9]]`, "", []int32{1, 3, 5, 9}, ""},
		{multilingual + `, "forced_decoder_ids": [[1, 3], [2, 5]], "language": "en"`, "", []int32{1, 2, 6, 9}, ""},
		{multilingual + `, "language": "German", "task": "translate"`, "", []int32{1, 3, 5, 9}, ""},
		{multilingual + `, "language": "<|de|>"`, "", []int32{1, 3, 6, 9}, ""},
		{multilingual + `, "language": "cantonese"`, "", []int32{1, 4, 6, 9}, ""},
		{multilingual + `, "task": "translate"`, "", []int32{1, NoToken, 5, 9}, ""},
		{multilingual + `, "task": "sing"`, "", nil,
			`task is "sing", needed is one of the model's (task_to_id): ["transcribe" "translate"]`},
		{multilingual + `, "language": "klingon"`, "", nil,
			`language is "klingon", needed is one of the model's: <|de|> <|en|> <|yue|>`},
		{`"decoder_start_token_id": 1, "language": "en"`, "", nil,
			`language is "en", and generation_config.json has no lang_to_id: leave it out, or set forced_decoder_ids`},
		{`"decoder_start_token_id": 1, "is_multilingual": false, "no_timestamps_token_id": 9, "forced_decoder_ids": [[1, 9]]`,
			"", []int32{1, 9}, ""},
		{`"decoder_start_token_id": 1, "is_multilingual": false, "language": "en"`, "", nil,
			`language is "en" and task "", and the model is for English only (is_multilingual): leave both out`},
		{`"decoder_start_token_id": 1, "no_timestamps_token_id": 9`,
			`{"model_type": "whisper", "forced_decoder_ids": [[1, 3]]}`, []int32{1, 3, 9}, ""},
		{`"decoder_start_token_id": 1, "language": "en"`, `{"model_type": "t5"}`, []int32{1}, ""},
	} {
		o := must.Value(FromConfig([]byte("{"+c.options+"}"), []byte(c.config)))(t)
		found, err := o.DecoderPrompt()
		if !slices.Equal(found, c.want) || c.err == "" && err != nil || c.err != "" && (err == nil || err.Error() != c.err) {
			t.Errorf("%s: found %v, %v", c.options, found, err)
		}
	}
}

// FuzzFromConfig: whatever the files hold, there is an error or there are options that Set can make too
// and that a search either refuses or ends with.
func FuzzFromConfig(f *testing.F) {
	f.Add([]byte(`{"num_beams": 4, "early_stopping": "never", "eos_token_id": [1, 2], "max_new_tokens": 5}`),
		[]byte(`{"model_type": "bart"}`))
	f.Add([]byte(`{"forced_decoder_ids": [[1, null]], "bad_words_ids": [[3, 4]], "max_new_tokens": 3}`),
		[]byte(`{"model_type": "gpt2", "n_positions": 9}`))
	f.Add([]byte(``), []byte(`{"model_type": "whisper", "suppress_tokens": [-1, 5], "max_length": 6}`))
	f.Add(
		[]byte(
			`{"num_beams": 6, "num_beam_groups": 3, "diversity_penalty": 0.5, "no_repeat_ngram_size": 2, "max_new_tokens": 9}`),
		[]byte(`{}`))
	f.Add(
		[]byte(
			`{"do_sample": true, "num_beams": 2, "top_p": 0.5, "repetition_penalty": 1.5, "sequence_bias": [[[1, 2], 3]], "max_new_tokens": 4}`), []byte(`null`))
	f.Fuzz(func(t *testing.T, generation, config []byte) {
		var o Options
		var err error
		must.CostLittle(t, len(generation)+len(config), func() { o, err = FromConfig(generation, config) })
		if err != nil {
			if !reflect.DeepEqual(o, Default()) {
				t.Fatalf("options beside an error: %+v", o)
			}
			return
		}
		if o.NumBeams > 8 || o.NumReturnSequences > 8 || o.LengthLimit(2) > 12 {
			return // right, and slow
		}
		const vocab = 12
		s, err := New(o, Input{Prompt: []int32{3, 4}, Encoder: []int32{5, 6, 5}, Vocab: vocab})
		if err != nil {
			return
		}
		l := &lane{state: s, model: newHashModel(1, vocab, nil), rows: [][]int32{{3, 4}}}
		var stepper Stepper
		for !s.Done() {
			var logits []float32
			for _, row := range l.rows {
				logits = l.model.logits(logits, row)
			}
			if err := stepper.Step(new(Reference), logits, vocab, []*State{s}); err != nil {
				return // everything was banned
			}
			if s.Rows() > 0 {
				l.follow(t)
			}
		}
		for _, h := range s.Results() {
			if len(h.Tokens) == 0 || len(h.Tokens)+2 > s.Limit() {
				t.Fatalf("%d tokens of at most %d: %s", len(h.Tokens), s.Limit()-2, fmt.Sprint(h.Tokens))
			}
		}
	})
}
