// Package inputs gives a model what it is fed: arrays of a file or folder, and
// synthetic ones of what its inputs mean.
package inputs

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/opgraft/graft/host/blocks"
	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/roles"
)

// Options say what a model is fed.
type Options struct {
	File string // .npz file or ONNX test-data folder; "" makes inputs from Seed
	Dims map[string]int64
	// LooseDims passes over lengths in Dims that the model does not have.
	LooseDims bool
	Seed      uint64
	NoCache   bool // merged decoders take the branch without a past
}

// Info describes one input.
type Info struct {
	Name  string  `json:"name"`
	Type  string  `json:"type"`
	Shape []int64 `json:"shape"`
	From  string  `json:"from"` // what the values mean: "mask", "positions", "tokens" ...
}

// Make gives values for all inputs of a model: read from a file or folder, or
// synthetic. They are the caller's to close.
func Make(l *ort.Library, path string, o Options) (map[string]*ort.Value, []Info, error) {
	g, shapes, done, err := lengthsOf(path)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	r := roles.Find(g, shapes, blocks.Find(g, shapes))
	m := &maker{graph: g, shapes: shapes, roles: r, random: rand.New(rand.NewPCG(o.Seed, 0x67726166)), noCache: o.NoCache}
	var given map[string]array
	if o.File != "" {
		if given, err = readFile(o.File, g); err != nil {
			return nil, nil, err
		}
	}
	if m.at, err = bind(g, shapes, r, given, o); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	values := map[string]*ort.Value{}
	var infos []Info
	for _, in := range g.Inputs {
		a, from, err := m.input(in, given, o.File)
		var v *ort.Value
		if err == nil {
			v, err = l.NewTensorBytes(ort.ElementType(a.element), a.shape, a.data)
		}
		if err != nil {
			for _, v := range values {
				v.Close()
			}
			return nil, nil, fmt.Errorf("%s: input %s: %w", path, in.Name, err)
		}
		values[in.Name] = v
		infos = append(infos, Info{in.Name, model.TypeName(a.element), a.shape, from})
	}
	return values, infos, nil
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
	at      map[string]int64
	random  *rand.Rand
	noCache bool // use_cache_branch is false
}

// input is the given array of that name, or one made to its meaning.
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
	value, from, err := m.values(v, f, a.shape)
	if err != nil {
		return array{}, "", err
	}
	a.data = make([]byte, 0, n*8)
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
			return fmt.Errorf("%s has it in shape %v, but axis %d is %s = %d by --dim or by another input", source, a.shape, i, d, n)
		}
	}
	return nil
}

// maxInputElements bounds an input that is made (8 GiB of float32).
const maxInputElements = 1 << 31

// values chooses what an input holds by what it means and its type: positions go
// on from the past, tokens lie within the table they index.
func (m *maker) values(v *graph.Value, f graph.Fact, shape []int64) (value func(i int64) float64, from string, err error) {
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
	return nil, "", fmt.Errorf("inputs of type %s are not made; give it with --inputs", model.TypeName(f.DType))
}

// mask shows every position of a row but, in the last row of several, an eighth
// at its left end: padding, as a batch of prompts has.
func (m *maker) mask(shape []int64, last int64) func(i int64) float64 {
	rows := int64(1)
	if len(shape) > 1 {
		rows = shape[0]
	}
	return func(i int64) float64 {
		if rows > 1 && i/last == rows-1 && i%last < last/8 {
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
		return le.AppendUint16(b, halfBits(x)), nil
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
	return nil, fmt.Errorf("inputs of type %s are not made; give it with --inputs", model.TypeName(t))
}

// halfBits rounds to IEEE half precision, to nearest even; what is too large
// becomes infinite.
func halfBits(x float64) uint16 {
	sign := uint16(0)
	if math.Signbit(x) {
		sign, x = 0x8000, -x
	}
	switch {
	case math.IsNaN(x):
		return sign | 0x7e00
	case x >= 65520:
		return sign | 0x7c00
	case x < 0x1p-14:
		return sign | uint16(math.RoundToEven(x*0x1p24))
	}
	frac, exp := math.Frexp(x) // x = frac * 2^exp, frac in [0.5, 1)
	return sign | uint16(int(math.RoundToEven(frac*2048))-1024+(exp+14)<<10)
}

// lengthsOf reads a model's declared input shapes as polynomials, and what its
// integer inputs may hold.
func lengthsOf(path string) (*graph.Graph, *graph.Shapes, func(), error) {
	m, err := model.Open(path)
	if err != nil {
		return nil, nil, nil, err
	}
	g, err := graph.New(m.Proto(), m)
	if err != nil {
		m.Close()
		return nil, nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return g, graph.Infer(g), func() { m.Close() }, nil
}
