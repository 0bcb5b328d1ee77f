package speech

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// sample is one case of testdata/make.py.
type sample struct {
	Name    string          `json:"name"`
	Rate    int             `json:"rate"`
	Samples int             `json:"samples"`
	Config  json.RawMessage `json:"config"`
	Frames  int             `json:"frames"`
	Kept    []int           `json:"kept"` // frames that testdata holds
}

// shape is that of the case's features.
func (s sample) shape(t *testing.T) []int64 {
	t.Helper()
	bins := struct {
		Size int64 `json:"feature_size"`
	}{80}
	must.Succeed(t, json.Unmarshal(s.Config, &bins))
	return []int64{1, bins.Size, int64(s.Frames)}
}

func samples(t *testing.T) []sample {
	t.Helper()
	data := must.Value(os.ReadFile("testdata/index.json"))(t)
	var index struct {
		Cases []sample `json:"cases"`
	}
	must.Succeed(t, json.Unmarshal(data, &index))
	if len(index.Cases) == 0 {
		t.Fatal("testdata/index.json has no cases")
	}
	return index.Cases
}

func unpacked(t *testing.T, name string) []byte {
	t.Helper()
	f := must.Value(os.Open(filepath.Join("testdata", name)))(t)
	defer f.Close()
	z := must.Value(gzip.NewReader(f))(t)
	data := must.Value(io.ReadAll(z))(t)
	return data
}

// written puts files into a new folder.
func written(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	return dir
}

// Features are those of Hugging Face's extractor, which computes them in float32
// and is itself within 1e-5 of the same in float64.
func TestFeaturesAreHuggingFaces(t *testing.T) {
	for _, s := range samples(t) {
		t.Run(s.Name, func(t *testing.T) {
			dir := written(t, map[string][]byte{ConfigFile: s.Config, "sound": unpacked(t, s.Name+".wav.gz")})
			e := must.Value(Open(dir, s.shape(t)))(t)
			got := must.Value(e.File(filepath.Join(dir, "sound")))(t)
			bins := int(e.Shape()[1])
			want := unpacked(t, s.Name+".features.gz")
			if len(got) != bins*s.Frames || len(want) != 4*bins*len(s.Kept) {
				t.Fatalf("%d features and %d bytes expected of %d frames", len(got), len(want), len(s.Kept))
			}
			worst := 0.0
			for b := range bins {
				for i, frame := range s.Kept {
					w := math.Float32frombits(binary.LittleEndian.Uint32(want[4*(b*len(s.Kept)+i):]))
					worst = max(worst, math.Abs(float64(w-got[b*s.Frames+frame])))
				}
			}
			t.Logf("at most %.1e away", worst)
			if worst > 1e-5 {
				t.Errorf("a feature is %g away, at most 1e-5 may be", worst)
			}
		})
	}
}

// What lies after the length that the model takes changes nothing.
func TestLongSoundsAreCut(t *testing.T) {
	config := []byte(`{"feature_size": 16, "hop_length": 133, "chunk_length": 1}`)
	e := must.Value(Open(written(t, map[string][]byte{ConfigFile: config}), []int64{1, 16, 120}))(t)
	long := &Sound{Rate: 16000, Samples: make([]float32, 40000)}
	for i := range long.Samples {
		long.Samples[i] = float32(math.Sin(float64(i*i) / 3e5))
	}
	a := must.Value(e.Features(long))(t)
	b := must.Value(e.Features(&Sound{Rate: 16000, Samples: long.Samples[:16000]}))(t)
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("feature %d is %g, cut before %g", i, a[i], b[i])
		}
	}
}

