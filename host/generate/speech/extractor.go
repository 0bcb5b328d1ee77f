package speech

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/base/npy"
	"github.com/opgraft/graft/host/base/storage"
)

// ConfigFile is the file of a model folder that says how features are computed.
const ConfigFile = "preprocessor_config.json"

// Extractor makes features for one model.
type Extractor struct {
	path    string  // of its configuration
	shape   []int64 // [1, mel bins, frames]
	missing error   // why there are no features of sounds, nil where there are

	bins, rate, fft, hop, samples int
	window                        []float64
	filters                       []filter
}

// Open reads how features are computed for the model of a folder, whose encoder
// takes the given shape, [1, mel bins, frames]. Where the folder does not say
// (preprocessor_config.json is missing) only files of features can be read.
func Open(folder string, shape []int64) (*Extractor, error) {
	e := &Extractor{path: filepath.Join(folder, ConfigFile), shape: shape}
	data, err := storage.ReadRegular(e.path, limit.Config)
	if errors.Is(err, os.ErrNotExist) {
		e.missing = fmt.Errorf("%s: not found; needed is how features are computed from sound, which exporters write "+
			"beside the model", e.path)
		return e, nil
	}
	if err != nil {
		return nil, err
	}
	if err := e.configure(data); err != nil {
		return nil, fmt.Errorf("%s: %w", e.path, err)
	}
	return e, nil
}

// configure takes the values of a preprocessor_config.json, Hugging Face's defaults
// where it is silent.
func (e *Extractor) configure(data []byte) error {
	c := struct {
		Type        string  `json:"feature_extractor_type"`
		Bins        int     `json:"feature_size"`
		Rate        int     `json:"sampling_rate"`
		Hop         int     `json:"hop_length"`
		Seconds     float64 `json:"chunk_length"`
		FFT         int     `json:"n_fft"`
		Padding     float64 `json:"padding_value"`
		PaddingSide string  `json:"padding_side"`
		Dither      float64 `json:"dither"`
	}{Type: "WhisperFeatureExtractor", Bins: 80, Rate: 16000, Hop: 160, Seconds: 30, FFT: 400, PaddingSide: "right"}
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	switch {
	case c.Type != "WhisperFeatureExtractor":
		return fmt.Errorf("feature_extractor_type is %q, supported is WhisperFeatureExtractor; features that were "+
			"computed before can be given as .npy files", c.Type)
	case c.Dither != 0:
		return fmt.Errorf("dither is %g: random noise is not supported; set it to 0", c.Dither)
	case c.Padding != 0 || c.PaddingSide != "right":
		return fmt.Errorf("padding_value is %g and padding_side %q; supported is silence (0) at the right", c.Padding,
			c.PaddingSide)
	case c.Bins < 1 || c.Bins > 1024, c.Rate < 1 || c.Rate > 1<<20, c.Hop < 1, c.FFT < 4 ||
		c.FFT > 1<<13, !(c.Seconds > 0 && c.Seconds*float64(c.Rate) < 1<<24):
		return fmt.Errorf("feature_size %d, sampling_rate %d, hop_length %d, n_fft %d and chunk_length %g are no sizes of "+
			"features", c.Bins, c.Rate, c.Hop, c.FFT, c.Seconds)
	}
	e.bins, e.rate, e.hop, e.fft, e.samples = c.Bins, c.Rate, c.Hop, c.FFT, int(c.Seconds*float64(c.Rate))
	if e.samples <= e.fft/2 {
		return fmt.Errorf("chunk_length of %g seconds is shorter than half of n_fft, %d samples", c.Seconds, c.FFT)
	}
	if frames := int64(e.samples / e.hop); int64(e.bins) != e.shape[1] || frames != e.shape[2] {
		return fmt.Errorf("it makes features of %d mel bins and %d frames, config.json says %d and %d (num_mel_bins, "+
			"twice max_source_positions): they are not of one model", e.bins, frames, e.shape[1], e.shape[2])
	}
	e.window, e.filters = hann(e.fft), melFilters(e.bins, e.fft/2+1, e.rate)
	return nil
}

// Shape is that of features, [1, mel bins, frames].
func (e *Extractor) Shape() []int64 { return e.shape }

// Kind is what is read.
func (e *Extractor) Kind() string { return "sound" }

// File makes the features of a file: of a WAV file's sound, of which what goes
// beyond the length that the model takes is left out, or those in a NumPy file
// (float32, [mel bins, frames]). It is for concurrent use.
func (e *Extractor) File(path string) (values []float32, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := bufio.NewReaderSize(f, 1<<16)
	magic, err := b.Peek(6)
	switch {
	case string(magic) == npy.Magic:
		values, err = readNPY(b, e.shape)
	case len(magic) >= 4 && string(magic[:4]) == "RIFF" && e.missing != nil:
		return nil, e.missing
	case len(magic) >= 4 && string(magic[:4]) == "RIFF":
		var s *Sound
		if s, err = ReadWAV(b, e.samples/e.rate+1); err == nil {
			values, err = e.Features(s)
		}
	case err != nil && len(magic) == 0:
		err = fmt.Errorf("it cannot be read, or is empty: %w", err)
	default:
		err = fmt.Errorf("it begins with %q; needed is a WAV file or a NumPy file of features: convert it, as with ffmpeg "+
			"-i IN -ar 16000 -ac 1 OUT.wav", magic)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return values, nil
}
