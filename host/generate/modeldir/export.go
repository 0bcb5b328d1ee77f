package modeldir

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/base/storage"
)

// ManifestName is the file in which the exporter of Transformers 5 names its graphs.
const ManifestName = "export.json"

// onnxFormat is what a manifest calls graphs of ONNX.
const onnxFormat = "onnx"

// manifest is what is read of an export.json.
type manifest struct {
	Format     string `json:"export_format"`
	Components map[string]struct {
		File     string `json:"file"`
		Metadata struct {
			Inputs map[string]json.RawMessage `json:"kwargs"`
		} `json:"metadata"`
	} `json:"components"`
}

// Components of a manifest. A decoder alone has prefill and decode; an encoder-decoder has its encoder beside them,
// under a name of its own or that of what it reads, and what reads sound or images has for prefill the decoder that
// its language_model is. A graph that was exported as a whole is model.
var (
	wholeComponent    = "model"
	decodeComponent   = "decode"
	prefillComponents = []string{"prefill", "language_model"}
	encoderComponents = []string{"encoder", "audio_encoder", "image_encoder"}
	unreadComponents  = []string{"lm_head"} // it is in decode, too
)

// exported are the graphs that a folder's export.json names; an error of kind [os.ErrNotExist] where there is none.
func exported(folder, in string) (*Files, error) {
	path := filepath.Join(in, ManifestName)
	data, err := storage.ReadRegular(path, limit.Config)
	if err != nil {
		return nil, err
	}
	var m manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, &diagnostic.Error{Path: path, Found: "found " + err.Error(),
			Needed: "what OnnxExporter writes", Fix: "export the model again"}
	}
	names := slices.Sorted(maps.Keys(m.Components))
	if m.Format != onnxFormat {
		return nil, &diagnostic.Error{Path: path, Found: fmt.Sprintf("found export_format %q", m.Format), Needed: onnxFormat,
			Fix: "export the model with OnnxExporter"}
	}
	var wrong error
	take := func(components ...string) string {
		for _, name := range components {
			c, ok := m.Components[name]
			if !ok {
				continue
			}
			delete(m.Components, name)
			if c.File == "" || c.File != filepath.Base(c.File) || c.File == "." || c.File == ".." {
				wrong = &diagnostic.Error{Path: path, Found: fmt.Sprintf("component %s has the file %q", name, c.File),
					Needed: "the name of a file beside it"}
			}
			return filepath.Join(in, c.File)
		}
		return ""
	}
	f := &Files{Folder: folder}
	if f.Decoder = take(wholeComponent); f.Decoder != "" && len(m.Components) == 0 {
		if wrong == nil {
			wrong = f.missing(path)
		}
		return f, wrong
	}
	_, reads := m.Components[decodeComponent].Metadata.Inputs["encoder_outputs"]
	f.Decoder, f.First, f.Encoder = take(decodeComponent), take(prefillComponents...), take(encoderComponents...)
	take(unreadComponents...)
	if wrong == nil && (f.Decoder == "" || len(m.Components) > 0) {
		wrong = &diagnostic.Error{Path: path, Found: "found components " + strings.Join(names, ", "),
			Needed: "decode with prefill, of an encoder-decoder encoder besides, or model alone",
			Fix:    "export the model with export_for_generation"}
	}
	if wrong == nil && reads && f.Encoder == "" {
		wrong = &diagnostic.Error{Path: path, Found: "found components " + strings.Join(names, ", ") +
			", of which decode reads encoder_outputs", Needed: "the encoder beside them",
			Fix: "export model.get_encoder() too, and put it among the components as encoder"}
	}
	if wrong == nil {
		wrong = f.missing(path)
	}
	return f, wrong
}

// missing is an error where a graph that a manifest names is not there.
func (f *Files) missing(manifest string) error {
	for _, graph := range []string{f.Decoder, f.First, f.Encoder} {
		if _, err := os.Stat(graph); graph != "" && errors.Is(err, os.ErrNotExist) {
			return &diagnostic.Error{Path: manifest, Found: "found no " + filepath.Base(graph) + " beside it",
				Needed: "the graphs that it names", Fix: "export the model again, or remove " + ManifestName +
					" if the folder holds other graphs"}
		}
	}
	return nil
}
