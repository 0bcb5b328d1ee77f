package hostile

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/internal/sample"
	"github.com/opgraft/graft/models"
)

// subject is a graph as an exporter wrote it, with blocks that are replaced.
func subject(t *testing.T) []byte {
	t.Helper()
	f := must.Value(models.Lookup("optimum", "gpt2"))(t)
	data := must.Value(f.Bytes(1))(t)
	return data
}

// flips gives n positions, most of them where the structure lies and not the
// weights: within a window around names.
func flips(data []byte, n int, seed uint64) []int {
	r := rand.New(rand.NewPCG(seed, 1))
	list := make([]int, n)
	for i := range list {
		list[i] = r.IntN(len(data))
		// Weights are long runs of bytes; names are letters. Three in four
		// positions must lie near letters.
		for tries := 0; i%4 != 0 && tries < 1000 && !nearLetters(data, list[i]); tries++ {
			list[i] = r.IntN(len(data))
		}
	}
	return list
}

func nearLetters(data []byte, at int) bool {
	low, high := max(at-24, 0), min(at+24, len(data))
	run := 0
	for _, c := range data[low:high] {
		if c >= 'a' && c <= 'z' || c == '_' || c == '.' || c == '/' {
			if run++; run >= 6 {
				return true
			}
		} else {
			run = 0
		}
	}
	return false
}

// TestBitFlips: a model with one bit changed, at many places, is refused in one
// line or patched; the whole way, fold and writing included.
func TestBitFlips(t *testing.T) {
	data := subject(t)
	set := must.Value(loaded.Load([]string{filepath.Join("..", "..", "build", "plugins")}, true))(t)
	folder := t.TempDir()
	path, out := filepath.Join(folder, "model.onnx"), filepath.Join(folder, "out.onnx")
	tried, refused := 0, 0
	for i, at := range flips(data, 400, 11) {
		if !sample.Has(i, 4) {
			continue
		}
		tried++
		bit := byte(1) << (i % 8)
		data[at] ^= bit
		write(t, path, data)
		err := whole(t, path, out, set)
		data[at] ^= bit
		if err != nil {
			refused++
			text := err.Error()
			if !strings.Contains(text, path) || strings.Contains(text, "\n") || strings.Contains(text, "fault in its analysis") {
				t.Errorf("byte %d, bit %#x: error %q", at, bit, text)
			}
		}
		if err := os.Remove(out); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if got := names(t, folder); got != "model.onnx" {
			t.Fatalf("byte %d, bit %#x leaves %s behind", at, bit, got)
		}
	}
	if refused < tried/20 || refused == tried {
		t.Errorf("%d of %d were refused: the flips do not reach what they should", refused, tried)
	}
}

// whole leads a model along its whole way to a file.
func whole(t *testing.T, path, out string, set *loaded.Set) error {
	m, err := model.Open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	a, err := patch.Analyse(t.Context(), m, set.Manifests(), set.Plan(plan.Options{Force: true}))
	if err != nil || a.Plan.Replaced() == 0 {
		return err
	}
	if err := a.Apply(t.Context()); err != nil {
		return err
	}
	return a.Write(t.Context(), out, model.WriteOptions{})
}

// TestTruncations: a model cut off anywhere is an error that says so.
func TestTruncations(t *testing.T) {
	data := subject(t)
	path := filepath.Join(t.TempDir(), "model.onnx")
	r := rand.New(rand.NewPCG(5, 5))
	for range 200 {
		n := r.IntN(len(data))
		write(t, path, data[:n])
		m, err := model.Open(path)
		if err == nil {
			// Cut between two fields: the graph must be there whole.
			_, err = patch.Analyse(t.Context(), m, []*manifest.Manifest{}, plan.Options{})
			m.Close()
			if err == nil {
				continue
			}
		}
		if !strings.HasPrefix(err.Error(), path+": ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%d of %d bytes: error %q", n, len(data), err)
		}
	}
}

// TestSessionsOfFlips: sessions of models with one bit changed, through the
// hook: ONNX Runtime's own error, or a session and one line in the log. A sample is a quarter of them.
func TestSessionsOfFlips(t *testing.T) {
	data := subject(t)
	folder := must.Value(filepath.Abs(filepath.Join("..", "..", "build", "plugins")))(t)
	path := filepath.Join(t.TempDir(), "model.onnx")
	patched, unpatched := 0, 0
	for i, at := range flips(data, 60, 23) {
		if !sample.Has(i, 4) {
			continue
		}
		bit := byte(1) << (i % 8)
		data[at] ^= bit
		write(t, path, data)
		data[at] ^= bit
		disable(t)
		bare := attempt(path)
		log := enable(t, graft.Options{Common: graft.Common{Folders: []string{folder}}})
		err := attempt(path)
		lines := log.take(t)
		must.Equal(t, (bare == nil), err == nil, at, bit)
		switch {
		case err != nil && len(lines) > 1, err == nil && len(lines) != 1:
			t.Errorf("byte %d, bit %#x: %v, the log says %+v", at, bit, err, lines)
		case err == nil && lines[0].Level == "WARN":
			unpatched++
		case err == nil:
			patched++
		}
	}
	t.Logf("%d patched, %d made unpatched", patched, unpatched)
	if patched == 0 {
		t.Error("no session was patched")
	}
}

// attempt makes a session of a model whose inputs and outputs are not known and closes it.
func attempt(path string) error {
	s, err := session(path)
	if err == nil {
		s.Destroy()
	}
	return err
}
