package encoder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/host/generate/pipeline"
	"github.com/opgraft/graft/internal/must"
)

// lines reads n lines, of other lengths each.
func lines(n int) func() (string, error) {
	i := -1
	return func() (string, error) {
		if i++; i >= n {
			return "", io.EOF
		}
		return strings.Repeat("word ", i*7%23), nil
	}
}

// TestRunInOrder: vectors and rankings come in the order of the lines, whatever batches they were in.
func TestRunInOrder(t *testing.T) {
	o := options(t, true)
	o.Batch.MaxQueue, o.Batch.MaxTokens = 7, 60
	e := must.Value(OpenEmbedder(t.Context(), filepath.Join(encoders, "embedder"), o))(t)
	defer e.Close()
	var got [][]float32
	s, err := e.Run(t.Context(), lines(300), As{}, func(v Vector, _ Embedding) error {
		if v.Index != len(got) || v.Error != "" {
			return fmt.Errorf("line %d comes as number %d: %s", v.Index, len(got), v.Error)
		}
		got = append(got, v.Values)
		return nil
	}, pipeline.Options{})
	if err != nil || s.Lines != 300 || s.Failed != 0 || s.Rows != 300 || s.Dimensions != 32 {
		t.Fatalf("%+v, %v", s, err)
	}
	for i := range 23 { // lines of one length have one vector
		for j := i; j < 300; j += 23 {
			if !near(got[j], got[i]) {
				t.Fatalf("line %d is not as line %d", j, i)
			}
		}
	}
	r := must.Value(OpenReranker(t.Context(), filepath.Join(encoders, "reranker"), o))(t)
	defer r.Close()
	next := 0
	ranked, err := r.Run(t.Context(), lines(50), func(line string) (string, []string, error) {
		if line == "" {
			return "", nil, errors.New("an empty line")
		}
		return line, slices.Repeat([]string{"a", line, "b c"}, 9), nil
	}, 4, func(x Ranking) error {
		if x.Index != next || len(x.Results) != 4 && x.Error == "" ||
			!slices.IsSortedFunc(x.Results, func(a, b Document) int { return int(1e6 * (b.Score - a.Score)) }) {
			return fmt.Errorf("line %d: %+v", next, x)
		}
		next++
		return nil
	}, pipeline.Options{})
	if err != nil || ranked.Lines != 50 || ranked.Failed != 3 || ranked.Rows != 47*27 {
		t.Errorf("%+v, %v", ranked, err)
	}
}

// TestRunEnds: a failure to read or to write, and a context that ends, end a run with their errors.
func TestRunEnds(t *testing.T) {
	because := errors.New("because")
	e := must.Value(OpenEmbedder(t.Context(), filepath.Join(encoders, "embedder"), options(t, false)))(t)
	defer e.Close()
	written := func(Vector, Embedding) error { return nil }
	must.Fail(t, must.Error(e.Run(t.Context(), func() (string, error) { return "", because }, As{}, written,
		pipeline.Options{})), because)
	must.Fail(t, must.Error(e.Run(t.Context(), lines(500), As{}, func(v Vector, _ Embedding) error {
		if v.Index == 20 {
			return because
		}
		return nil
	}, pipeline.Options{})), because)
	ctx, cancel := context.WithCancelCause(t.Context())
	must.Fail(t, must.Error(e.Run(ctx, lines(1<<30), As{}, func(v Vector, _ Embedding) error {
		if v.Index == 20 {
			cancel(because)
		}
		return nil
	}, pipeline.Options{})), because)
	if _, err := e.Run(t.Context(), lines(3), As{Prompt: "summary"}, written, pipeline.Options{}); err == nil ||
		!strings.Contains(err.Error(), `no prompt "summary"`) {
		t.Errorf("an unknown prompt: %v", err)
	}
	if m := e.Metrics(); m.Waiting != 0 || m.Items != m.Computed+m.Cancelled {
		t.Errorf("metrics %+v", m)
	}
}

// TestFailingOperator: where graft's operators fail and the model does not, it runs without them from then on, with one
// warning; a file that changed meanwhile is not opened.
func TestFailingOperator(t *testing.T) {
	want := readExpected(t)
	for _, changes := range []bool{false, true} {
		var log bytes.Buffer
		dir := copied(t, "embedder", nil)
		o := options(t, true)
		o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		e := must.Value(OpenEmbedder(t.Context(), dir, o))(t)
		if !e.all[0].patched {
			t.Fatal("nothing was replaced, so that nothing can fail")
		}
		e.all[0].native.Close() // every run of it fails
		if changes {
			must.Succeed(t, os.WriteFile(filepath.Join(dir, "onnx", "model.onnx"), []byte("another"), 0o644))
		}
		for i := range 3 {
			row, err := e.Row(t.Context(), want.Texts[i], As{})
			must.Succeed(t, err)
			var call *batch.Call[Row, Embedding]
			if call, err = e.Start(t.Context(), row, false); err != nil {
				t.Fatal(err)
			}
			got, err := call.Wait(t.Context())
			if changes && (err == nil || !strings.Contains(err.Error(), "used after Close")) {
				t.Errorf("a changed file: %v, %v", got, err)
			}
			if !changes && (err != nil || !near(got.Dense, want.Embeddings["normalize"][i])) {
				t.Errorf("%v, %v", got, err)
			}
		}
		const warning = "an operator failed; the model runs without graft's operators from now on"
		must.Equal(t, strings.Count(log.String(), warning), map[bool]int{false: 1, true: 0}[changes], log.String())
		e.Close()
	}
}
