package quantization_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/measure/quantization"
	"github.com/opgraft/graft/internal/must"
)

// TestCalibrate: with scales that know a text, its logits are nearer those of the model as exported: of decoders and
// merged ones. Zero points are chosen by texts too.
func TestCalibrate(t *testing.T) {
	l, set := open(t)
	for _, c := range []struct{ name, graph, weights string }{
		{"gpt2", "model.onnx", "int4,logits=int8,activations=float32"},
		{"gpt2", "model.onnx", "int4,logits=int8,activations=float32,zero-points=true"},
		{"gpt2-merged", "decoder_model_merged.onnx", "int4,activations=float32"},
	} {
		if testing.Short() && !strings.Contains(c.weights, "zero") {
			continue
		}
		t.Run(c.name+" "+c.weights, func(t *testing.T) {
			dir := small(t, c.name)
			before := logits(t, dir)
			o := quantization.Calibration{Library: l, Threads: 1, Path: filepath.Join(dir, c.graph),
				Texts: []quantization.Text{{Tokens: []int32{5, 17, 9, 44, 61, 8, 70}}, {}}}
			lost := map[bool]float64{}
			for _, calibrated := range []bool{false, true} {
				by := quantization.Options{Plugins: set.Plugins, Weights: weightsOf(t, c.weights)}
				if calibrated {
					must.Succeed(t, by.Calibrate(t.Context(), o))
				}
				to := filepath.Join(t.TempDir(), "out")
				must.Value(quantization.Folder(t.Context(), dir, to, by))(t)
				lost[calibrated] = spread(logits(t, to), before)
			}
			t.Logf("%.3g off the model as exported, calibrated %.3g", lost[false], lost[true])
			if !(lost[true] < lost[false]) {
				t.Errorf("calibrated, logits are %.3g of their spread off the exported model's, without %.3g", lost[true],
					lost[false])
			}
		})
	}
	o := quantization.Options{Plugins: set.Plugins, Weights: weightsOf(t, "int4")}
	dir := small(t, "bart")
	text := []quantization.Text{{Tokens: []int32{5, 6}}}
	for _, bad := range []struct {
		graph string
		texts []quantization.Text
		says  string
	}{
		{"encoder_model.onnx", nil, "the texts have no tokens"},
		{"encoder_model.onnx", []quantization.Text{{Tokens: []int32{-1}}}, "token 0 is -1"},
		{"decoder_model.onnx", text, "an input encoder_hidden_states of which it is not known what to feed"},
		{"config.json", text, "config.json"},
	} {
		must.Fail(t, o.Calibrate(t.Context(),
			quantization.Calibration{Library: l, Path: filepath.Join(dir, bad.graph), Texts: bad.texts}), bad.says)
	}
}

// TestCalibrateEncoderDecoder: a trained encoder-decoder that read some words is nearer the model as exported over
// others.
func TestCalibrateEncoderDecoder(t *testing.T) {
	_, set := open(t)
	folder := "../../../models/g2p"
	var known []string
	for line := range strings.Lines(read(t, filepath.Join(folder, "held_out.txt"))) {
		word, _, _ := strings.Cut(line, "\t")
		known = append(known, word)
	}
	inputs := words(t, folder, 30)
	lost := map[bool]float64{}
	for _, calibrated := range []bool{false, true} {
		r := quantization.Request{Plugins: set, Weights: weightsOf(t, "int4,logits=int4,group=128,activations=float32")}
		if calibrated {
			r.Calibrate = known[30:230]
		}
		to := filepath.Join(t.TempDir(), "out")
		must.Value(quantization.Quantize(t.Context(), folder, to, r))(t)
		lost[calibrated] = mean(t, folder, to, inputs)
	}
	t.Logf("mean divergence %.4g, calibrated %.4g", lost[false], lost[true])
	if !(lost[true] < lost[false]) {
		t.Errorf("calibrated, the mean divergence is %.4g, without %.4g", lost[true], lost[false])
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	data := must.Value(os.ReadFile(path))(t)
	return string(data)
}

// TestRequests: a folder of an encoder-decoder, and a single file with its tokenizer beside it, are quantised by
// texts; what cannot be is one error and nothing is written.
func TestRequests(t *testing.T) {
	_, set := open(t)
	g2p, embedder := "../../../models/g2p", "../../../models/encoders/embedder"
	words := []string{"hello", "world", "calibration"}
	types := func(r *quantization.Report) (n int) {
		for _, g := range r.Graphs {
			n += len(g.Layers)
		}
		return n
	}
	for _, c := range []struct {
		from, to string
		request  quantization.Request
	}{
		{g2p, "folder", quantization.Request{Weights: weightsOf(t, "int4"), Calibrate: words}},
		{filepath.Join(embedder, "onnx/model.onnx"), "one.onnx",
			quantization.Request{Weights: weightsOf(t, "int4,zero-points=true"), Calibrate: words}},
		{embedder, "encoder", quantization.Request{Weights: weightsOf(t, "int4"), Calibrate: words}},
		{g2p, "plain", quantization.Request{Weights: weightsOf(t, "int8")}},
	} {
		if testing.Short() && c.to == "encoder" {
			continue
		}
		c.request.Plugins = set
		r, err := quantization.Quantize(t.Context(), c.from, filepath.Join(t.TempDir(), c.to), c.request)
		if err != nil || types(r) == 0 {
			t.Errorf("%s: %v, %v", c.from, r, err)
		}
	}
	whisper := small(t, "whisper")
	for _, c := range []struct {
		from    string
		request quantization.Request
		says    string
	}{
		{g2p, quantization.Request{Weights: weightsOf(t, "bf16")}, "no kernel of ONNX Runtime"},
		{g2p, quantization.Request{Weights: weightsOf(t, "int8"), Calibrate: words},
			"calibration of int8,logits=int8,group=32,activations=int8, needed weights of four bits"},
		{g2p, quantization.Request{Weights: weightsOf(t, "int4"), MaxKL: -1, Input: words},
			"a bound of -1, needed a divergence above 0"},
		{g2p, quantization.Request{Weights: weightsOf(t, "int4"), MaxKL: 0.1}, "a bound without texts"},
		{g2p, quantization.Request{Weights: weightsOf(t, "int4"), MaxKL: 0.1, Input: words, Tokens: -1},
			"-1 tokens, needed at most"},
		{g2p, quantization.Request{Weights: weightsOf(t, "int4"), Calibrate: []string{}}, "the texts have no tokens"},
		{filepath.Join(g2p, "encoder_model.onnx"),
			quantization.Request{Weights: weightsOf(t, "int4"), MaxKL: 0.1, Input: words},
			"a single file, needed a folder that generates"},
		{filepath.Join(small(t, "gpt2"), "model.onnx"), quantization.Request{Weights: weightsOf(t, "int4"), Calibrate: words},
			"tokenizer"},
		{whisper, quantization.Request{Weights: weightsOf(t, "int4"), Calibrate: words}, ""},
		{"nowhere", quantization.Request{Weights: weightsOf(t, "int4")}, "nowhere: cannot open it"},
	} {
		c.request.Plugins = set
		above := t.TempDir()
		_, err := quantization.Quantize(t.Context(), c.from, filepath.Join(above, "out"), c.request)
		must.Fail(t, err, c.says)
		must.Empty(t, names(t, above), c.from, c.request.Weights)
	}
}
