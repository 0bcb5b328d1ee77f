package parity

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/internal/sample"
	"github.com/opgraft/graft/models"
)

// lies are what an exporter may have called the axes of a tensor instead.
var lies = map[string]func(names []string){
	// The names of one tensor's axes, each on another axis.
	"swapped": func(names []string) {
		var at []int
		for i, name := range names {
			if name != "" {
				at = append(at, i)
			}
		}
		for i, j := 0, len(at)-1; i < j; i, j = i+1, j-1 {
			names[at[i]], names[at[j]] = names[at[j]], names[at[i]]
		}
	},
	"merged": func(names []string) {
		for i, name := range names {
			if name != "" {
				names[i] = "batch"
			}
		}
	},
	"dropped": func(names []string) { clear(names) },
	// The names say nothing, and two are the same only where they were before.
	"meaningless": func(names []string) {
		for i, name := range names {
			if name != "" {
				names[i] = fmt.Sprintf("x%x", name)
			}
		}
	},
}

// reused is what ONNX Runtime itself says of a model under some names: it takes equal
// names for equal lengths when it plans memory.
const reused = "ONNX Runtime itself: shape mismatch attempting to re-use buffer"

// noReference are models that ONNX Runtime does not run under their names.
var noReference = map[string]string{
	"dynamo18/gpt2 merged":         reused,
	"dynamo18/gpt2-no-past merged": reused,
	"dynamo18/llama merged":        reused,
	"dynamo23/gpt2 merged":         reused,
	"dynamo23/gpt2-no-past merged": reused,
	"dynamo23/llama merged":        reused,
	"ortopt/gpt2-attention merged": reused,
}

// noDefaults are models that ONNX Runtime itself cannot run with the lengths that synthetic
// inputs have: one name for lengths of decoder and encoder makes it reuse buffers of another size.
// Sound whose length is called that of a batch is too short for a convolution.
var noDefaults = map[string]bool{
	"optimum/bart-decoder merged": true, "optimum/bart-decoder-with-past merged": true,
	"optimum/whisper-decoder-with-past merged": true,
	"ortopt/bart-decoder merged":               true,
	"families/hubert merged":                   true, "families/hubert swapped": true, "families/wav2vec2 merged": true,
	"families/wav2vec2 swapped": true,
	"families/wavlm merged":     true, "families/wavlm swapped": true,
}

// fewer are the blocks that are left unchanged where names say nothing: lengths that
// are broadcast to each other may be 1, and a reshape to lengths of another input
// cannot be followed. Each choice of the plan says so.
var fewer = map[string]int{
	"dynamo18/llama dropped": 2, "dynamo23/llama dropped": 1,
	"families/bigbird dropped": 2, "families/deberta dropped": 2, "families/deberta-v2 dropped": 2,
	"families/deberta-v3 dropped": 2,
	"families/electra dropped":    2, "families/mpnet dropped": 2, "families/roformer dropped": 2,
	"families/speecht5-encoder dropped": 2,
	"optimum/bart-decoder dropped":      2, "optimum/bart-decoder swapped": 2,
	"optimum/bart-decoder-merged dropped": 2, "optimum/bart-decoder-merged swapped": 2,
	"optimum/gpt2 dropped":               2,
	"optimum/gpt2-eager dropped":         2,
	"optimum/gpt2-merged dropped":        4,
	"optimum/gpt2-runtime-scale dropped": 2,
}

// TestDeclaredNames: what a model calls its lengths says nothing about them. Whatever
// the names, the patched model agrees with the unpatched one, as many blocks are
// replaced, and inputs can be made. A sample is a sixth of the fixtures, each with one kind of names.
func TestDeclaredNames(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	for i, f := range models.Fixtures() {
		if f.Exporter == "full" || !sample.Has(i, 6) {
			continue
		}
		t.Run(f.String(), func(t *testing.T) {
			honest := filepath.Join(t.TempDir(), "model.onnx")
			must.Succeed(t, f.Write(honest, 1))
			// Rows, tokens and past are of three lengths.
			at := maps.Clone(others)
			maps.Copy(at, points[1])
			if unrunnable[f.String()+"/1"] != "" {
				maps.Copy(at, points[0])
			}
			o := comparison.Options{A: "none", B: "auto", Force: true,
				Inputs: inputs.Options{Seed: 1, Dims: at, LooseDims: true}}
			needed := same(t, l, set, honest, o)
			names := slices.Sorted(maps.Keys(lies))
			if number, all := sample.Number(); !all { // one for each fixture, in turn
				names = names[(i/6+number)%len(names):][:1]
			}
			for _, lie := range names {
				t.Run(lie, func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "model.onnx")
					renameAxes(t, honest, path, lies[lie])
					name := f.String() + " " + lie
					if why := noReference[name]; why != "" {
						t.Logf("there is no reference: %s", why)
						return
					}
					// Both sides are fed what is made for the model whose names are right.
					o := o
					o.ModelB = path
					must.Equal(t, same(t, l, set, honest, o), needed-fewer[name])
					if noDefaults[name] {
						return
					}
					same(t, l, set, path, comparison.Options{A: "none", B: "auto", Force: true, Inputs: inputs.Options{Seed: 1}})
				})
			}
		})
	}
}

// renameAxes copies a model with other names for the axes of its tensors.
func renameAxes(t *testing.T, from, to string, lie func([]string)) {
	t.Helper()
	b, err := os.ReadFile(from)
	must.Succeed(t, err)
	m := &onnx.Model{}
	must.Succeed(t, proto.Unmarshal(b, m))
	for _, list := range [][]*onnx.ValueInfo{m.Graph.Input, m.Graph.Output, m.Graph.ValueInfo} {
		for _, v := range list {
			dims := v.GetType().GetTensorType().GetShape().GetDim()
			names := make([]string, len(dims))
			for i, d := range dims {
				names[i] = d.GetDimParam()
			}
			lie(names)
			for i, d := range dims {
				switch {
				case names[i] != "":
					d.Value = &onnx.Shape_Dim_DimParam{DimParam: names[i]}
				case d.GetDimParam() != "":
					d.Value = nil
				}
			}
		}
	}
	if b, err = proto.Marshal(m); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, os.WriteFile(to, b, 0o644))
}
