package speech

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/pipeline"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/measure/comparison/generations"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// Expected is what expected.py wrote.
type Expected struct {
	Preprocessor json.RawMessage            `json:"preprocessor_config"`
	Generation   map[string]json.RawMessage `json:"generation_config"`
	Cases        []Case                     `json:"cases"`
}

// Case is one sound and what Whisper's generate made of it.
type Case struct {
	Seed       int                        `json:"seed"`
	Samples    int                        `json:"samples"`
	Generation map[string]json.RawMessage `json:"generation_config"` // beside Expected's
	Options    map[string]json.RawMessage `json:"options"`
	Tokens     []int32                    `json:"tokens"` // without the end
	Text       string                     `json:"text"`
}

// name is of the cases with the same options.
func (c Case) name() string {
	var words []string
	for _, m := range []map[string]json.RawMessage{c.Generation, c.Options} {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			words = append(words, key+"="+string(m[key]))
		}
	}
	return strings.Join(words, " ")
}

func load(t *testing.T) *Expected {
	t.Helper()
	data := must.Value(os.ReadFile("testdata/expected.json.gz"))(t)
	z := must.Value(gzip.NewReader(bytes.NewReader(data)))(t)
	var e Expected
	must.Succeed(t, json.NewDecoder(z).Decode(&e))
	return &e
}

// sound is that of expected.py: two saw teeth and noise, as a WAV file of 16 bits.
func sound(seed, count int) []byte {
	state := uint32(seed * 2654435761)
	first, second := 300+seed*37%900, 1500+seed*101%3000
	var data []byte
	for i := range count {
		state = state*1664525 + 1013904223
		if i%40 == 0 {
			first += (i + seed) % 3 / 2
		}
		noise := (int(state>>20) - 2048) >> 2 // rounded down, as Python divides
		v := i*first%65536/8 - 4096 + i*second%65536/16 - 2048 + noise
		data = binary.LittleEndian.AppendUint16(data, uint16(int16(v)))
	}
	return wav(16000, data)
}

// wav is a file of one channel of 16 bits.
func wav(rate uint32, data []byte) []byte {
	out := binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(36+len(data)))
	out = append(out, "WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00"...)
	out = binary.LittleEndian.AppendUint32(out, rate)
	out = binary.LittleEndian.AppendUint32(out, 2*rate)
	out = append(out, "\x02\x00\x10\x00data"...)
	return append(binary.LittleEndian.AppendUint32(out, uint32(len(data))), data...)
}

// folder is a model with a generation_config.json of its own.
func (e *Expected) folder(t *testing.T, name string, generation map[string]json.RawMessage) string {
	t.Helper()
	dir := t.TempDir()
	must.Succeed(t, models.Small(name, dir))
	tokenizer := must.Value(os.ReadFile("testdata/tokenizer.json"))(t)
	all := maps.Clone(e.Generation)
	maps.Copy(all, generation)
	config := must.Value(json.Marshal(all))(t)
	for file, data := range map[string][]byte{
		"preprocessor_config.json": e.Preprocessor, "tokenizer.json": tokenizer, "generation_config.json": config,
	} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, file), data, 0o644))
	}
	return dir
}

func options(t *testing.T) decode.Options {
	t.Helper()
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	return decode.Options{Library: l, Plugins: set, Threads: 1, CacheBytes: 64 << 20, Batch: 3}
}

// run generates for lines.
func run(t *testing.T, g *generate.Generator, o search.Options, lines []string) []generate.Result {
	t.Helper()
	i := -1
	var out []generate.Result
	must.Value(g.Run(t.Context(), o, func() (string, error) {
		if i++; i >= len(lines) {
			return "", io.EOF
		}
		return lines[i], nil
	}, func(r generate.Result) error { out = append(out, r); return nil }, pipeline.Options{}))(t)
	if len(out) != len(lines) {
		t.Fatalf("%d results of %d lines", len(out), len(lines))
	}
	return out
}

