package ab

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/model/onnx"
	"github.com/opgraft/graft/host/ort"
)

// Inputs are what a model is fed: read from a file or folder, or made. They are
// the caller's to close.
func Inputs(l *ort.Library, path string, o Options) (map[string]*ort.Value, []InputInfo, error) {
	g, shapes, done, err := lengthsOf(path)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	m := &maker{graph: g, shapes: shapes, random: rand.New(rand.NewPCG(o.Seed, 0x67726166)), noCache: o.NoCache}
	var given map[string]array
	if o.Inputs != "" {
		if given, err = readInputs(o.Inputs, g); err != nil {
			return nil, nil, err
		}
	}
	if m.at, err = bind(g, shapes, given, o); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	values := map[string]*ort.Value{}
	var infos []InputInfo
	for _, in := range g.Inputs {
		a, from, err := m.input(in, given, o.Inputs)
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
		infos = append(infos, InputInfo{in.Name, model.TypeName(a.element), a.shape, from})
	}
	return values, infos, nil
}

// array is a tensor as bytes.
type array struct {
	element onnx.Tensor_DataType
	shape   []int64
	data    []byte
}

// bind gives every length of a model's inputs a number: what was asked for, what
// the given arrays have, or one row, one token after 128, 128 tokens where there
// is no past.
func bind(g *graph.Graph, shapes *graph.Shapes, given map[string]array, o Options) (map[string]int64, error) {
	var symbols []string
	for _, in := range g.Inputs {
		for _, d := range shapes.Of(in).Dims {
			for _, s := range d.Symbols() {
				if !slices.Contains(symbols, s) {
					symbols = append(symbols, s)
				}
			}
		}
	}
	at := map[string]int64{}
	for _, name := range slices.Sorted(maps.Keys(o.Dims)) {
		n := o.Dims[name]
		s, err := resolve(symbols, name)
		if err != nil && o.LooseDims {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n < 0 {
			return nil, fmt.Errorf("length %s is %d, needs zero or more", name, n)
		}
		if before, ok := at[s]; ok && before != n {
			return nil, fmt.Errorf("length %s is asked to be both %d and %d", s, before, n)
		}
		at[s] = n
	}
	for _, in := range g.Inputs {
		a, ok := given[in.Name]
		if !ok {
			continue
		}
		for i, d := range shapes.Of(in).Dims {
			if i < len(a.shape) {
				solve(d, a.shape[i], at)
			}
		}
	}
	var sums []string
	past := slices.ContainsFunc(symbols, func(s string) bool { return strings.Contains(strings.ToLower(s), "past") })
	for _, s := range symbols {
		if _, ok := at[s]; ok {
			continue
		}
		name := strings.ToLower(s)
		switch {
		case strings.Contains(name, "batch"):
			at[s] = 1
		case strings.HasPrefix(name, "total_"):
			// Past and new together, under a name of its own.
			sums = append(sums, s)
		case strings.Contains(name, "past"), strings.Contains(name, "encoder"), !past:
			at[s] = 128
		default:
			at[s] = 1
		}
	}
	for _, s := range sums {
		rest := s[len("total_"):]
		at[s] = at[rest] + at["past_"+rest]
	}
	return at, nil
}

// solve finds the one length that d lacks from what d is to be; it leaves alone
// what it cannot find.
func solve(d graph.Dim, n int64, at map[string]int64) {
	missing := ""
	for _, s := range d.Symbols() {
		if _, ok := at[s]; ok {
			continue
		}
		if missing != "" {
			return
		}
		missing = s
	}
	if missing == "" {
		return
	}
	var y [3]int64 // d with the length at 0, 1, 2: on a line, or not found
	for x := range y {
		at[missing] = int64(x)
		v, ok := d.Eval(at)
		if !ok {
			delete(at, missing)
			return
		}
		y[x] = v
	}
	delete(at, missing)
	if slope := y[1] - y[0]; slope != 0 && y[2]-y[1] == slope && (n-y[0])%slope == 0 && (n-y[0])/slope >= 0 {
		at[missing] = (n - y[0]) / slope
	}
}

// resolve finds the length that a name means: itself, or the only one that
// begins with it ("batch" for batch_size).
func resolve(symbols []string, name string) (string, error) {
	if slices.Contains(symbols, name) {
		return name, nil
	}
	var like []string
	for _, s := range symbols {
		if strings.HasPrefix(s, name) {
			like = append(like, s)
		}
	}
	if len(like) == 1 {
		return like[0], nil
	}
	switch {
	case len(like) > 1:
		return "", fmt.Errorf("length %q may be %s; write more of it", name, strings.Join(like, " or "))
	case len(symbols) == 0:
		return "", fmt.Errorf("no length is called %q, all lengths of the inputs are fixed", name)
	}
	return "", fmt.Errorf("no length is called %q, the inputs have %s", name, strings.Join(symbols, ", "))
}

// maker makes inputs with meaning from a seed.
type maker struct {
	graph   *graph.Graph
	shapes  *graph.Shapes
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

// values chooses what an input holds by its name and type: masks are masks,
// positions go on from the past, tokens lie within the table they index.
func (m *maker) values(v *graph.Value, f graph.Fact, shape []int64) (value func(i int64) float64, from string, err error) {
	name := strings.ToLower(v.Name)
	last := int64(1)
	if len(shape) > 0 {
		last = max(shape[len(shape)-1], 1)
	}
	past := m.past()
	switch {
	case strings.Contains(name, "use_cache_branch"):
		if m.noCache {
			return func(int64) float64 { return 0 }, "false", nil
		}
		return func(int64) float64 { return 1 }, "true", nil
	case strings.Contains(name, "mask"):
		return m.mask(shape, last), "mask", nil
	case strings.Contains(name, "position") && isInteger(f.DType):
		return func(i int64) float64 { return float64(past + i%last) }, "positions", nil
	case strings.Contains(name, "seqlens"):
		return func(int64) float64 { return float64(past + m.queries() - 1) }, "length", nil
	case strings.Contains(name, "total_sequence"):
		return func(int64) float64 { return float64(past + m.queries()) }, "length", nil
	case strings.Contains(name, "logits_to_keep"):
		return func(int64) float64 { return 1 }, "count", nil
	case f.DType == onnx.Tensor_BOOL:
		return func(int64) float64 { return float64(m.random.IntN(2)) }, "random", nil
	case isInteger(f.DType):
		limit := tableRows(v, 8)
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

func (m *maker) past() int64 {
	for _, s := range slices.Sorted(maps.Keys(m.at)) {
		if name := strings.ToLower(s); strings.Contains(name, "past") && !strings.Contains(name, "encoder") {
			return m.at[s]
		}
	}
	return 0
}

func (m *maker) queries() int64 {
	for _, in := range m.graph.Inputs {
		if d := m.shapes.Of(in).Dims; strings.Contains(in.Name, "input_ids") && len(d) == 2 {
			if n, ok := d[1].Eval(m.at); ok {
				return n
			}
		}
	}
	return 1
}

// tableRows is the number of rows of the smallest table that the value indexes,
// 0 when it indexes none.
func tableRows(v *graph.Value, depth int) int64 {
	rows := int64(0)
	for _, u := range v.Uses {
		n := u.Node
		found := int64(0)
		switch {
		case n.Is("Gather") && u.Index == 1 && n.Input(0).Tensor != nil && len(n.Input(0).Tensor.Dims) > 0:
			found = n.Input(0).Tensor.Dims[0]
		case n.Op() == "com.microsoft.EmbedLayerNormalization" && u.Index < 2:
			// Words are looked up in input 2, segments in input 4.
			if t := n.Input(2 + 2*u.Index); t != nil && t.Tensor != nil {
				found = t.Tensor.Dims[0]
			}
		case depth > 0 && n.Is("Reshape", "Cast", "Unsqueeze", "Squeeze", "Identity", "Flatten", "If"):
			found = rowsBehind(n, depth)
		}
		if found > 0 && (rows == 0 || found < rows) {
			rows = found
		}
	}
	return rows
}

func rowsBehind(n *graph.Node, depth int) int64 {
	if len(n.Out) == 0 || n.Out[0] == nil {
		return 0
	}
	return tableRows(n.Out[0], depth-1)
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
