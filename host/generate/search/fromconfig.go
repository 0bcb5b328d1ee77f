package search

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// classDefaults are the values that a model's class has where its config.json is silent: all classes of Transformers
// 4.57.6 that have options of the search of their own, and others.
var classDefaults = map[string]map[string]string{
	"gpt2":     {"bos_token_id": "50256", "eos_token_id": "50256", "max_position_embeddings": "1024"},
	"gpt_neo":  {"bos_token_id": "50256", "eos_token_id": "50256", "max_position_embeddings": "2048"},
	"gptj":     {"bos_token_id": "50256", "eos_token_id": "50256", "max_position_embeddings": "2048"},
	"gpt_neox": {"bos_token_id": "0", "eos_token_id": "2", "max_position_embeddings": "2048"},
	"opt":      {"bos_token_id": "2", "eos_token_id": "2", "pad_token_id": "1", "max_position_embeddings": "2048"},
	"llama":    {"bos_token_id": "1", "eos_token_id": "2", "max_position_embeddings": "2048"},
	"mistral":  {"bos_token_id": "1", "eos_token_id": "2", "max_position_embeddings": "131072"},
	"qwen2":    {"max_position_embeddings": "32768"},
	"gemma":    {"bos_token_id": "2", "eos_token_id": "1", "pad_token_id": "0", "max_position_embeddings": "8192"},
	"bart": {"forced_eos_token_id": "2", "bos_token_id": "0", "eos_token_id": "2", "pad_token_id": "1",
		"decoder_start_token_id": "2", "is_encoder_decoder": "true", "max_position_embeddings": "1024"},
	"mbart": {"forced_eos_token_id": "2", "bos_token_id": "0", "eos_token_id": "2", "pad_token_id": "1",
		"is_encoder_decoder": "true", "max_position_embeddings": "1024"},
	"marian": {"forced_eos_token_id": "0", "eos_token_id": "0", "pad_token_id": "58100",
		"decoder_start_token_id": "58100", "is_encoder_decoder": "true", "max_position_embeddings": "1024"},
	"pegasus": {"forced_eos_token_id": "1", "eos_token_id": "1", "pad_token_id": "0",
		"decoder_start_token_id": "0", "is_encoder_decoder": "true", "max_position_embeddings": "1024"},
	"pegasus_x": {"forced_eos_token_id": "1", "eos_token_id": "1", "pad_token_id": "0",
		"decoder_start_token_id": "0", "is_encoder_decoder": "true"},
	"plbart": {"forced_eos_token_id": "2", "bos_token_id": "0", "eos_token_id": "2", "pad_token_id": "1",
		"is_encoder_decoder": "true", "max_position_embeddings": "1024"},
	"mvp": {"forced_eos_token_id": "2", "bos_token_id": "0", "eos_token_id": "2", "pad_token_id": "1",
		"decoder_start_token_id": "2", "is_encoder_decoder": "true", "max_position_embeddings": "1024"},
	"fsmt": {"forced_eos_token_id": "2", "max_length": "200", "num_beams": "5", "is_encoder_decoder": "true"},
	"blenderbot": {"encoder_no_repeat_ngram_size": "3", "forced_eos_token_id": "2", "bos_token_id": "1",
		"eos_token_id": "2", "pad_token_id": "0", "decoder_start_token_id": "1", "is_encoder_decoder": "true",
		"max_position_embeddings": "128"},
	"blenderbot-small": {"forced_eos_token_id": "2", "bos_token_id": "1", "eos_token_id": "2", "pad_token_id": "0",
		"decoder_start_token_id": "1", "is_encoder_decoder": "true", "max_position_embeddings": "512"},
	"bigbird_pegasus": {"bos_token_id": "2", "eos_token_id": "1", "pad_token_id": "0", "decoder_start_token_id": "2",
		"is_encoder_decoder": "true", "max_position_embeddings": "4096"},
	"led": {"bos_token_id": "0", "eos_token_id": "2", "pad_token_id": "1", "decoder_start_token_id": "2",
		"is_encoder_decoder": "true"},
	"m2m_100": {"bos_token_id": "0", "eos_token_id": "2", "pad_token_id": "1", "decoder_start_token_id": "2",
		"is_encoder_decoder": "true", "max_position_embeddings": "1024"},
	"t5": {"eos_token_id": "1", "pad_token_id": "0", "is_encoder_decoder": "true"},
	"mt5": {"eos_token_id": "1", "pad_token_id": "0", "decoder_start_token_id": "0",
		"is_encoder_decoder": "true"},
	"trocr": {"bos_token_id": "0", "eos_token_id": "2", "pad_token_id": "1", "decoder_start_token_id": "2",
		"max_position_embeddings": "512"},
	"whisper": {"begin_suppress_tokens": "[220,50256]", "bos_token_id": "50256", "eos_token_id": "50256",
		"pad_token_id": "50256", "decoder_start_token_id": "50257", "is_encoder_decoder": "true"},
	"prophetnet": {"bos_token_id": "1", "eos_token_id": "2", "pad_token_id": "0", "decoder_start_token_id": "0",
		"is_encoder_decoder": "true", "max_position_embeddings": "512"},
}