// TestSoundToTextIsHuggingFaces goes the whole way, from WAV files to texts, with the
// engine and the model as exported, on both exports of the model.
func TestSoundToTextIsHuggingFaces(t *testing.T) {
	e := load(t)
	if len(e.Cases) < 50 {
		t.Fatalf("%d cases", len(e.Cases))
	}
	groups := map[string][]Case{}
	for _, c := range e.Cases {
		groups[c.name()] = append(groups[c.name()], c)
	}
	opens := map[string]func(context.Context, string, decode.Options) (*generate.Generator, error){"engine": generate.Open,
		"exported": generate.OpenExported}
	for _, export := range []string{"whisper", "whisper-merged"} {
		for name, cases := range groups {
			dir := e.folder(t, export, cases[0].Generation)
			var lines []string
			for _, c := range cases {
				lines = append(lines, filepath.Join(dir, fmt.Sprintf("%d.wav", c.Seed)))
				must.Succeed(t, os.WriteFile(lines[len(lines)-1], sound(c.Seed, c.Samples), 0o644))
			}
			for way, open := range opens {
				t.Run(export+"/"+way+"/"+name, func(t *testing.T) {
					g := must.Value(open(t.Context(), dir, options(t)))(t)
					defer g.Close()
					o := g.Search()
					for key, value := range cases[0].Options {
						must.Succeed(t, o.Set(key, value))
					}
					for i, r := range run(t, g, o, lines) {
						if r.Error != "" || len(r.Sequences) != 1 {
							t.Errorf("sound %d: %+v", cases[i].Seed, r)
							continue
						}
						tokens := r.Sequences[0].Tokens
						if n := len(tokens) - 1; tokens[n] == o.EOSTokenID[0] {
							tokens = tokens[:n]
						}
						if !slices.Equal(tokens, cases[i].Tokens) || r.Sequences[0].Text != cases[i].Text {
							t.Errorf("sound %d gives\n%v %q, want\n%v %q", cases[i].Seed, tokens, r.Sequences[0].Text, cases[i].Tokens,
								cases[i].Text)
						}
					}
				})
			}
		}
	}
}

// TestMoonshine goes the whole way with a model that reads samples as they are: sounds of different lengths in one
// batch, with the engine and the model as exported.
func TestMoonshine(t *testing.T) {
	e := load(t)
	e.Preprocessor = []byte(
		`{"do_normalize": false, "feature_extractor_type": "Wav2Vec2FeatureExtractor", "feature_size": 1, "sampling_rate": 16000}`)
	dir := e.folder(t, "moonshine", nil)
	generation := must.Value(os.ReadFile("../../models/small/moonshine/generation_config.json"))(t)
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), generation, 0o644))
	var lines []string
	for i, samples := range []int{20000, 900, 64000, 100} {
		lines = append(lines, filepath.Join(dir, fmt.Sprintf("%d.wav", i)))
		must.Succeed(t, os.WriteFile(lines[i], sound(i, samples), 0o644))
	}
	var first []generate.Result
	for name, open := range map[string]func(context.Context, string, decode.Options) (*generate.Generator,
		error){"engine": generate.Open,
		"exported": generate.OpenExported} {
		g := must.Value(open(t.Context(), dir, options(t)))(t)
		defer g.Close()
		o := g.Search()
		o.MaxNewTokens = 12
		out := run(t, g, o, lines)
		if want := "3.wav: a sound of 0.01 seconds, needed 0.06 to 64"; !strings.Contains(out[3].Error, want) {
			t.Errorf("%s: %q, want %q", name, out[3].Error, want)
		}
		if first == nil {
			first = out
		}
		for i := range 3 {
			if out[i].Error != "" || out[i].Sequences[0].Text == "" ||
				!slices.Equal(out[i].Sequences[0].Tokens, first[i].Sequences[0].Tokens) {
				t.Errorf("%s, sound %d: %+v, the other gives %+v", name, i, out[i], first[i])
			}
		}
	}
}

