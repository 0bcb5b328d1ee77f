package models

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"sync"
)

//go:embed graphs
var graphs embed.FS

// Fixture is a graph that an exporter wrote, without its learned weights.
type Fixture struct {
	// Exporter that wrote it: "optimum", "dynamo18", "dynamo23", "ortopt",
	// "genai", "families"; "full" for a file of a full-size subject.
	Exporter string `json:"exporter"`
	// Name within the exporter's, such as "gpt2" or "bart-decoder-with-past";
	// of a full-size subject, "bart-large/decoder_model".
	Name string `json:"name"`
	// Path of the gzipped graph, and of the Hugging Face configuration that the
	// model was made from; below models/graphs.
	Path   string `json:"path"`
	Config string `json:"config"`
	// MadeBy are the packages that wrote it, with their versions.
	MadeBy map[string]string `json:"made_by"`
	// Opset versions by domain ("ai.onnx" for the default one).
	Opset map[string]int `json:"opset"`
	// Nodes in the graph and its subgraphs; learned parameters of the subject
	// that occur in it.
	Nodes      int `json:"nodes"`
	Parameters int `json:"parameters"`
	// Kept are its larger tensors that were not learned and stand as exported.
	Kept []KeptTensor `json:"kept"`

	conditioned bool // the subject is named with Conditioned
}

// KeptTensor is a tensor that a fixture holds as the exporter wrote it.
type KeptTensor struct {
	Name string  `json:"name"`
	Dims []int64 `json:"dims"`
}

var manifest = sync.OnceValue(func() []Fixture {
	b, err := graphs.ReadFile("graphs/manifest.json")
	var m struct {
		Graphs []Fixture `json:"graphs"`
	}
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		panic(fmt.Sprintf("models: the embedded manifest cannot be read: this is a bug: %v", err))
	}
	return m.Graphs
})

// Fixtures lists every graph, those of the full-size subjects included, in the
// order of their paths.
func Fixtures() []Fixture { return append([]Fixture(nil), manifest()...) }

// Lookup finds the graph name of an exporter.
func Lookup(exporter, name string) (Fixture, error) {
	for _, f := range manifest() {
		if f.Exporter == exporter && f.Name == name {
			return f, nil
		}
	}
	return Fixture{}, fmt.Errorf("no graph %s/%s: Fixtures lists those that there are", exporter, name)
}

// String is exporter/name.
func (f Fixture) String() string { return f.Exporter + "/" + f.Name }

// Graph returns the ModelProto as it is stored: learned tensors are instructions
// (data_location EXTERNAL, location "seed") without data.
func (f Fixture) Graph() ([]byte, error) {
	b, err := graphs.ReadFile("graphs/" + f.Path)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	b, err = io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	return b, nil
}

// ConfigJSON returns the Hugging Face configuration of the subject.
func (f Fixture) ConfigJSON() ([]byte, error) { return graphs.ReadFile("graphs/" + f.Config) }

func (f Fixture) assemble(place placement) (output, error) {
	b, err := f.Graph()
	if err != nil {
		return output{}, err
	}
	if f.conditioned {
		place = conditioned(place)
	}
	out, err := assemble(b, modelMessage, place)
	if err != nil {
		return out, fmt.Errorf("%s: %w", f.Path, err)
	}
	return out, nil
}

// Bytes returns the model with its weights filled from seed.
func (f Fixture) Bytes(seed uint64) ([]byte, error) {
	out, err := f.assemble(inline)
	if err != nil {
		return nil, err
	}
	b := make(memory, out.size)
	return b, out.writeTo(b, seed)
}

// inlineLimit is the size of a model above which its weights go into a file of
// their own: a protobuf message ends at 2 GiB.
const inlineLimit = 1_900_000_000

// Write makes path, a model with its weights filled from seed. The weights stand
// in the model, or above 1.9 GB beside it in path + ".data". The same seed gives
// the same bytes on every machine. Nothing stays under the name path when it fails.
func (f Fixture) Write(path string, seed uint64) error {
	out, err := f.assemble(inline)
	if err != nil {
		return err
	}
	if out.size > inlineLimit {
		return f.WriteExternal(path, seed)
	}
	return out.writeFile(path, seed)
}

// WriteExternal is Write with the weights always beside the model, in path +
// ".data", as ONNX external data.
func (f Fixture) WriteExternal(path string, seed uint64) error {
	var data output
	out, err := f.assemble(external(&data, filepath.Base(path)+".data"))
	if err != nil {
		return err
	}
	if err := data.writeFile(path+".data", seed); err != nil {
		return err
	}
	return out.writeFile(path, seed)
}
