// Package inputs gives a model what it is fed: arrays of a file or folder, and
// synthetic ones of what its inputs mean.
package inputs

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/opgraft/graft/host/base/half"
	"github.com/opgraft/graft/host/base/memory"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/patch"
)

// Options say what a model is fed.
type Options struct {
	File string // .npz file or ONNX test-data folder; "" makes inputs from Seed
	Dims map[string]int64
	// LooseDims passes over lengths in Dims that the model does not have.
	LooseDims bool
	Seed      uint64
	NoCache   bool // merged decoders take the branch without a past
	// Lengths stand in place of the usual ones of a kind of model, where Dims say nothing.
	Lengths map[roles.Length]int64
}

// Info describes one input.
type Info struct {
	Name  string  `json:"name"`
	Type  string  `json:"type"`
	Shape []int64 `json:"shape"`
	From  string  `json:"from"` // what the values mean: "mask", "positions", "tokens" ...
	// Padding is the share of positions that a mask hides; nil for other inputs.
	Padding *float64 `json:"padding,omitempty"`
}

// Batch is what a model is fed in one run.
type Batch struct {
	Values   map[string]*ort.Value
	Infos    []Info
	Workload Workload
	// Lengths are those of the run, by the symbols that [graph.Infer] gives them.
	Lengths map[string]int64
}

// Close frees the values.
func (b *Batch) Close() {
	if b == nil {
		return
	}
	for _, v := range b.Values {
		v.Close()
	}
}

// Make gives values for all inputs of a model: read from a file or folder, or
// synthetic. The batch is the caller's to close.
func Make(l *ort.Library, path string, o Options) (*Batch, error) {
	file, err := model.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return inputsOf(l, file, o, readFile)
}

// Of gives synthetic values for all inputs of a model that is open. Options name no file: reading one is left out of
// programs that only enable graft.
func Of(l *ort.Library, file *model.Model, o Options) (*Batch, error) {
	return inputsOf(l, file, o, func(path string, _ *graph.Graph) (map[string]array, error) {
		return nil, fmt.Errorf("found the file of inputs %s, needed none: they are synthetic here", path)
	})
}

func inputsOf(l *ort.Library, file *model.Model, o Options,
	read func(path string, g *graph.Graph) (map[string]array, error)) (_ *Batch, err error) {
	path := cmp.Or(file.Path(), "model bytes")
	x, err := patch.View(context.Background(), file, file.Proto())
	if err != nil {
		return nil, err
	}
	g, shapes, report := x.Graph, x.Shapes, x.Report
	var r *roles.Roles
	if err := x.Within(context.Background(), func() error {
		r = roles.Find(g, shapes, report)
		return nil
	}); err != nil {
		return nil, err
	}
	m := &maker{graph: g, shapes: shapes, roles: r, kind: kindOf(g, shapes, r, report), seed: o.Seed,
		random: rand.New(rand.NewPCG(o.Seed, 0x67726166)), noCache: o.NoCache, left: maxInputBytes}
	if free := memory.Available(); free > 0 {
		m.left = min(m.left, free/4)
	}
	var given map[string]array
	if o.File != "" {
		if given, err = read(o.File, g); err != nil {
			return nil, err
		}
	}
	// What has a default is left out, as callers do: weights that a graph lists among its inputs.
	g.Inputs = slices.DeleteFunc(g.Inputs, func(v *graph.Value) bool {
		_, named := given[v.Name]
		return v.Default && !named
	})
	if m.at, err = bind(g, shapes, r, m.kind, given, o); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	b := &Batch{Values: map[string]*ort.Value{}}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	for _, in := range g.Inputs {
		a, from, err := m.input(in, given, o.File)
		if err != nil {
			return nil, fmt.Errorf("%s: input %s: %w", path, in.Name, err)
		}
		if b.Values[in.Name], err = l.NewTensorBytes(ort.ElementType(a.element), a.shape, a.data); err != nil {
			return nil, fmt.Errorf("%s: input %s: %w", path, in.Name, err)
		}
		info := Info{Name: in.Name, Type: model.TypeName(a.element), Shape: a.shape, From: from}
		if r.Of(in) == roles.Mask {
			info.Padding = hidden(a)
		}
		b.Infos = append(b.Infos, info)
	}
	b.Workload, b.Lengths = m.workload(b.Infos), m.at
	return b, nil
}

// hidden is the share of a mask's elements that are 0; nil for a mask of floats,
// which is added to scores.
func hidden(a array) *float64 {
	size := model.ElementBits(a.element) / 8
	if isFloat(a.element) || size == 0 || len(a.data) == 0 {
		return nil
	}
	zeros, n := 0, len(a.data)/size
	for i := range n {
		if !slices.ContainsFunc(a.data[i*size:(i+1)*size], func(b byte) bool { return b != 0 }) {
			zeros++
		}
	}
	share := float64(zeros) / float64(n)
	return &share
}

