package modeldir

import "encoding/json"

// No speech model reads more: Whisper's have 128 bins and 3,000 frames.
const (
	maxBins   = 1024
	maxFrames = 1 << 16
)

// FeatureShape is the shape of what the encoder of a speech model reads, [1, mel
// bins, frames], or nil where the encoder reads tokens. Two frames make a position
// of the encoder.
func (c *Config) FeatureShape() []int64 {
	var speech struct {
		MelBins   int64 `json:"num_mel_bins"`
		Positions int64 `json:"max_source_positions"`
	}
	if err := json.Unmarshal(c.JSON, &speech); err != nil || speech.MelBins <= 0 || speech.Positions <= 0 || speech.MelBins > maxBins || speech.Positions > maxFrames/2 {
		return nil
	}
	return []int64{1, speech.MelBins, 2 * speech.Positions}
}