// configDefaults are the options which a config.json may hold, with the values that say nothing.
var configDefaults = map[string]string{
	"max_length": "20", "min_length": "0", "do_sample": "false", "early_stopping": "false",
	"num_beams": "1", "num_beam_groups": "1", "diversity_penalty": "0", "temperature": "1",
	"top_k": "50", "top_p": "1", "typical_p": "1", "repetition_penalty": "1",
	"length_penalty": "1", "no_repeat_ngram_size": "0", "encoder_no_repeat_ngram_size": "0",
	"bad_words_ids": "null", "num_return_sequences": "1", "output_scores": "false",
	"forced_bos_token_id": "null", "forced_eos_token_id": "null",
	"remove_invalid_values": "false", "exponential_decay_length_penalty": "null",
	"suppress_tokens": "null", "begin_suppress_tokens": "null",
}

// modelFields are read from config.json in any case: they say what the model is.
var modelFields = []string{"is_encoder_decoder", "max_position_embeddings"}

// speechFields mean something to speech models alone.
var speechFields = []string{"language", "task", "lang_to_id", "task_to_id", "no_timestamps_token_id", "is_multilingual"}

// isSpeech says whether a config.json is that of a speech model that is prompted with its language.
func isSpeech(conf map[string]json.RawMessage) bool { return string(conf["model_type"]) == `"whisper"` }

// FromConfig reads generation_config.json and config.json (either may be empty) as Hugging Face does:
// the first has the options of the search, and config.json has them only where there is no first,
// or where the first was made from it (_from_model_config) and config.json has options that are not
// the class's own. Fields that are not options of the search are passed over; an option that is set
// and not supported is an error that names it.
func FromConfig(generation, config []byte) (Options, error) {
	o := Default()
	const generationName, configName = "generation_config.json", "config.json"
	gen, err := readObject(generationName, generation)
	if err != nil {
		return o, err
	}
	conf, err := readObject(configName, config)
	if err != nil {
		return o, err
	}
	conf = withClassDefaults(conf)
	source, name := gen, generationName
	if gen == nil || string(gen["_from_model_config"]) == "true" && holdsOptions(conf) {
		source, name = conf, configName
	}
	for _, field := range slices.Sorted(maps.Keys(source)) {
		_, known := setters()[field]
		_, refused := unsupported[field]
		switch {
		case !known && !refused, slices.Contains(modelFields, field), field == "seed":
			continue
		case slices.Contains(speechFields, field) && conf != nil && !isSpeech(conf):
			continue
		case name == configName && isNull(source[field]):
			continue // in config.json null is: not chosen
		}
		if err := o.Set(field, source[field]); err != nil {
			return Default(), fmt.Errorf("%s: %w", name, err)
		}
	}
	if value, ok := conf["forced_decoder_ids"]; ok && o.ForcedDecoderIDs == nil && isSpeech(conf) {
		if err := o.Set("forced_decoder_ids", value); err != nil {
			return Default(), fmt.Errorf("%s: %w", configName, err)
		}
	}
	for _, field := range modelFields {
		if value, ok := conf[field]; ok {
			if err := o.Set(field, value); err != nil {
				return Default(), fmt.Errorf("%s: %w", configName, err)
			}
		}
	}
	o.WholePrompt = beginsWithPrompt(conf)
	o.LateBias = writtenBefore(5, 18, gen, conf)
	// Before transformers 5.0 this was the default, and meant: not chosen.
	if o.MaxLength == 20 && writtenBefore(5, 0, gen, conf) {
		o.MaxLength = 0
	}
	return o, nil
}

