package engine_test

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/measure/quantization"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// TestQuantizedFoldersHaveTheSameNumbers: integers that are written ahead stand for the numbers that those of an
// engine do, bit for bit.
func TestQuantizedFoldersHaveTheSameNumbers(t *testing.T) {
	l, set := open(t)
	for _, c := range []struct{ model, weights string }{
		{"gpt2", "int8"}, {"bart", "int4"}, {"bart", "int8,group=128"}, {"llama", "int4,logits=int4,group=64"},
		{"t5", "int8"}, {"whisper", "int4,logits=float32"},
		{"gpt2", "int4,zero-points=true"}, {"bart", "int8,zero-points=true,group=128"},
		{"llama", "int4,logits=int4,group=64,zero-points=true"},
	} {
		if testing.Short() && c.model != "gpt2" && c.weights != "int4" {
			continue
		}
		w := must.Value(prepare.ParseWeights(c.weights))(t)
		dir, to := t.TempDir(), filepath.Join(t.TempDir(), "out")
		must.Succeed(t, models.Small(c.model, dir))
		must.Value(quantization.Folder(t.Context(), dir, to,
			quantization.Options{Plugins: set.Plugins, Weights: w}))(t)
		g := must.Value(decode.Prepare(t.Context(), dir,
			decode.Options{Library: l, Plugins: set,
				Attention: prepare.Attention{Self: plan.KeysValues, Cross: plan.KeysValues}}))(t)
		for _, part := range []struct {
			path  string
			graph *prepare.Graph
		}{{g.Model.Files.Decoder, g.Decoder}, {g.Model.Files.First, g.Filler}, {g.Model.Files.Encoder, g.Encoder}} {
			if part.graph == nil {
				continue
			}
			want := must.Value(engine.Dequantized(part.graph, engine.Options{Library: l, Plugins: set, Weights: w}))(t)
			file := filepath.Join(to, filepath.Base(part.path))
			got := integersOf(t, file)
			for name, numbers := range want {
				compare(t, c.model+", "+c.weights+", "+filepath.Base(file)+", "+name, got[name], numbers)
			}
			if len(want) == 0 {
				t.Errorf("%s: the engine stores no integers", file)
			}
		}
		g.Close()
	}
}

// compare wants the numbers of a weight, which may lie transposed.
func compare(t *testing.T, what string, got func(transposed bool) []float32, want []float32) {
	t.Helper()
	if got == nil {
		t.Errorf("%s: not in the file", what)
		return
	}
	least := len(want)
	for _, transposed := range []bool{false, true} {
		other := 0
		for i, x := range got(transposed) {
			if math.Float32bits(x) != math.Float32bits(want[i]) && x != want[i] { // 0 times a scale below it is -0
				other++
			}
		}
		least = min(least, other)
	}
	if least > 0 {
		t.Errorf("%s: %d of %d numbers differ", what, least, len(want))
	}
}

// integersOf are the numbers that the integers of a file stand for, by the names of the weights that they were made of.
func integersOf(t *testing.T, path string) map[string]func(transposed bool) []float32 {
	t.Helper()
	m := must.Value(model.Open(path))(t)
	defer m.Close()
	constants := map[string]*onnx.Tensor{}
	for _, c := range m.Proto().Graph.Initializer {
		constants[c.GetName()] = c
	}
	found := map[string]func(bool) []float32{}
	for _, n := range m.Proto().Graph.Node {
		if n.GetOpType() != "MatMulNBits" {
			continue
		}
		of := map[string]int64{}
		for _, a := range n.Attribute {
			of[a.GetName()] = a.GetI()
		}
		q := must.Value(m.Data(constants[n.Input[1]]))(t)
		s := must.Value(m.Data(constants[n.Input[2]]))(t)
		depth, columns, group, bits := of["K"], of["N"], of["block_size"], of["bits"]
		groups := (depth + group - 1) / group
		zero := func(column, g int64) int { return 1 << (bits - 1) }
		if len(n.Input) > 3 {
			z := must.Value(m.Data(constants[n.Input[3]]))(t)
			if bits == 4 {
				zero = func(column, g int64) int { return int(z[column*((groups+1)/2)+g/2]) >> (g % 2 * 4) & 15 }
			} else {
				zero = func(column, g int64) int { return int(z[column*groups+g]) }
			}
		}
		found[n.Input[1][:len(n.Input[1])-len("_quantized")]] = func(transposed bool) []float32 {
			out := make([]float32, depth*columns)
			for column := range columns {
				for k := range depth {
					at := column*groups*group + k
					stands := int(q[at*bits/8])
					if bits == 4 {
						stands = stands >> (at % 2 * 4) & 15
					}
					x := float32(stands-zero(column, k/group)) * math.Float32frombits(
						binary.LittleEndian.Uint32(s[4*(column*groups+k/group):]))
					if transposed {
						out[column*depth+k] = x
					} else {
						out[k*columns+column] = x
					}
				}
			}
			return out
		}
	}
	return found
}
