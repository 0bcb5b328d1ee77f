package vision

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/pipeline"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// Case is one picture and what a model made of it.
type Case struct {
	Model   string                     `json:"model"`
	Seed    int                        `json:"seed"`
	Options map[string]json.RawMessage `json:"options"` // prompt is a text
	Tokens  []int32                    `json:"tokens"`
	Text    string                     `json:"text"`
}

// Expected is what expected.py wrote.
type Expected struct {
	Models map[string]struct{ Preprocessor, Tokenizer json.RawMessage } `json:"models"`
	Cases  []Case                                                       `json:"cases"`
}

func load(t *testing.T) *Expected {
	t.Helper()
	data := must.Value(os.ReadFile("testdata/expected.json.gz"))(t)
	z := must.Value(gzip.NewReader(bytes.NewReader(data)))(t)
	var e Expected
	must.Succeed(t, json.NewDecoder(z).Decode(&e))
	return &e
}

// picture is that of expected.py, as a PNG file.
func picture(t *testing.T, seed int) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, 20+seed*53%110, 20+seed*37%90))
	for y := range m.Rect.Dy() {
		for x := range m.Rect.Dx() {
			green := 20 + seed%7
			if (x/(2+seed%4)+y/5)%2 == 0 {
				green = 230
			}
			noise := (x*7919 + y*104729 + x*y*(31+seed)) % 251
			m.SetRGBA(x, y, color.RGBA{byte(x * (1 + seed%5) % 256), byte(green), byte(noise), 255})
		}
	}
	var b bytes.Buffer
	must.Succeed(t, png.Encode(&b, m))
	return b.Bytes()
}

// folder is a folder of models/small with the tokenizer and image processor of its model.
func (e *Expected) folder(t *testing.T, name, model string) string {
	t.Helper()
	dir := t.TempDir()
	must.Succeed(t, models.Small(name, dir))
	write(t, dir, "tokenizer.json", e.Models[model].Tokenizer)
	write(t, dir, "preprocessor_config.json", e.Models[model].Preprocessor)
	return dir
}

func write(t *testing.T, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	must.Succeed(t, os.WriteFile(path, data, 0o644))
	return path
}

func options(t *testing.T) decode.Options {
	t.Helper()
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	return decode.Options{Library: l, Plugins: set, Batch: 3, CacheBytes: 64 << 20, Threads: 1}
}

// run generates for files.
func run(t *testing.T, g *generate.Generator, asked map[string]json.RawMessage,
	files []string) (results []generate.Result) {
	t.Helper()
	o := g.Search()
	for name, value := range asked {
		var err error
		if name == "prompt" {
			var prompt string
			if err = json.Unmarshal(value, &prompt); err == nil {
				err = g.Prompt(t.Context(), &o, prompt)
			}
		} else {
			err = o.Set(name, value)
		}
		must.Succeed(t, err)
	}
	i := -1
	_, err := g.Run(t.Context(), o, func() (string, error) {
		if i++; i >= len(files) {
			return "", io.EOF
		}
		return files[i], nil
	}, func(r generate.Result) error { results = append(results, r); return nil }, pipeline.Options{})
	if err != nil || len(results) != len(files) {
		t.Fatalf("%d results of %d files, %v", len(results), len(files), err)
	}
	return results
}

// From picture to text: tokens and texts are Hugging Face's, of the engine and of the model as it was exported, in
// every folder of a model.
func TestPictureToTextIsHuggingFaces(t *testing.T) {
	e := load(t)
	if len(e.Cases) < 27 {
		t.Fatalf("%d cases", len(e.Cases))
	}
	for _, f := range models.SmallFolders() {
		if e.Models[f.Model].Tokenizer == nil {
			continue
		}
		dir := e.folder(t, f.Name, f.Model)
		groups := map[string][]Case{}
		for _, c := range e.Cases {
			if c.Model == f.Model {
				asked := fmt.Sprintf("%s", c.Options)
				groups[asked] = append(groups[asked], c)
			}
		}
		for way, open := range map[string]func(context.Context, string, decode.Options) (*generate.Generator,
			error){"engine": generate.Open,
			"exported": generate.OpenExported} {
			t.Run(f.Name+"/"+way, func(t *testing.T) {
				g := must.Value(open(t.Context(), dir, options(t)))(t)
				defer g.Close()
				for _, cases := range groups {
					var files []string
					for _, c := range cases {
						files = append(files, write(t, dir, fmt.Sprintf("%d.png", c.Seed), picture(t, c.Seed)))
					}
					for i, r := range run(t, g, cases[0].Options, files) {
						c := cases[i]
						if r.Error != "" || len(r.Sequences) != 1 || !slices.Equal(r.Sequences[0].Tokens, c.Tokens) ||
							r.Sequences[0].Text != c.Text {
							t.Errorf("picture %d, %s: %+v, want\n%v %q", c.Seed, c.Options, r, c.Tokens, c.Text)
						}
					}
				}
			})
		}
	}
}

// Files that cannot be read are named, and the others continue; what a model of images has no use for is refused.
func TestPicturesThatCannotBeRead(t *testing.T) {
	e := load(t)
	dir := e.folder(t, "trocr", "trocr")
	g := must.Value(generate.Open(t.Context(), dir, options(t)))(t)
	defer g.Close()
	files := []string{write(t, dir, "1.png", picture(t, 1)), filepath.Join(dir, "none.png"), "",
		write(t, dir, "text.png", []byte("no picture")), filepath.Join(dir, "1.png")}
	wants := []string{"", "none.png: no such file", "no such file",
		`text.png: it begins with "no pictu", needed a PNG or JPEG file`, ""}
	results := run(t, g, nil, files)
	for i, r := range results {
		if (r.Error == "") != (wants[i] == "") || !strings.Contains(r.Error, wants[i]) {
			t.Errorf("%q: %q, want %q", files[i], r.Error, wants[i])
		}
	}
	must.Equal(t, results[0].Sequences[0].Text, results[4].Sequences[0].Text)
	g.MaxInput = 7
	o := g.Search()
	must.Fail(t, must.Error(g.Run(t.Context(), o, func() (string, error) { return "", io.EOF }, nil,
		pipeline.Options{})), "the model reads images")
	must.Succeed(t, os.Remove(filepath.Join(dir, "preprocessor_config.json")))
	if _, err := generate.Open(t.Context(), dir, options(t)); err == nil ||
		!strings.Contains(err.Error(), "preprocessor_config.json: not found, needed how pixel values are computed") {
		t.Errorf("%v", err)
	}
}
