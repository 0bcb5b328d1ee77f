// Package quantization writes models whose linear layers have weights of eight or four bits, for any program that runs
// ONNX Runtime: each such layer becomes com.microsoft's MatMulNBits. The integers and scales are those that the
// generation engine makes of the same weights when it opens the model as exported, because the same plugin makes
// them.
package quantization

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/memory"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/capability"
)

// Options say how a model is quantised.
type Options struct {
	Plugins []*plugin.Plugin // one of them rounds: capability.PackPanels
	// Weights are the types of layers; see Check. Activations decide whether ONNX Runtime may round what is multiplied,
	// too.
	Weights prepare.Weights
	Threads int // 0: one a core
	// Step is told what begins, and Progress how many bytes of weights are done of how many; nil for none.
	Step     func(what string)
	Progress func(done, total int64)
	// of gives a weight another type than Weights says, by a hash of its numbers; nil for none.
	// important weighs what rounding to four bits costs; nil where all positions count as much: see Calibrate.
	important importance
	of        func(sum [sha256.Size]byte, usual prepare.WeightType) prepare.WeightType
}

// Check refuses types that files of ONNX Runtime's operators cannot have.
func Check(w prepare.Weights) error {
	switch {
	case w.Of(false) == prepare.BFloat16Weights || w.Of(true) == prepare.BFloat16Weights:
		return fmt.Errorf("%s: no kernel of ONNX Runtime on CPUs multiplies with bf16, so it would make float32 of the "+
			"file's weights again; needed is int8, int4 or float32, or --weights bf16 of graft generate, which rounds when "+
			"it opens the model", w)
	case !w.Integers():
		return fmt.Errorf("%s quantises nothing, needed is int8 or int4", w)
	case w.Activations == prepare.Int16Activations:
		return fmt.Errorf("%s: no operator of ONNX Runtime multiplies with activations of int16; needed is "+
			"activations=int8 or float32, or --weights int8 of graft generate, which has them", w)
	}
	return nil
}

// written is what a file has of what was asked for: activations of eight bits where nothing was said of them.
func written(w prepare.Weights) prepare.Weights {
	w.Activations = cmp.Or(w.Activations, prepare.Int8Activations)
	return w
}

// Report says what became of a model.
type Report struct {
	Requested string  `json:"requested"` // in the words of prepare.ParseWeights
	Graphs    []Graph `json:"graphs"`
	// Bytes of all files of the graphs, data beside them included.
	BytesBefore int64 `json:"bytes_before"`
	BytesAfter  int64 `json:"bytes_after"`
	// Copied are the other files of a folder, Left those that were not: the same weights as other frameworks store them.
	Copied []string `json:"copied"`
	Left   []string `json:"left"`
	// Chosen says how types were chosen within a bound; nil where there was none.
	Chosen *Chosen `json:"chosen,omitempty"`
}

// Graph is one file of a model.
type Graph struct {
	File   string  `json:"file"` // below the folder; its name where there is none
	Layers []Layer `json:"layers"`
	// Linear are the weights of linear layers by type, Float32 all others of float32, the most bytes first.
	Linear      []engine.LinearWeights  `json:"linear"`
	Float32     []engine.Float32Weights `json:"float32"`
	BytesBefore int64                   `json:"bytes_before"`
	BytesAfter  int64                   `json:"bytes_after"`
}

// Layer is a weight of one or several linear layers.
type Layer struct {
	Weight       string `json:"weight"` // its name
	Type         string `json:"type"`
	Depth        int64  `json:"depth"` // of what is multiplied with it
	Columns      int64  `json:"columns"`
	Bytes        int64  `json:"bytes"` // in the file, scales included
	Float32Bytes int64  `json:"float32_bytes"`
	// Error is what rounding moved the weight by: the root of the sum of squares, over that of the weight itself; 0 for
	// a weight of zeros, and math.MaxFloat64 for one with numbers that are not finite.
	Error float64 `json:"error"`
}

func (o *Options) step(what string) {
	if o.Step != nil {
		o.Step(what)
	}
}

func (o *Options) progress(done, total int64) {
	if o.Progress != nil {
		o.Progress(done, total)
	}
}

