package models

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/opgraft/graft/host/base/storage"
)

//go:embed small
var small embed.FS

// SmallFolder is a small generation model as optimum writes one to disk. Several
// folders hold the same model in different shapes: with separate decoders, with a
// merged one, without past, without position_ids.
type SmallFolder struct {
	// Name of the folder, such as "bart-merged".
	Name string `json:"name"`
	// Model is the name of what it holds; folders with the same Model have the
	// same weights and must generate the same.
	Model string `json:"model"`
	// Files are its graphs, without ".onnx".
	Files []string `json:"files"`
	// Family says that the model stands for a family of architectures, of which
	// tests/generate asks a few questions only.
	Family bool `json:"family"`
	// Bits are those of weights that its exporter quantised, 0 for float32: it generates other tokens than its Model does.
	Bits int `json:"bits"`
	// MadeBy are the packages that wrote it, with their versions.
	MadeBy map[string]string `json:"made_by"`
}

var smallManifest = sync.OnceValue(func() []SmallFolder {
	b, err := small.ReadFile("small/manifest.json")
	var m struct {
		Folders []SmallFolder `json:"folders"`
	}
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		panic(fmt.Sprintf("models: the embedded manifest of small/ cannot be read: this is a bug: %v", err))
	}
	return m.Folders
})

// SmallFolders lists the small generation models by name, in float32.
func SmallFolders() []SmallFolder { return smallOf(func(bits int) bool { return bits == 0 }) }

// SmallQuantised lists those that their exporter quantised.
func SmallQuantised() []SmallFolder { return smallOf(func(bits int) bool { return bits > 0 }) }

func smallOf(bits func(int) bool) (list []SmallFolder) {
	for _, f := range smallManifest() {
		if bits(f.Bits) {
			list = append(list, f)
		}
	}
	return list
}

// Small makes the small generation model name in the folder dir, which it
// creates: its .onnx files with their weights filled from DefaultSeed,
// config.json and generation_config.json, and genai_config.json where
// onnxruntime-genai's builder wrote them, export.json where Transformers' own
// exporter did. The same bytes come every time, and
// tests/generate says what Hugging Face's generate makes of them.
func Small(name, dir string) error {
	folder, err := lookupSmall(name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, file := range folder.Files {
		if err := folder.write(file, filepath.Join(dir, file+".onnx")); err != nil {
			return err
		}
	}
	for _, file := range []string{"config.json", "generation_config.json", "genai_config.json", "export.json"} {
		b, err := fs.ReadFile(small, path.Join("small", name, file))
		if errors.Is(err, fs.ErrNotExist) && !strings.HasSuffix(file, "generation_config.json") && file != "config.json" {
			continue // of other exporters
		}
		if err != nil {
			return err
		}
		if err := storage.Write(filepath.Join(dir, file), b, storage.Shared); err != nil {
			return err
		}
	}
	return nil
}

func lookupSmall(name string) (SmallFolder, error) {
	var names []string
	for _, f := range smallManifest() {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return SmallFolder{}, fmt.Errorf("no small model %q: there are %s", name, strings.Join(names, ", "))
}

// write fills one graph of the folder into the file at target.
func (f SmallFolder) write(file, target string) error {
	source := path.Join("small", f.Name, file+".onnx.gz")
	b, err := small.ReadFile(source)
	if err != nil {
		return err
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	if b, err = io.ReadAll(z); err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	out, err := assemble(b, modelMessage, inline)
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	return out.writeFile(target, DefaultSeed)
}

// Normal returns n values of mean 0 and deviation 1 of the stream name, as the
// weights are sampled (README.md, "distribution"); for inputs that a test in
// another language has to make too.
func Normal(seed uint64, name string, n int) []float32 {
	p := parameter{name: name, shape: []int64{int64(n)}, distribution: normal, scale: 1}
	g := newGenerator(&p, seed)
	values := make([]float32, n)
	for i := range values {
		values[i] = math.Float32frombits(g.bits(centredSum(word(g.key, uint64(i)))))
	}
	return values
}
