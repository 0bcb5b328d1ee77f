package modeldir_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/internal/must"
)

// TestExportManifest: an export.json names the graphs of a folder, whatever their files are called.
func TestExportManifest(t *testing.T) {
	const format = `{"schema_version": 1, "export_format": "onnx", "components": {`
	part := func(name, file string) string { return `"` + name + `": {"file": "` + file + `", "metadata": {}}` }
	for _, c := range []struct {
		name, manifest          string
		encoder, first, decoder string
		wrong                   string
	}{
		{"one graph", format + part("model", "a.onnx") + "}}", "", "", "a.onnx", ""},
		{"a decoder", format + part("prefill", "p.onnx") + "," + part("decode", "d.onnx") + "}}", "", "p.onnx", "d.onnx", ""},
		{"with an encoder", format + part("encoder", "e.onnx") + "," + part("prefill", "p.onnx") + "," +
			part("decode", "d.onnx") + "}}", "e.onnx", "p.onnx", "d.onnx", ""},
		{"of sound", format + part("audio_encoder", "e.onnx") + "," + part("language_model", "l.onnx") + "," +
			part("decode", "d.onnx") + "}}", "e.onnx", "l.onnx", "d.onnx", ""},
		{"an encoder's tokens beside images", format + part("image_encoder", "e.onnx") + "," +
			part("multi_modal_projector", "m.onnx") + "," + part("decode", "d.onnx") + "}}", "", "", "",
			"export.json: found components decode, image_encoder, multi_modal_projector, needed decode with prefill"},
		{"no encoder", format + part("prefill", "p.onnx") + "," + strings.Replace(part("decode", "d.onnx"), `{}`,
			`{"kwargs": {"encoder_outputs": {"leaves": {}}}}`, 1) + "}}", "", "", "",
			"export.json: found components decode, prefill, of which decode reads encoder_outputs, needed the encoder"},
		{"cut off", format, "", "", "", "export.json: found unexpected end of JSON input, needed what OnnxExporter writes"},
		{"no decode", format + part("prefill", "p.onnx") + "}}", "", "", "", "found components prefill, needed decode"},
		{"another format", strings.Replace(format, `"onnx"`, `"openvino"`, 1) + part("model", "model.xml") + "}}", "", "", "",
			`export.json: found export_format "openvino", needed onnx`},
		{"a file elsewhere", format + part("model", "../model.onnx") + "}}", "", "", "",
			`component model has the file "../model.onnx"`},
		{"no JSON", "{", "", "", "", "export.json: "},
		{"no graph of prompts", format + part("prefill", "gone.onnx") + "," + part("decode", "d.onnx") + "}}", "", "", "",
			"export.json: found no gone.onnx beside it, needed the graphs that it names; export the model again, or remove " +
				"export.json if the folder holds other graphs"},
		{"no graph", format + part("model", "gone.onnx") + "}}", "", "", "", "export.json: found no gone.onnx beside it"},
		{"no components", `{"export_format": "onnx"}`, "", "", "", "found components"},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := folderOf(t, map[string]string{"export.json": c.manifest, "model.onnx": "", "a.onnx": "", "d.onnx": "",
				"e.onnx": "", "l.onnx": "", "p.onnx": ""})
			f, err := modeldir.Find(folder)
			if c.wrong != "" {
				must.Fail(t, err, c.wrong)
				return
			}
			must.Succeed(t, err)
			base := func(path string) string {
				if path == "" {
					return ""
				}
				return filepath.Base(path)
			}
			must.Equal(t, base(f.Encoder), c.encoder)
			must.Equal(t, base(f.First), c.first)
			must.Equal(t, base(f.Decoder), c.decoder)
		})
	}
}
