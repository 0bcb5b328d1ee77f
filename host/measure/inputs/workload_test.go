package inputs

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// With nothing asked for, every fixture gets inputs of a size that fits what it is,
// within its positions, and ONNX Runtime runs it on them.
func TestDefaultWorkloads(t *testing.T) {
	want := map[string]string{
		"dynamo18/bert":                  "encoder: batch 8 x 128 tokens, 38.8% padding",
		"optimum/bert":                   "encoder: batch 8 x 128 tokens, 38.8% padding",
		"ortopt/bert":                    "encoder: batch 8 x 128 tokens, 38.8% padding",
		"optimum/bart-encoder":           "encoder: batch 8 x 128 tokens, 38.8% padding",
		"optimum/t5-encoder":             "encoder: batch 8 x 128 tokens, 38.8% padding",
		"optimum/whisper-encoder":        "",
		"optimum/bart-decoder":           "decoder: batch 1 x 128 tokens, 512 encoder positions, no padding",
		"optimum/whisper-decoder":        "decoder: batch 1 x 96 tokens, 512 encoder positions",
		"optimum/bart-decoder-with-past": "decoder with past: batch 1, 1 token after 127, 512 encoder positions, no padding",
		"optimum/gpt2":                   "decoder with past: batch 1, 1 token after 255, no padding",
		"ortopt/gpt2-attention":          "decoder with past: batch 1, 1 token after 255, no padding",
		"optimum/llama":                  "decoder with past: batch 1, 1 token after 512, no padding",
		"genai/llama":                    "decoder with past: batch 1, 1 token after 255, no padding",
	}
	for _, f := range models.Fixtures() {
		if f.Exporter == "full" {
			continue // small images of one size, and positions that begin after a padding's, have to be given
		}
		t.Run(f.String(), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model.onnx")
			must.Succeed(t, f.Write(path, 1))
			b := must.Value(Make(library(t), path, Options{Seed: 1}))(t)
			defer b.Close()
			if text, ok := want[f.String()]; ok && b.Workload.String() != text {
				t.Errorf("%q, want %q", b.Workload, text)
			}
			s := must.Value(session.Open(library(t), path, session.Options{Unpatched: true}))(t)
			defer s.Close()
			results := must.Value(s.Run(context.Background(), b.Values))(t)
			for _, v := range results {
				v.Close()
			}
		})
	}
}

// An image model gets images of the channels that its convolution reads.
func TestImageWorkload(t *testing.T) {
	path := write(t, []value{{name: "pixel_values", dims: []any{"batch", "channels", "height", "width"}}},
		[]value{{name: "y", dims: []any{"a", 16, "b", "c"}}}, []*onnx.Tensor{table("kernel", 16, 3, 8, 8)},
		"y = Conv(pixel_values, kernel)")
	b := must.Value(Make(library(t), path, Options{Seed: 1}))(t)
	defer b.Close()
	must.Equal(t, b.Workload.String(), "image model: batch 1 x 3 x 224 x 224")
}

// Texts of an encoder's batch have lengths of their own, and their rows end in
// padding; the share is told, of inputs that are given too.
func TestPaddingOfTexts(t *testing.T) {
	f := must.Value(models.Lookup("optimum", "bert"))(t)
	path := filepath.Join(t.TempDir(), "model.onnx")
	must.Succeed(t, f.Write(path, 1))
	values, infos := made(t, path, Options{Seed: 1, Dims: map[string]int64{"batch": 64, "sequence": 200}})
	mask := data[int64](t, values["attention_mask"])
	lengths, hidden := map[int]bool{}, 0
	for row := range slices.Chunk(mask, 200) {
		n := slices.Index(row, 0)
		if n < 0 {
			n = 200
		}
		if n == 0 || slices.Contains(row[n:], 1) {
			t.Errorf("mask %v does not end in padding", row)
		}
		lengths[n] = true
		hidden += 200 - n
	}
	if !lengths[200] || len(lengths) < 30 {
		t.Errorf("%d lengths of 64 texts, want most of them different and one of 200", len(lengths))
	}
	if got, want := *infos["attention_mask"].Padding, float64(hidden)/float64(len(mask)); got != want || got < 0.3 ||
		got > 0.7 {
		t.Errorf("%g of the positions are padding, want %g", got, want)
	}
	given := npz(t, map[string][]byte{"attention_mask.npy": npyOf(1, "<i8", "False", "1, 4",
		append(make([]byte, 24), 1, 0, 0, 0, 0, 0, 0, 0))})
	b := must.Value(Make(library(t), path, Options{File: given}))(t)
	defer b.Close()
	must.Equal(t, b.Workload.String(), "encoder: batch 1 x 4 tokens, 75.0% padding")
}