// workload is the size of the run that the inputs make.
func (m *maker) workload(infos []Info) Workload {
	w := Workload{Kind: m.kind, Batch: m.length(roles.Batch), Tokens: m.length(roles.New)}
	for i, in := range m.graph.Inputs {
		switch shape := infos[i].Shape; {
		case m.kind == Image && m.roles.Of(in) == roles.Image && len(shape) == 4:
			w.Batch, w.Tokens, w.Image = shape[0], 0, shape[1:]
		case m.roles.Of(in) == roles.EncoderOutput && len(shape) == 3, m.roles.Of(in) == roles.EncoderPast && len(shape) == 4:
			w.EncoderTokens = m.length(roles.Encoder)
		case infos[i].Padding != nil && (w.Padding == nil || m.roles.Axis(in, len(shape)-1).Length != roles.Encoder):
			w.Padding = infos[i].Padding
		}
	}
	if m.kind == DecoderWithPast && !m.noCache {
		w.Past = m.length(roles.Cached)
	}
	return w
}

// array is a tensor as bytes.
type array struct {
	element onnx.Tensor_DataType
	shape   []int64
	data    []byte
}

// maker makes inputs with meaning from a seed.
type maker struct {
	graph   *graph.Graph
	shapes  *graph.Shapes
	roles   *roles.Roles
	kind    Kind
	seed    uint64
	at      map[string]int64
	random  *rand.Rand
	noCache bool  // use_cache_branch is false
	left    int64 // bytes that may still be made
}

// input is the given array of that name, or a synthetic one of its meaning.
func (m *maker) input(v *graph.Value, given map[string]array, source string) (array, string, error) {
	f := m.shapes.Of(v)
	if a, ok := given[v.Name]; ok {
		return a, source, m.fits(a, f, source)
	}
	if f.Rank < 0 || f.DType == 0 {
		return array{}, "", fmt.Errorf("its type or rank is not declared; give it with --inputs")
	}
	a := array{element: f.DType, shape: make([]int64, f.Rank)}
	n := int64(1)
	for i, d := range f.Dims {
		x, ok := d.Eval(m.at)
		if !ok || x < 0 {
			return array{}, "", fmt.Errorf("axis %d has no length; give it with --dim", i)
		}
		a.shape[i] = x
		if x > 0 && n > maxInputElements/x {
			return array{}, "", fmt.Errorf("shape %v is too large to make", a.shape)
		}
		n *= x
	}
	width := int64(max(model.ElementBits(f.DType)/8, 1))
	if m.left -= n * width; m.left < 0 {
		return array{}, "", fmt.Errorf(
			"shape %v is too large to make: inputs may take a quarter of the memory that is left; give shorter lengths with "+
				"--dim", a.shape)
	}
	value, from, err := m.values(v, f, a.shape)
	if err != nil {
		return array{}, "", err
	}
	a.data = make([]byte, 0, n*width)
	for i := range n {
		if a.data, err = appendNumber(a.data, f.DType, value(i)); err != nil {
			return array{}, "", err
		}
	}
	return a, from, nil
}

// fits says what a given array has that the model does not take. ONNX Runtime
// would say it too, but of the session, not of the file.
func (m *maker) fits(a array, f graph.Fact, source string) error {
	if f.DType != 0 && a.element != f.DType {
		return fmt.Errorf("%s has it as %s, the model takes %s", source, model.TypeName(a.element), model.TypeName(f.DType))
	}
	if f.Rank < 0 {
		return nil
	}
	if len(a.shape) != f.Rank {
		return fmt.Errorf("%s has it in shape %v, the model takes rank %d", source, a.shape, f.Rank)
	}
	for i, d := range f.Dims {
		if n, ok := d.Eval(m.at); ok && n != a.shape[i] {
			return fmt.Errorf("%s has it in shape %v, but axis %d is %s = %d by --dim or by another input", source, a.shape, i,
				d, n)
		}
	}
	return nil
}

// maxInputElements bounds a synthetic input (8 GiB of float32).
const maxInputElements = 1 << 31

// maxInputBytes bounds all inputs of a model together.
const maxInputBytes = 4 * maxInputElements

