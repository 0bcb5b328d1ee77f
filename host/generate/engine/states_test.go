package engine_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/internal/must"
)

// unzipped writes a decoder with recurrent states.
func unzipped(t *testing.T, name string) string {
	t.Helper()
	dir, from := t.TempDir(), filepath.Join("../decode/testdata/states", name)
	for _, f := range must.Value(os.ReadDir(from))(t) {
		data := must.Value(os.ReadFile(filepath.Join(from, f.Name())))(t)
		to, zipped := strings.CutSuffix(f.Name(), ".gz")
		if zipped {
			data = must.Value(io.ReadAll(must.Value(gzip.NewReader(bytes.NewReader(data)))(t)))(t)
		}
		must.Succeed(t, os.WriteFile(filepath.Join(dir, to), data, 0o600))
	}
	return dir
}

// TestStatesMoveWithTheirRows: after beams have changed places, scores are those of each row's own tokens, and were one
// state left where it was, whichever, they would not be.
func TestStatesMoveWithTheirRows(t *testing.T) {
	l, set := open(t)
	for _, name := range []string{"lfm2", "falcon-h1", "bamba", "jamba", "mamba", "mamba2"} {
		t.Run(name, func(t *testing.T) {
			g := must.Value(decode.Open(t.Context(), unzipped(t, name),
				decode.Options{Library: l, Plugins: set, CacheBytes: 64 << 20}))(t)
			defer g.Close()
			e := g.Engine()
			step := func(s *engine.Sequence, prompt bool, tokens ...int64) []float32 {
				scores := must.Value(e.Step(t.Context(), []engine.Feed{{Sequence: s, Tokens: tokens, Prompt: prompt}}))(t)
				return slices.Clone(scores.Data)
			}
			prompt, chosen, last := []int64{7, 8, 9, 10, 11}, []int64{4, 20, 31, 42}, []int64{12, 13, 14, 15}
			parents := []int{3, 1, 0, 2}
			var want []float32
			for i, p := range parents {
				s := e.NewSequence()
				want = append(want, step(s, true, append(slices.Clone(prompt), chosen[p], last[i])...)...)
				s.Release()
			}
			for stale := -1; stale < e.States(); stale++ {
				s := e.NewSequence()
				step(s, true, prompt...)
				must.Succeed(t, s.Reorder(make([]int, len(parents))))
				step(s, false, chosen...)
				var old []float32
				if stale >= 0 {
					old = s.State(stale)
				}
				must.Succeed(t, s.Reorder(parents))
				if stale >= 0 {
					s.SetState(stale, old)
				}
				far := 0.0
				for i, x := range step(s, false, last...) {
					far = max(far, math.Abs(float64(x-want[i])))
				}
				s.Release()
				if moved := stale < 0; moved && far > 1e-3 || !moved && far < 1e-2 {
					t.Errorf("state %d left where it was (-1: none): scores are %g away", stale, far)
				}
			}
		})
	}
}
