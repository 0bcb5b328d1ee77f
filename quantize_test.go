package graft_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft"
)

// A model that is written generates, and says what it lost; what cannot be written is one clear error of its kind,
// and nothing is left.
func TestQuantize(t *testing.T) {
	accept := graft.AcceptUnverified()
	words := []string{"hello", "world", "quantize"}
	out := filepath.Join(t.TempDir(), "out")
	q, err := graft.Quantize(t.Context(), "models/g2p", out, accept, graft.Threads(1), graft.Weights("int4,logits=int4"),
		graft.MaxDivergence(10, words...))
	if err != nil {
		t.Fatal(err)
	}
	if q.Weights != "int4,logits=int4,group=32,activations=int8" || q.BytesAfter >= q.BytesBefore ||
		!(q.Divergence > 0 && q.Divergence <= 10) || !(q.Perplexity >= 1 && q.ExportedPerplexity >= 1) {
		t.Errorf("%+v", q)
	}
	for _, l := range q.Layers {
		if l.Type != "int4" || l.File == "" || l.Weight == "" || l.Bytes <= 0 || !(l.Error > 0 && l.Error < 0.2) {
			t.Errorf("%+v", l)
		}
	}
	g, err := graft.NewGenerator(t.Context(), out, accept)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if r, err := g.GenerateText(t.Context(), "hello"); err != nil || r.Sequences[0].Text == "" {
		t.Errorf("%v, %v", r, err)
	}

	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	one := "models/g2p/encoder_model.onnx"
	for _, c := range []struct {
		ctx     context.Context
		path    string
		out     string
		options []graft.QuantizeOption
		kind    error
		want    string
	}{
		{t.Context(), "models/g2p", "", []graft.QuantizeOption{graft.Weights("int5")}, graft.ErrOption,
			"needed is float32, bf16, int8 or int4"},
		{t.Context(), "models/g2p", "", []graft.QuantizeOption{graft.Weights("bf16")}, graft.ErrOption,
			"no kernel of ONNX Runtime"},
		{t.Context(), "models/g2p", "", []graft.QuantizeOption{graft.Weights("float32")}, graft.ErrOption,
			"quantises nothing"},
		{t.Context(), "models/g2p", "", []graft.QuantizeOption{graft.Threads(0)}, graft.ErrOption,
			"Threads is 0: at least 1 is needed"},
		{t.Context(), "models/g2p", "", []graft.QuantizeOption{graft.Calibrate("hello")}, graft.ErrOption,
			"calibration of int8"},
		{t.Context(), "models/g2p", "", []graft.QuantizeOption{graft.MaxDivergence(0, "hello")}, graft.ErrOption,
			"MaxDivergence is 0"},
		{t.Context(), "models/g2p", "", []graft.QuantizeOption{graft.MaxDivergence(0.1)}, graft.ErrOption,
			"a bound without texts"},
		{t.Context(), "models/g2p", "", []graft.QuantizeOption{graft.MaxDivergence(1e-12, "hello")}, graft.ErrBadModel,
			"no choice of types is within a mean divergence of 1e-12"},
		{t.Context(), one, "", []graft.QuantizeOption{graft.MaxDivergence(0.1, "hello")}, graft.ErrOption, "a single file"},
		{t.Context(), "nowhere", "", nil, fs.ErrNotExist, "nowhere: cannot open it"},
		{t.Context(), "docs", "", nil, graft.ErrBadModel, "found no .onnx in it"},
		{t.Context(), "models/g2p", full, nil, nil, "found a folder that holds precious"},
		{t.Context(), "models/g2p", "",
			[]graft.QuantizeOption{graft.Weights("int4"), graft.Calibrate("hello"), graft.Runtime("nowhere.so")},
			graft.ErrNoRuntime, "nowhere.so"},
		{ended, "models/g2p", "", nil, context.Canceled, ""},
	} {
		above, to := t.TempDir(), c.out
		if to == "" {
			to = filepath.Join(above, "out")
		}
		_, err := graft.Quantize(c.ctx, c.path, to, append(c.options, accept)...)
		if err == nil || c.kind != nil && !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error of the kind %v with %q", c.path, err, c.kind, c.want)
		}
		if left, _ := os.ReadDir(above); len(left) > 0 {
			t.Errorf("%s: %v is left", c.path, left)
		}
	}
}