// File writes the model at path to another path, whole or not at all. A file that the model is read from is never
// written over.
func File(ctx context.Context, path, to string, o Options) (*Report, error) {
	x, err := read(path, filepath.Base(path), o)
	if err != nil {
		return nil, err
	}
	defer x.close()
	r := &Report{Requested: written(o.Weights).String(), Copied: []string{}, Left: []string{}}
	if err := r.write(ctx, []*export{x}, func(*export) string { return to }, o); err != nil {
		return nil, err
	}
	return r, nil
}

// write quantises exports one after the other, and writes each to its place.
func (r *Report) write(ctx context.Context, list []*export, place func(*export) string, o Options) error {
	by, _, err := plugin.Provider(o.Plugins, capability.PackPanels, nil)
	if err != nil {
		return err
	}
	if err := engine.Quantizes(by, o.Weights); err != nil {
		return err
	}
	if o.Threads == 0 {
		o.Threads = runtime.NumCPU()
	}
	var total, done int64
	quantised := false
	for _, x := range list {
		for _, m := range x.chosen {
			total += m.float32Bytes()
			quantised = true
		}
	}
	if !quantised { // before anything is written
		return nothing(list)
	}
	for _, x := range list {
		o.step("quantising " + x.file)
		if err := x.fits(); err != nil {
			return err
		}
		for _, m := range x.chosen {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := x.quantise(m, by, o); err != nil {
				return modelError(x.path, err)
			}
			done += m.float32Bytes()
			o.progress(done, total)
		}
		if err := x.commit(); err != nil {
			return modelError(x.path, err)
		}
		to := place(x)
		o.step("writing " + x.file)
		if err := x.model.Write(ctx, x.model.Proto(), to, model.WriteOptions{}); err != nil {
			return err
		}
		g, err := x.report(to)
		if err != nil {
			return err
		}
		r.Graphs = append(r.Graphs, *g)
		r.BytesBefore, r.BytesAfter = r.BytesBefore+g.BytesBefore, r.BytesAfter+g.BytesAfter
		x.close() // what it wrote may be large
	}
	return nil
}

// nothing is the error of a model of which no layer can be quantised.
func nothing(list []*export) error {
	var most engine.Float32Weights
	for _, x := range list {
		for _, f := range x.float32() {
			if f.Bytes > most.Bytes {
				most = f
			}
		}
	}
	found := "found no weights that could be quantised"
	if most.Tensors > 0 {
		found += fmt.Sprintf("; most are %d tensors: %s", most.Tensors, most.Reason)
	}
	return &diagnostic.Error{Path: list[0].path, Found: found, Needed: "MatMul or Gemm with constant weights of float32",
		Fix: "quantise the model as it was exported, in float32"}
}

// fits is an error where what a file's weights become needs more memory than there is.
func (x *export) fits() error {
	size := int64(0)
	for _, m := range x.chosen {
		size += m.bytes()
	}
	if left := memory.Available(); left > 0 && size > left {
		return &diagnostic.Error{Kind: model.ErrTooLarge, Path: x.path,
			Found:  fmt.Sprintf("quantised weights need more memory than there is: found %d bytes", size),
			Needed: fmt.Sprintf("at most %d", left), Fix: "use a machine with more memory"}
	}
	return nil
}

// report says what became of a file that is written.
func (x *export) report(to string) (*Graph, error) {
	g := &Graph{File: x.file, Layers: []Layer{}, Linear: []engine.LinearWeights{}, Float32: x.float32(),
		BytesBefore: x.size}
	counts := map[string]*engine.LinearWeights{}
	for _, m := range x.chosen {
		g.Layers = append(g.Layers,
			Layer{Weight: m.value.Name, Type: string(m.as), Depth: m.depth, Columns: m.columns, Bytes: m.bytes(),
				Float32Bytes: m.float32Bytes(), Error: m.off})
		c := counts[string(m.as)]
		if c == nil {
			c = &engine.LinearWeights{Type: string(m.as)}
			counts[c.Type] = c
		}
		c.Matrices, c.Bytes, c.Float32Bytes = c.Matrices+1, c.Bytes+m.bytes(), c.Float32Bytes+m.float32Bytes()
	}
	for _, c := range counts {
		g.Linear = append(g.Linear, *c)
	}
	slices.SortFunc(g.Linear, func(a, b engine.LinearWeights) int { return cmp.Compare(b.Float32Bytes, a.Float32Bytes) })
	written, err := model.Open(to)
	if err != nil {
		return nil, err
	}
	defer written.Close()
	g.BytesAfter, _, err = filesOf(written)
	return g, err
}
