package search

import "fmt"

// Ignored says why an option that was set has no effect beside the others, "" where it has one. The name is one
// that Set takes.
func (o *Options) Ignored(name string) string {
	if full, ok := aliases[name]; ok {
		name = full
	}
	switch name {
	case "temperature", "top_k", "top_p", "min_p", "typical_p", "seed":
		if !o.DoSample {
			return "do_sample is off"
		}
	case "length_penalty", "early_stopping":
		if o.NumBeams == 1 {
			return "num_beams is 1"
		}
	case "max_length":
		if o.MaxNewTokens > 0 {
			return fmt.Sprintf("max_new_tokens is %d", o.MaxNewTokens)
		}
	case "min_length":
		if o.MinNewTokens > 0 {
			return fmt.Sprintf("min_new_tokens is %d", o.MinNewTokens)
		}
	case "decoder_start_token_id", "forced_decoder_ids", "decoder_input_ids":
		if !o.IsEncoderDecoder {
			return "the model has no encoder"
		}
	}
	return ""
}
