package speech

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/base/storage"
)

// Samples makes of recorded speech what an encoder of samples reads, as Hugging Face's Wav2Vec2FeatureExtractor does.
type Samples struct {
	path        string // of its configuration
	rate        int
	normalize   bool
	least, most int
}

// OpenSamples reads how samples are prepared for the model of a folder, which takes so many of them. Errors are of type
// [*diagnostic.Error].
func OpenSamples(folder string, least, most int) (*Samples, error) {
	s := &Samples{path: filepath.Join(folder, ConfigFile), least: least, most: most}
	data, err := storage.ReadRegular(s.path, limit.Config)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &diagnostic.Error{Path: s.path, Found: "not found",
			Needed: "how sound is prepared, which exporters write beside the model", Cause: err}
	}
	if err != nil {
		return nil, err
	}
	return s, s.configure(data)
}

// configure takes the values of a preprocessor_config.json, Hugging Face's defaults where it is silent.
func (s *Samples) configure(data []byte) error {
	c := struct {
		Type      string `json:"feature_extractor_type"`
		Size      int    `json:"feature_size"`
		Rate      int    `json:"sampling_rate"`
		Normalize bool   `json:"do_normalize"`
	}{Type: "Wav2Vec2FeatureExtractor", Size: 1, Rate: 16000, Normalize: true}
	refused := func(found, needed string) error {
		return &diagnostic.Error{Path: s.path, Found: found, Needed: needed}
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return &diagnostic.Error{Path: s.path, Found: err.Error(), Cause: err}
	}
	switch {
	case c.Type != "Wav2Vec2FeatureExtractor":
		return refused(fmt.Sprintf("feature_extractor_type is %q", diagnostic.Clip(c.Type)), "Wav2Vec2FeatureExtractor")
	case c.Size != 1:
		return refused(fmt.Sprintf("feature_size is %d", c.Size), "1, a sample")
	case c.Rate < 1 || c.Rate > 1<<20:
		return refused(fmt.Sprintf("sampling_rate is %d", c.Rate), fmt.Sprintf("1 to %d", 1<<20))
	}
	s.rate, s.normalize = c.Rate, c.Normalize
	return nil
}

// Shape is that of samples, [1, -1]: as many as the file has.
func (s *Samples) Shape() []int64 { return []int64{1, -1} }

// Kind is what is read.
func (s *Samples) Kind() string { return "sound" }

// File reads a WAV file. It is for concurrent use. Errors are of type [*diagnostic.Error] or about a file that cannot
// be read.
func (s *Samples) File(path string) ([]float32, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sound, err := ReadWAV(bufio.NewReaderSize(f, 1<<16), s.most/s.rate+1)
	if err != nil {
		return nil, &diagnostic.Error{Path: path, Found: err.Error(), Cause: err,
			Fix: fmt.Sprintf("convert it, as with ffmpeg -i IN -ar %d -ac 1 OUT.wav", s.rate)}
	}
	if sound.Rate != s.rate {
		return nil, &diagnostic.Error{Path: path, Found: fmt.Sprintf("%d samples a second", sound.Rate),
			Needed: fmt.Sprintf("%d (sampling_rate in %s)", s.rate, ConfigFile),
			Fix:    fmt.Sprintf("convert it, as with ffmpeg -i IN -ar %d -ac 1 OUT.wav", s.rate)}
	}
	if n := len(sound.Samples); n < s.least || n > s.most {
		return nil, &diagnostic.Error{Path: path, Found: fmt.Sprintf("a sound of %.2f seconds", float64(n)/float64(s.rate)),
			Fix: "cut it into parts, at pauses",
			Needed: fmt.Sprintf("%.2f to %g, which the model reads at once", float64(s.least)/float64(s.rate),
				float64(s.most)/float64(s.rate))}
	}
	if s.normalize {
		normalize(sound.Samples)
	}
	return sound.Samples, nil
}

// normalize moves samples to a mean of 0 and a variance of 1.
func normalize(samples []float32) {
	mean, variance := 0.0, 0.0
	for _, v := range samples {
		mean += float64(v) / float64(len(samples))
	}
	for _, v := range samples {
		variance += (float64(v) - mean) * (float64(v) - mean) / float64(len(samples))
	}
	for i, v := range samples {
		samples[i] = float32((float64(v) - mean) / math.Sqrt(variance+1e-7))
	}
}
