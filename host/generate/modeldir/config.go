package modeldir

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/generate/search"
)

// Config is what generation needs of a model's config.json.
type Config struct {
	JSON      []byte // the file, or what a genai_config.json says in its words
	ModelType string // such as "bart"
	Vocab     int    // width of the logits
	Inputs    int    // tokens that may be fed
	Positions int64  // the longest sequence of the decoder
	// EncoderPositions is the longest input of the encoder.
	EncoderPositions int64
}

// VisionEncoderDecoder is the type of models of an encoder of pixels and a decoder, of any types.
const VisionEncoderDecoder = "vision-encoder-decoder"

// sizes are those of a config.json.
type sizes struct {
	ModelType             string `json:"model_type"`
	VocabSize             int    `json:"vocab_size"`
	MaxPositionEmbeddings int64  `json:"max_position_embeddings"`
	NPositions            int64  `json:"n_positions"`
	MaxSeqLen             int64  `json:"max_seq_len"`
	MaxTargetPositions    int64  `json:"max_target_positions"`
	MaxSourcePositions    int64  `json:"max_source_positions"`
	MaxDecoderPositions   int64  `json:"max_decoder_position_embeddings"`
	MaxEncoderPositions   int64  `json:"max_encoder_position_embeddings"`
	RelativeBuckets       int    `json:"relative_attention_num_buckets"`
	PadToken              int64  `json:"pad_token_id"`
}

// The types of models that predict in the place of a placeholder after the last token, which takes a position.
const (
	ProphetNet = "prophetnet"
	UniLM      = "unilm"
)

// unbounded stands for the positions of models that set no limit.
const unbounded = 1 << 20

// ReadConfig reads a folder's config.json, or, where there is none, its genai_config.json.
func ReadConfig(folder string) (*Config, error) {
	data, path, err := readCheckpoint(folder)
	if err != nil {
		return nil, err
	}
	var c sizes
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if c.ModelType == VisionEncoderDecoder { // its sizes are those of the two models that it holds
		both := struct{ Decoder sizes }{}
		if err := json.Unmarshal(data, &both); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		c = both.Decoder
		c.ModelType = VisionEncoderDecoder
	}
	if c.VocabSize <= 0 || c.VocabSize > limit.Tokens {
		return nil, fmt.Errorf("%s: vocab_size is %d, needed is the number of tokens, at most %d", path, c.VocabSize,
			limit.Tokens)
	}
	out := &Config{JSON: data, ModelType: c.ModelType, Vocab: c.VocabSize, Inputs: c.VocabSize, Positions: unbounded}
	for _, n := range []int64{c.MaxTargetPositions, c.MaxDecoderPositions, c.MaxPositionEmbeddings, c.NPositions,
		c.MaxSeqLen} {
		// n_positions of models with relative positions is the length they were trained at.
		if n > 0 && c.RelativeBuckets == 0 {
			out.Positions = min(n, limit.Tokens)
			break
		}
	}
	out.EncoderPositions = out.Positions
	if n := cmp.Or(c.MaxSourcePositions, c.MaxEncoderPositions); n > 0 {
		out.EncoderPositions = min(n, limit.Tokens)
	}
	switch c.ModelType {
	case ProphetNet: // the first token stands after the position of padding
		first := min(max(c.PadToken, 0), out.Positions) + 1
		out.EncoderPositions, out.Positions = max(1, out.Positions-first), max(1, out.Positions-first-1)
	case UniLM:
		out.Positions = max(1, out.Positions-1)
		out.EncoderPositions = out.Positions
	}
	if c.ModelType == Moonshine {
		out.EncoderPositions = soundPositions(MaxSamples)
	}
	if c.ModelType == VisionEncoderDecoder {
		p := out.pixels()
		if p == nil {
			return nil, &diagnostic.Error{Path: path,
				Found:  "its encoder has no sizes of images that a model may have (image_size, patch_size, num_channels)",
				Needed: fmt.Sprintf("edges of at most %d, %d pixels in all, and 1 to 4 channels", maxEdge, maxPixels)}
		}
		out.EncoderPositions = p.positions()
	}
	return out, nil
}

// CheckTokens reports a token that the model's embedding has no row for.
func (c *Config) CheckTokens(lists ...[]int32) error {
	for _, list := range lists {
		for i, t := range list {
			if t < 0 || int(t) >= c.Inputs {
				return fmt.Errorf("token %d is %d, the model knows 0 to %d", i, t, c.Inputs-1)
			}
		}
	}
	return nil
}

// DefaultPositions bounds the sequences of models that allow more.
const DefaultPositions = 4096

// InputLimit is the maximum number of tokens that an input may have with a decoder of that many
// positions: the encoder's, or those of a prompt that leave room for what is
// to follow it.
func (c *Config) InputLimit(o search.Options, encoder bool, positions int64) int {
	if encoder {
		return int(min(c.EncoderPositions, unbounded))
	}
	room := int(positions) + 1 // the last token is never fed
	if o.MaxNewTokens > 0 {
		return max(1, room-o.MaxNewTokens)
	}
	return max(1, min(room, o.LengthLimit(1))-1)
}

// CheckLimit reports a sequence that may outgrow the decoder's positions.
func CheckLimit(limit int, positions int64) error {
	if int64(limit)-1 > positions { // the last token is never fed
		return fmt.Errorf("it may grow to %d tokens, and the model has %d positions: shorten it, or lower max_length or "+
			"max_new_tokens", limit, positions)
	}
	return nil
}