// writtenBefore says whether the first file that names a version of transformers names one before major.minor.
func writtenBefore(major, minor int, files ...map[string]json.RawMessage) bool {
	for _, f := range files {
		var version string
		var found [2]int
		if json.Unmarshal(f["transformers_version"], &version) != nil {
			continue
		}
		if n, _ := fmt.Sscanf(version, "%d.%d", &found[0], &found[1]); n == 2 {
			return slices.Compare(found[:], []int{major, minor}) < 0
		}
	}
	return false
}

// withClassDefaults adds what the model's class has, and gives n_positions its general name.
func withClassDefaults(conf map[string]json.RawMessage) map[string]json.RawMessage {
	if conf == nil {
		return nil
	}
	var kind string
	if json.Unmarshal(conf["model_type"], &kind) != nil {
		return conf
	}
	if kind == "vision-encoder-decoder" {
		return withDecoder(conf)
	}
	full := map[string]json.RawMessage{}
	for field, value := range classDefaults[kind] {
		full[field] = json.RawMessage(value)
	}
	maps.Copy(full, conf)
	switch kind {
	case "gpt2", "gptj", "codegen", "gpt_bigcode":
		if n, ok := conf["n_positions"]; ok {
			full["max_position_embeddings"] = n
		}
	}
	return full
}

// withDecoder adds what the decoder of a model of two says where the model itself does not.
func withDecoder(conf map[string]json.RawMessage) map[string]json.RawMessage {
	var decoder map[string]json.RawMessage
	if json.Unmarshal(conf["decoder"], &decoder) != nil {
		return conf
	}
	full := withClassDefaults(decoder)
	if full == nil {
		return conf
	}
	for field, value := range conf {
		if !isNull(value) {
			full[field] = value
		}
	}
	full["is_encoder_decoder"] = json.RawMessage("true")
	return full
}

// beginsWithPrompt says whether what a model's decoder is given to begin with is all that it begins with, as Donut's
// is.
func beginsWithPrompt(conf map[string]json.RawMessage) bool {
	var encoder struct {
		Type string `json:"model_type"`
	}
	return string(conf["model_type"]) == `"vision-encoder-decoder"` && json.Unmarshal(conf["encoder"], &encoder) == nil &&
		strings.Contains(encoder.Type, "donut")
}

// holdsOptions says whether a config.json has options of the search that are not its class's own.
func holdsOptions(conf map[string]json.RawMessage) bool {
	var kind string
	_ = json.Unmarshal(conf["model_type"], &kind) // absent or of another type: no class
	for field, neutral := range configDefaults {
		value, ok := conf[field]
		if !ok || string(value) == "null" {
			continue
		}
		if own, ok := classDefaults[kind][field]; ok {
			neutral = own
		}
		if !sameJSON(value, []byte(neutral)) {
			return true
		}
	}
	return false
}

// sameJSON compares two values, whatever their spelling.
func sameJSON(a, b []byte) bool {
	var v, w any
	if json.Unmarshal(a, &v) != nil || json.Unmarshal(b, &w) != nil {
		return false
	}
	x, errX := json.Marshal(v)
	y, errY := json.Marshal(w)
	return errX == nil && errY == nil && string(x) == string(y)
}
