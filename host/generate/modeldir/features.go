package modeldir

import (
	"encoding/json"
	"fmt"
	"strings"
)

// No speech model reads more: Whisper's have 128 bins and 3,000 frames. No model reads more pixels: Donut's are 2,560
// by 1,920.
const (
	maxBins   = 1024
	maxFrames = 1 << 16
	maxEdge   = 1 << 14
	maxPixels = 1 << 24
)

// Moonshine is the type of models whose encoder reads samples of sound as they are.
const Moonshine = "moonshine"

// Samples of sound that a model may read as they are: 64 seconds of 16 kHz, twice what Moonshine was trained on
// (Jeffries et al. 2024), and so few that its convolutions make a position of them.
const (
	MaxSamples = 64 * 16000
	MinSamples = 127 + 64*(6+3*2)
)

// soundPositions are those that the convolutions of Moonshine's encoder make of samples: widths of 127, 7 and 3,
// steps of 64, 3 and 2.
func soundPositions(samples int64) int64 {
	return (((samples-127)/64+1-7)/3+1-3)/2 + 1
}

// FeatureShape is the shape of what the encoder reads where that is no tokens, or nil: [1, mel bins, frames] of a
// speech model, of which two frames make a position of the encoder; [1, -1] of one that reads as many samples as a
// sound has; [1, channels, height, width] of a model of images.
func (c *Config) FeatureShape() []int64 {
	if c.ModelType == Moonshine {
		return []int64{1, -1}
	}
	if c.ModelType == VisionEncoderDecoder {
		if p := c.pixels(); p != nil {
			return []int64{1, p.Channels, p.Size[0], p.Size[1]}
		}
		return nil
	}
	var speech struct {
		MelBins   int64 `json:"num_mel_bins"`
		Positions int64 `json:"max_source_positions"`
	}
	if err := json.Unmarshal(c.JSON, &speech); err != nil || speech.MelBins <= 0 || speech.Positions <= 0 ||
		speech.MelBins > maxBins || speech.Positions > maxFrames/2 {
		return nil
	}
	return []int64{1, speech.MelBins, 2 * speech.Positions}
}

// pixels is what a model's configuration says of its encoder of images. Where it is silent, it is what classes of
// Transformers have: 3 channels, 224 by 224, patches of 16.
type pixels struct {
	Channels int64   `json:"num_channels"`
	Size     edges   `json:"image_size"`
	Patch    edges   `json:"patch_size"`
	Depths   []int64 // of the stages of an encoder that halves both edges from one to the next
}

// edges are a number, or [height, width].
type edges [2]int64

func (e *edges) UnmarshalJSON(data []byte) error {
	if data[0] == '[' {
		var list []int64
		if err := json.Unmarshal(data, &list); err != nil {
			return err
		}
		if len(list) != 2 {
			return fmt.Errorf("found %d numbers, needed are height and width", len(list))
		}
		*e = edges(list)
		return nil
	}
	if err := json.Unmarshal(data, &e[0]); err != nil {
		return err
	}
	e[1] = e[0]
	return nil
}

// pixels is nil where the configuration says nothing sound.
func (c *Config) pixels() *pixels {
	both := struct{ Encoder pixels }{pixels{Channels: 3, Size: edges{224, 224}, Patch: edges{16, 16}}}
	if json.Unmarshal(c.JSON, &both) != nil {
		return nil
	}
	p := &both.Encoder
	if p.Channels < 1 || p.Channels > 4 || len(p.Depths) > 8 {
		return nil
	}
	for i := range 2 {
		if p.Size[i] < 1 || p.Size[i] > maxEdge || p.Patch[i] < 1 || p.Patch[i] > p.Size[i] {
			return nil
		}
	}
	if p.Size[0]*p.Size[1] > maxPixels {
		return nil
	}
	return p
}

// positions are those of the encoder's output: one a patch, and up to two beside them.
func (p *pixels) positions() int64 {
	stages := max(len(p.Depths)-1, 0)
	return max(1, p.Size[0]/p.Patch[0]>>stages)*max(1, p.Size[1]/p.Patch[1]>>stages) + 2
}

// MakesSound names the class of a model that makes sound of text, "" for others.
func (c *Config) MakesSound() string {
	var names struct {
		Architectures []string `json:"architectures"`
	}
	if json.Unmarshal(c.JSON, &names) == nil {
		for _, name := range names.Architectures {
			if strings.HasSuffix(name, "ForTextToSpeech") || name == "VitsModel" || strings.HasPrefix(name, "Musicgen") {
				return name
			}
		}
	}
	if c.ModelType == "vits" {
		return "VitsModel"
	}
	return ""
}
