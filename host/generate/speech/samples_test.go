package speech

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/internal/must"
)

// saw is a WAV file of 16 bits, one channel.
func saw(rate uint32, samples int) []byte {
	out := binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(36+2*samples))
	out = append(out, "WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00"...)
	out = binary.LittleEndian.AppendUint32(out, rate)
	out = binary.LittleEndian.AppendUint32(out, 2*rate)
	out = append(out, "\x02\x00\x10\x00data"...)
	out = binary.LittleEndian.AppendUint32(out, uint32(2*samples))
	for i := range samples {
		out = binary.LittleEndian.AppendUint16(out, uint16(int16((i*7919%2001-1000)*16)))
	}
	return out
}

// TestSamplesAreHuggingFaces: as Wav2Vec2FeatureExtractor of transformers 4.57.6 prepares them.
func TestSamplesAreHuggingFaces(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "saw.wav")
	must.Succeed(t, os.WriteFile(path, saw(16000, 1000), 0o600))
	for config, want := range map[string][5]float64{
		`{"do_normalize": false, "sampling_rate": 16000}`: {-0.48828125, 0.447265625, 0.40576171875, 0.29638671875, 0.0625},
		`{}`: {-1.736793875694275, 1.576919436454773, 1.4299123287200928, 1.0425053834915161, 0.2140769511461258},
	} {
		s := &Samples{path: ConfigFile, least: 1, most: 1000}
		must.Succeed(t, s.configure([]byte(config)))
		got := must.Value(s.File(path))(t)
		for i, at := range []int{0, 1, 2, 499, 999} {
			if len(got) != 1000 || math.Abs(float64(got[at])-want[i]) > 1e-5 {
				t.Errorf("%s: sample %d of %d is %g, want %g", config, at, len(got), got[at], want[i])
			}
		}
	}
}

func TestSamplesThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	must.Fail(t, must.Error(OpenSamples(dir, 1, 2)), os.ErrNotExist, ConfigFile+": not found")
	for config, want := range map[string]string{
		`{"feature_extractor_type": "WhisperFeatureExtractor"}`: `feature_extractor_type is "WhisperFeatureExtractor", needed Wav2Vec2FeatureExtractor`,
		`{"feature_size": 80}`:   "feature_size is 80, needed 1",
		`{"sampling_rate": 0}`:   "sampling_rate is 0, needed 1 to",
		`{"sampling_rate": "x"}`: "cannot unmarshal",
	} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, ConfigFile), []byte(config), 0o600))
		var d *diagnostic.Error
		if _, err := OpenSamples(dir, 1, 2); !errors.As(err, &d) || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), dir) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
	s := &Samples{path: ConfigFile, rate: 16000, least: 895, most: 32000}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"short.wav": {saw(16000, 894), "a sound of 0.06 seconds, needed 0.06 to 2, which the model reads at once; cut it"},
		"long.wav":  {saw(16000, 32001), "a sound of 2.00 seconds"},
		"slow.wav": {saw(8000, 2000),
			"8000 samples a second, needed 16000 (sampling_rate in preprocessor_config.json); convert it"},
		"text.wav": {[]byte("this is no sound"), "needed is a WAV file"},
	} {
		path := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(path, c.data, 0o600))
		var d *diagnostic.Error
		if _, err := s.File(path); !errors.As(err, &d) || d.Path != path || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
