package textgen_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/textgen"
)

// A model that is written generates, and says what it lost; what cannot be written is one clear error of its kind,
// and nothing is left.
func TestQuantize(t *testing.T) {
	const g2p = "../models/g2p"
	accept := graft.Common{AcceptUnverified: true}
	words := []string{"hello", "world", "quantize"}
	out := filepath.Join(t.TempDir(), "out")
	q := must.Value(textgen.Quantize(t.Context(), g2p, out, textgen.QuantizeOptions{
		Common:        graft.Common{AcceptUnverified: true, Threads: 1},
		Weights:       textgen.Weights{Type: textgen.Int4, Logits: textgen.Int4},
		MaxDivergence: 10, Texts: words}))(t)
	if q.Weights != "int4,logits=int4,group=32,activations=int8" || q.BytesAfter >= q.BytesBefore ||
		!(q.Divergence > 0 && q.Divergence <= 10) || !(q.Perplexity >= 1 && q.ExportedPerplexity >= 1) {
		t.Errorf("%+v", q)
	}
	for _, l := range q.Layers {
		if l.Type != "int4" || l.File == "" || l.Weight == "" || l.Bytes <= 0 || !(l.Error > 0 && l.Error < 0.2) {
			t.Errorf("%+v", l)
		}
	}
	g := must.Value(textgen.New(t.Context(), out, textgen.Options{Common: accept}))(t)
	defer g.Close()
	if r, err := g.GenerateText(t.Context(), "hello", textgen.Search{}); err != nil || r == "" {
		t.Errorf("%v, %v", r, err)
	}

	full := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(full, "precious"), nil, 0o600))
	ended, end := context.WithCancel(t.Context())
	end()
	one := "../models/g2p/encoder_model.onnx"
	for _, c := range []struct {
		ctx     context.Context
		path    string
		out     string
		options textgen.QuantizeOptions
		kind    error
		want    string
	}{
		{t.Context(), g2p, "", textgen.QuantizeOptions{Weights: textgen.Weights{Type: "int5"}}, graft.ErrOption,
			"needed is float32, bf16, int8 or int4"},
		{t.Context(), g2p, "", textgen.QuantizeOptions{Weights: textgen.Weights{Type: textgen.BF16}}, graft.ErrOption,
			"no kernel of ONNX Runtime"},
		{t.Context(), g2p, "", textgen.QuantizeOptions{Weights: textgen.Weights{Type: textgen.Float32}}, graft.ErrOption,
			"quantises nothing"},
		{t.Context(), g2p, "", textgen.QuantizeOptions{Common: graft.Common{Threads: -1}}, graft.ErrOption,
			"Threads is -1: at least 1 is needed"},
		{t.Context(), g2p, "", textgen.QuantizeOptions{Calibrate: []string{"hello"}}, graft.ErrOption,
			"calibration of int8"},
		{t.Context(), g2p, "", textgen.QuantizeOptions{MaxDivergence: -1, Texts: []string{"hello"}}, graft.ErrOption,
			"MaxDivergence is -1"},
		{t.Context(), g2p, "", textgen.QuantizeOptions{MaxDivergence: 0.1}, graft.ErrOption,
			"a bound without texts"},
		{t.Context(), g2p, "", textgen.QuantizeOptions{MaxDivergence: 1e-12, Texts: []string{"hello"}}, graft.ErrBadModel,
			"no choice of types is within a mean divergence of 1e-12"},
		{t.Context(), one, "", textgen.QuantizeOptions{MaxDivergence: 0.1, Texts: []string{"hello"}}, graft.ErrOption,
			"a single file"},
		{t.Context(), "nowhere", "", textgen.QuantizeOptions{}, fs.ErrNotExist, "nowhere: cannot open it"},
		{t.Context(), "../docs", "", textgen.QuantizeOptions{}, graft.ErrBadModel, "found no .onnx in it"},
		{t.Context(), g2p, full, textgen.QuantizeOptions{}, nil, "found a folder that holds precious"},
		{t.Context(), g2p, "",
			textgen.QuantizeOptions{Weights: textgen.Weights{Type: textgen.Int4}, Calibrate: []string{"hello"},
				Common: graft.Common{Runtime: "nowhere.so"}},
			graft.ErrNoRuntime, "nowhere.so"},
		{t.Context(), g2p, "", textgen.QuantizeOptions{Texts: []string{"hello"}}, graft.ErrOption, "MaxDivergence is 0"},
		{t.Context(), g2p, "", textgen.QuantizeOptions{Common: graft.Common{Force: true}}, graft.ErrOption,
			"would be ignored"},
		{ended, g2p, "", textgen.QuantizeOptions{}, context.Canceled, ""},
	} {
		c.options.AcceptUnverified = true
		above, to := t.TempDir(), c.out
		if to == "" {
			to = filepath.Join(above, "out")
		}
		_, err := textgen.Quantize(c.ctx, c.path, to, c.options)
		if err == nil || c.kind != nil && !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error of the kind %v with %q", c.path, err, c.kind, c.want)
		}
		if left, _ := os.ReadDir(above); len(left) > 0 {
			t.Errorf("%s: %v is left", c.path, left)
		}
	}
}
