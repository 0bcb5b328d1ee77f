// Package parity runs the fixture graphs patched against unpatched.
package parity

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/internal/sample"
	"github.com/opgraft/graft/models"
)

// points are the lengths at which a fixture is run: one token after a past, a
// chunk after a past, rows of several lengths, no past at all. Names that a
// model does not have are left out of its points.
var points = []map[string]int64{
	{"batch_size": 1, "sequence_length": 1, "past_sequence_length": 16},
	{"batch_size": 3, "sequence_length": 5, "past_sequence_length": 37},
	{"batch_size": 2, "sequence_length": 33, "past_sequence_length": 0},
}

// others are lengths that some fixtures have beside those of points.
var others = map[string]int64{
	"past_decoder_sequence_length": 21, "encoder_sequence_length": 29, "past_encoder_sequence_length": 29,
	"decoder_sequence_length": 1, "kv_cache_dim": 16,
	"num_channels": 3, "height": 32, "width": 32, "text_batch_size": 2, "image_batch_size": 2, "samples": 400,
}

// unrunnable are points at which ONNX Runtime itself gives no answer to compare
// with.
var unrunnable = map[string]string{
	"genai/llama/1":      "GroupQueryAttention takes several tokens after a past for one row only",
	"genai/llama-int4/1": "GroupQueryAttention takes several tokens after a past for one row only",
	"ortopt/gpt2/2":      "padded rows are NaN in layer 0 and ONNX Runtime's matmuls spread them over the batch row",
}

func TestFixtures(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	for n, f := range models.Fixtures() {
		if f.Exporter == "full" {
			continue
		}
		t.Run(f.String(), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model.onnx")
			must.Succeed(t, f.Write(path, 1))
			for i, dims := range points {
				if !sample.Has(n+i, 2) {
					continue
				}
				if why := unrunnable[fmt.Sprintf("%s/%d", f, i)]; why != "" {
					t.Logf("point %d has no reference: %s", i, why)
					continue
				}
				at := maps.Clone(others)
				maps.Copy(at, dims)
				o := comparison.Options{A: "none", B: "auto", Force: true,
					Inputs: inputs.Options{Seed: uint64(i + 1), Dims: at, LooseDims: true}}
				t.Run(fmt.Sprint(i), func(t *testing.T) { same(t, l, set, path, o) })
			}
			if strings.HasSuffix(f.Name, "-merged") {
				at := maps.Clone(others)
				maps.Copy(at, map[string]int64{"batch_size": 2, "sequence_length": 7, "decoder_sequence_length": 7,
					"past_sequence_length": 0, "past_decoder_sequence_length": 0})
				o := comparison.Options{A: "none", B: "auto", Force: true,
					Inputs: inputs.Options{Seed: 9, Dims: at, LooseDims: true, NoCache: true}}
				t.Run("without-cache", func(t *testing.T) { same(t, l, set, path, o) })
			}
		})
	}
}

// same runs a model patched and unpatched and expects equal answers, of ONNX Runtime without its optimisations
// too: they may make the mistake that a pattern makes. It returns the number of blocks replaced.
func same(t *testing.T, l *ort.Library, set *loaded.Set, path string, o comparison.Options) int {
	t.Helper()
	o.Unoptimized = true
	r, err := comparison.Answers(context.Background(), l, set, path, o)
	if err != nil {
		t.Error(err)
		return -1
	}
	t.Logf("%d of %d blocks replaced", r.B.Replaced, r.B.Blocks)
	for _, out := range r.Parity.Outputs {
		// Beside a recurrent layer roundings add up: what agrees with the model as ONNX Runtime runs it without its
		// optimisations is an answer of the model's too.
		if !out.OK && (out.Unoptimized == nil || out.Unoptimized.Disagree > 0) {
			t.Errorf("%s: %s, %d of %v differ, max %g absolute, %g relative", out.Name, out.Problem, out.Disagree, out.Shape,
				out.MaxAbsolute, out.MaxRelative)
		}
		if out.SameMistake() {
			t.Errorf("%s: %d of %v differ from ONNX Runtime without optimisations, max %g", out.Name, out.Unoptimized.Disagree,
				out.Shape, out.Unoptimized.MaxAbsolute)
		}
	}
	return r.B.Replaced
}