func TestConfigurationsAreChecked(t *testing.T) {
	for _, c := range []struct{ config, want string }{
		{`{"feature_extractor_type": "Wav2Vec2FeatureExtractor"}`,
			`feature_extractor_type is "Wav2Vec2FeatureExtractor", supported is WhisperFeatureExtractor`},
		{`{"feature_size": 128}`, "features of 128 mel bins and 3000 frames, config.json says 80 and 3000"},
		{`{"chunk_length": 15}`, "features of 80 mel bins and 1500 frames"},
		{`{"dither": 0.1}`, "dither is 0.1"},
		{`{"padding_side": "left"}`, `padding_side "left"; supported is silence (0) at the right`},
		{`{"hop_length": 0}`, "hop_length 0"},
		{`{"chunk_length": 0.01}`, "chunk_length of 0.01 seconds is shorter than half of n_fft"},
		{`{"n_fft": "x"}`, "n_fft"},
	} {
		_, err := Open(written(t, map[string][]byte{ConfigFile: []byte(c.config)}), []int64{1, 80, 3000})
		must.Fail(t, err, c.want, ConfigFile)
	}
}

// npyOf is a NumPy file as numpy.save writes it.
func npyOf(descr, order, shape string, values []float32) []byte {
	head := "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }"
	head += strings.Repeat(" ", 118-len(head)) + "\n"
	out := append([]byte("\x93NUMPY\x01\x00"), byte(len(head)), 0)
	out = append(out, head...)
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}

func TestFeaturesFromNumPy(t *testing.T) {
	e := must.Value(Open(t.TempDir(), []int64{1, 2, 3}))(t)
	values := []float32{1, 2, 3, 4, 5, 6}
	for _, c := range []struct {
		data []byte
		want string // "": read
	}{
		{npyOf("<f4", "False", "(2, 3)", values), ""},
		{npyOf("<f4", "False", "(1, 2, 3)", values), ""},
		{npyOf("<f8", "False", "(2, 3)", values), "numbers of type <f8"},
		{npyOf("<f4", "True", "(2, 3)", []float32{1, 4, 2, 5, 3, 6}), ""},
		{npyOf("<f4", "True", "(1, 2, 3)", []float32{1, 4, 2, 5, 3, 6}), ""},
		{npyOf("<f4", "False", "(3, 2)", values), "has the shape [3 2], needed is [2 3], mel bins and frames"},
		{npyOf("<f4", "False", "(2, 3)", values[:5]), "ends after 20 of 24 bytes"},
		{npyOf("<f4", "False", "(2, 3)", []float32{1, 2, 3, 4, float32(math.NaN()), 6}), "feature 1 of bin 1 is NaN"},
		{npyOf("<f4", "False", "(2, x)", values), "shape (2, x) is not read"},
		{[]byte("\x93NUMPY\x01\x00\xff"), "ends in its head"},
		{[]byte("fLaC and more"), `begins with "fLaC a"; needed is a WAV file`},
		{nil, "it cannot be read, or is empty"},
		{[]byte("RIFF....WAVE"), ConfigFile + ": not found; needed is how features are computed"},
	} {
		dir := written(t, map[string][]byte{"features": c.data})
		got, err := e.File(filepath.Join(dir, "features"))
		if c.want != "" {
			must.Fail(t, err, c.want)
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.data[:20], err)
			continue
		}
		for i, v := range values {
			must.Equal(t, got[i], v, i)
		}
	}
}

func TestSoundsThatAreRefused(t *testing.T) {
	good := unpacked(t, "pcm16.wav.gz")
	format := func(change func(b []byte)) []byte {
		b := bytes.Clone(good)
		change(b[20:]) // after RIFF, size, WAVE, "fmt " and its size
		return b
	}
	for _, c := range []struct {
		data []byte
		want string
	}{
		{good[:len(good)-100], "it was cut short"},
		{good[:30], "ends in its format"},
		{good[:12], "has no samples (chunk data)"},
		{append(bytes.Clone(good[:12]), good[36:]...), "come before their format"},
		{[]byte("OggS and much more"), "needed is a WAV file"},
		{format(func(b []byte) { b[0] = 6 }), "samples of kind 6 with 16 bits"},
		{format(func(b []byte) { b[14] = 12 }), "samples of kind 1 with 12 bits"},
		{format(func(b []byte) { b[2] = 0 }), "has 0 channels"},
	} {
		must.Fail(t, must.Error(ReadWAV(bytes.NewReader(c.data), 0)), c.want)
	}
	e := must.Value(Open(written(t, map[string][]byte{ConfigFile: []byte(`{}`)}), []int64{1, 80, 3000}))(t)
	if _, err := e.Features(&Sound{Rate: 44100, Samples: make([]float32, 100)}); err == nil ||
		!strings.Contains(err.Error(),
			"the sound has 44100 samples a second, needed are 16000 (sampling_rate in preprocessor_config.json): convert it") {
		t.Errorf("%v", err)
	}
}

