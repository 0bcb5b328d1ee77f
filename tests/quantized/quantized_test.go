package quantized

import (
	"bytes"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/cpu"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
)

// TestBits: encoders that ONNX Runtime's own tool quantised, and rows that are rounded in special ways, have the
// answers of an unpatched session to the bit. By default operators stand there where the CPU has VNNI, and nowhere
// else.
func TestBits(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	for _, m := range quantized(t, "") {
		name := strings.TrimSuffix(filepath.Base(m.path), ".onnx")
		if m.inputs != "" {
			t.Run(name+"/"+strings.TrimSuffix(filepath.Base(m.inputs), ".npz"), func(t *testing.T) {
				same(t, l, set, comparison.Options{Inputs: inputs.Options{File: m.inputs}}, m.path)
			})
			continue
		}
		for _, shape := range [][2]int64{{1, 1}, {1, 32}, {2, 7}, {3, 17}, {8, 64}, {5, 61}, {16, 8}} {
			t.Run(fmt.Sprintf("%s/%dx%d", name, shape[0], shape[1]), func(t *testing.T) {
				dims := map[string]int64{"batch_size": shape[0], "sequence_length": shape[1]}
				same(t, l, set, comparison.Options{Inputs: inputs.Options{Seed: 1, Dims: dims, LooseDims: true}}, m.path)
			})
		}
	}
}

// same holds that a patched session gives the bits of an unpatched one.
func same(t *testing.T, l *ort.Library, set *loaded.Set, o comparison.Options, path string) {
	t.Helper()
	for _, threads := range []int{1, 2} {
		o.A, o.B, o.Threads = "none", "quantized-linear", threads
		o.Absolute, o.Relative = math.SmallestNonzeroFloat32, math.SmallestNonzeroFloat64
		r := must.Value(comparison.Answers(t.Context(), l, set, path, o))(t)
		must.Equal(t, (r.B.Replaced > 0), cpu.X86.HasAVX512VNNI && cpu.X86.HasAVX512BW, r.B.Replaced, r.B.Blocks)
		for _, out := range r.Parity.Outputs {
			if !out.OK || out.MaxAbsolute != 0 {
				t.Errorf("%d threads: %s %v: %s, %d differ, at most by %g", threads, out.Name, out.Shape, out.Problem, out.Disagree,
					out.MaxAbsolute)
			}
		}
	}
}

// quantizedModel is a model, and inputs for it; without them they are synthetic.
type quantizedModel struct{ path, inputs string }

// quantized has ONNX Runtime's tool quantise models; with "--static" by scales of calibration.
func quantized(t *testing.T, way string) (list []quantizedModel) {
	t.Helper()
	root := filepath.Join("..", "..")
	program := filepath.Join(root, "build", "peers", "new", "bin", "python")
	encoders := filepath.Join(root, "models", "encoders")
	args := slices.DeleteFunc([]string{"quantize.py", way, filepath.Join(encoders, "embedder", "onnx", "model.onnx"),
		filepath.Join(encoders, "reranker", "model.onnx"), t.TempDir()}, func(arg string) bool { return arg == "" })
	cmd := exec.CommandContext(t.Context(), program, args...)
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v; `make peers` makes the environment\n%s", program, err, talk.String())
	}
	for line := range strings.Lines(out.String()) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		list = append(list, quantizedModel{path, file})
	}
	if len(list) == 0 {
		t.Fatal("no model was made")
	}
	return list
}