// values chooses what an input holds by what it means and its type: positions go
// on from the past, tokens lie within the table they index.
func (m *maker) values(v *graph.Value, f graph.Fact, shape []int64) (value func(i int64) float64, from string,
	err error) {
	last := int64(1)
	if len(shape) > 0 {
		last = max(shape[len(shape)-1], 1)
	}
	past, queries := m.length(roles.Cached), m.length(roles.New)
	same := func(x int64) func(int64) float64 { return func(int64) float64 { return float64(x) } }
	switch is := m.roles.Of(v); {
	case is == roles.UseCacheBranch && m.noCache:
		return same(0), "false", nil
	case is == roles.UseCacheBranch:
		return same(1), "true", nil
	case is == roles.Mask:
		return m.mask(shape, last), "mask", nil
	case is == roles.Positions && isInteger(f.DType):
		return func(i int64) float64 { return float64(past + i%last) }, "positions", nil
	case is == roles.KeyLengths:
		return same(past + queries - 1), "length", nil
	case is == roles.Total:
		return same(past + queries), "length", nil
	case is == roles.Count:
		return same(1), "count", nil
	case f.DType == onnx.Tensor_BOOL:
		return func(int64) float64 { return float64(m.random.IntN(2)) }, "random", nil
	case isInteger(f.DType):
		limit := roles.Rows(v)
		if limit <= 0 {
			limit = 2
		}
		return func(int64) float64 { return float64(m.random.Int64N(limit)) }, fmt.Sprintf("tokens below %d", limit), nil
	case isFloat(f.DType):
		return func(int64) float64 { return m.random.NormFloat64() }, "normal", nil
	}
	return nil, "", fmt.Errorf("there are no synthetic inputs of type %s; give it with --inputs", model.TypeName(f.DType))
}

// mask shows every position of a row but those of padding. Texts of an encoder's
// batch end in it; of a decoder's rows, where there are several, the last has an
// eighth at its left end, as a batch of prompts has.
func (m *maker) mask(shape []int64, last int64) func(i int64) float64 {
	rows, size := int64(1), last
	if len(shape) > 1 {
		rows = max(shape[0], 1)
		for _, n := range shape[1 : len(shape)-1] {
			size *= n
		}
	}
	from, to := make([]int64, rows), make([]int64, rows)
	for i := range to {
		to[i] = last
	}
	switch {
	case m.kind == Encoder:
		to = textLengths(m.seed, rows, last)
	case rows > 1:
		from[rows-1] = last / 8
	}
	return func(i int64) float64 {
		if row, at := i/size, i%last; at < from[row] || at >= to[row] {
			return 0
		}
		return 1
	}
}

// length is what the inputs have of a length; 0 for a past that is not there, 1 for
// anything else.
func (m *maker) length(l roles.Length) int64 {
	for _, in := range m.graph.Inputs {
		for i, d := range m.shapes.Of(in).Dims {
			// A sum is not the length that it holds.
			if n, ok := d.Eval(m.at); ok && m.roles.Axis(in, i).Length == l && m.roles.Of(in) != roles.Mask {
				return n
			}
		}
	}
	if l == roles.Cached {
		return 0
	}
	return 1
}

func isInteger(t onnx.Tensor_DataType) bool {
	switch t {
	case onnx.Tensor_INT64, onnx.Tensor_INT32, onnx.Tensor_INT16, onnx.Tensor_INT8,
		onnx.Tensor_UINT64, onnx.Tensor_UINT32, onnx.Tensor_UINT16, onnx.Tensor_UINT8:
		return true
	}
	return false
}

func isFloat(t onnx.Tensor_DataType) bool {
	return t == onnx.Tensor_FLOAT || t == onnx.Tensor_DOUBLE || t == onnx.Tensor_FLOAT16 || t == onnx.Tensor_BFLOAT16
}

// appendNumber appends x as an element of the type.
func appendNumber(b []byte, t onnx.Tensor_DataType, x float64) ([]byte, error) {
	le := binary.LittleEndian
	switch t {
	case onnx.Tensor_FLOAT:
		return le.AppendUint32(b, math.Float32bits(float32(x))), nil
	case onnx.Tensor_DOUBLE:
		return le.AppendUint64(b, math.Float64bits(x)), nil
	case onnx.Tensor_FLOAT16:
		return le.AppendUint16(b, half.FromFloat(x)), nil
	case onnx.Tensor_BFLOAT16:
		return le.AppendUint16(b, uint16(math.Float32bits(float32(x))>>16)), nil
	case onnx.Tensor_INT64, onnx.Tensor_UINT64:
		return le.AppendUint64(b, uint64(int64(x))), nil
	case onnx.Tensor_INT32, onnx.Tensor_UINT32:
		return le.AppendUint32(b, uint32(int64(x))), nil
	case onnx.Tensor_INT16, onnx.Tensor_UINT16:
		return le.AppendUint16(b, uint16(int64(x))), nil
	case onnx.Tensor_INT8, onnx.Tensor_UINT8, onnx.Tensor_BOOL:
		return append(b, byte(int64(x))), nil
	}
	return nil, fmt.Errorf("there are no synthetic inputs of type %s; give it with --inputs", model.TypeName(t))
}