// A head that does not know how many samples follow, as programs write to a pipe.
func TestSamplesToTheEnd(t *testing.T) {
	good := unpacked(t, "pcm16.wav.gz")
	at := bytes.Index(good, []byte("data"))
	for _, size := range []uint32{0, math.MaxUint32} {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint32(b[at+4:], size)
		s, err := ReadWAV(bytes.NewReader(b), 0)
		if err != nil || len(s.Samples) != 11000 || s.Rate != 16000 {
			t.Errorf("size %d: %v", size, err)
		}
	}
}

func FuzzReadWAV(f *testing.F) {
	for _, b := range [][]byte{nil,
		[]byte("RIFF\x00\x00\x00\x00WAVEfmt " +
			"\x10\x00\x00\x00\x01\x00\x01\x00\x80\x3e\x00\x00\x00\x7d\x00\x00\x02\x00\x10\x00data\x04\x00\x00\x00\x01\x02\x03\x04")} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var s *Sound
		var err error
		must.CostLittle(t, len(data), func() { s, err = ReadWAV(bytes.NewReader(data), 1) })
		if err != nil {
			return
		}
		if s.Rate <= 0 || len(s.Samples) == 0 || len(s.Samples) > len(data) {
			t.Errorf("%d samples at %d a second of %d bytes", len(s.Samples), s.Rate, len(data))
		}
	})
}

func FuzzReadNPY(f *testing.F) {
	f.Add(npyOf("<f4", "False", "(2, 3)", []float32{1, 2, 3, 4, 5, 6}))
	f.Fuzz(func(t *testing.T, data []byte) {
		must.CostLittle(t, len(data), func() {
			if v, err := readNPY(bytes.NewReader(data), []int64{1, 2, 3}); err == nil && len(v) != 6 {
				t.Errorf("%d values of 6", len(v))
			}
		})
	})
}

// FuzzConfigure: no preprocessor_config.json makes features that take more than a second of sound should.
func FuzzConfigure(f *testing.F) {
	for _, c := range []string{`{}`,
		`{"feature_size": 1, "sampling_rate": 1048576, "hop_length": 1000000, "chunk_length": 2, "n_fft": 65536}`,
		`{"feature_size": 2, "hop_length": 1, "chunk_length": 3599, "n_fft": 4}`} {
		f.Add([]byte(c))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		must.CostLittle(t, len(data), func() {
			e := &Extractor{shape: []int64{1, 2, 3}}
			if err := e.configure(data); err == nil && (e.samples <= 0 || e.samples > 1<<24 || e.samples/e.hop != 3) {
				t.Errorf("found %d samples, a frame of %d", e.samples, e.hop)
			}
		})
	})
}

func BenchmarkFeatures(b *testing.B) {
	dir := b.TempDir()
	must.Succeed(b, os.WriteFile(filepath.Join(dir, ConfigFile), []byte(`{}`), 0o644))
	e := must.Value(Open(dir, []int64{1, 80, 3000}))(b)
	s := &Sound{Rate: 16000, Samples: make([]float32, 480000)}
	for i := range s.Samples {
		s.Samples[i] = float32(math.Sin(float64(i*i) / 3e7))
	}
	for b.Loop() {
		must.Value(e.Features(s))(b)
	}
}