// Files that cannot be read are named, and the others continue.
func TestSoundsThatCannotBeTranscribed(t *testing.T) {
	e := load(t)
	dir := e.folder(t, "whisper", nil)
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(path, data, 0o644))
		return path
	}
	lines := []string{
		write("good.wav", sound(1, 5000)), filepath.Join(dir, "none.wav"), "",
		write("fast.wav", wav(44100, make([]byte, 400))), write("text.txt", []byte("not a sound")),
		write("again.wav", sound(1, 5000)),
	}
	wants := []string{"", "none.wav: no such file", "no such file",
		"the sound has 44100 samples a second, needed are 16000", "text.txt: it begins with", ""}
	g := must.Value(generate.Open(t.Context(), dir, options(t)))(t)
	defer g.Close()
	o := g.Search()
	results := run(t, g, o, lines)
	for i, r := range results {
		if (r.Error == "") != (wants[i] == "") || !strings.Contains(r.Error, wants[i]) {
			t.Errorf("%q: %q, want %q", lines[i], r.Error, wants[i])
		}
	}
	must.Equal(t, results[0].Sequences[0].Text, results[5].Sequences[0].Text)
	fails := func(change func(*search.Options), want string) {
		t.Helper()
		o := g.Search()
		change(&o)
		_, err := g.Run(t.Context(), o, func() (string, error) { return "", io.EOF },
			func(generate.Result) error { return nil }, pipeline.Options{})
		must.Fail(t, err, want)
	}
	fails(func(o *search.Options) { o.Speech.Language = "klingon" },
		`language is "klingon", needed is one of the model's: <|de|> <|en|>`)
	fails(func(o *search.Options) { o.Speech.Task = "sing" }, `task is "sing"`)
	g.MaxInput = 7
	fails(func(*search.Options) {}, "the model reads sound")
	must.Fail(t, o.Set("return_timestamps", []byte("true")), "return_timestamps is true: this option is not supported")
}

// Features that were computed before give what their sound gives.
func TestFeaturesInsteadOfSound(t *testing.T) {
	e := load(t)
	dir := e.folder(t, "whisper", nil)
	path := filepath.Join(dir, "a.wav")
	must.Succeed(t, os.WriteFile(path, sound(2, 9000), 0o644))
	g, err := generate.Open(t.Context(), dir, options(t))
	must.Succeed(t, err)
	defer g.Close()
	values := must.Value(g.Files.File(path))(t)
	head := "{'descr': '<f4', 'fortran_order': False, 'shape': (16, 120), }"
	data := fmt.Appendf(nil, "\x93NUMPY\x01\x00\x76\x00%-117s\n", head)
	if data, err = binary.Append(data, binary.LittleEndian, values); err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(dir, "a.npy")
	must.Succeed(t, os.WriteFile(made, data, 0o644))
	out := run(t, g, g.Search(), []string{path, made})
	if len(out[0].Sequences) != 1 || len(out[1].Sequences) != 1 ||
		!slices.Equal(out[0].Sequences[0].Tokens, out[1].Sequences[0].Tokens) {
		t.Errorf("the sound gives %+v, its features %+v", out[0], out[1])
	}
}

// graft ab compares the two sides on features that it makes, the same for both.
func TestSidesAgreeOnMadeFeatures(t *testing.T) {
	o := options(t)
	dir := load(t).folder(t, "whisper", nil)
	compare := func(g generations.Options) (*generations.Result, error) {
		g.A, g.B, g.Rounds, g.Seed, g.CacheBytes = "none", "auto", 1, 5, o.CacheBytes
		g.Search = []byte(`{"num_beams": 4, "max_new_tokens": 24, "eos_token_id": []}`)
		return generations.Compare(t.Context(), o.Library, o.Plugins, dir, g)
	}
	r := must.Value(compare(generations.Options{Batch: 2}))(t)
	if r.Equal != 2 || r.Sequences != 2 || r.NewTokens != 48 || !slices.Equal(r.InputFeatures, []int64{1, 16, 120}) {
		t.Errorf("%d of %d sequences equal, %d tokens, of features %d", r.Equal, r.Sequences, r.NewTokens, r.InputFeatures)
	}
	if _, err := compare(generations.Options{Inputs: [][]int32{{1, 2}}}); err == nil ||
		!strings.Contains(err.Error(), "the model reads speech or images, and the inputs are tokens") {
		t.Errorf("%v", err)
	}
}
