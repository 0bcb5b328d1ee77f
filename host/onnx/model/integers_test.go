package model

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
	"google.golang.org/protobuf/proto"
)

// integersCase is a form of a weight of integers.
type integersCase struct {
	name                string
	depth, columns      int64
	bits, block         int64
	packed, transposed  bool
	signed, zeros, wide bool // wide: zero points of float32
	whole               bool // one scale for all
}

var integersCases = []integersCase{
	{name: "MatMulNBits of 4 bits", depth: 64, columns: 32, bits: 4, block: 32, packed: true},
	{name: "a part of a block and of a panel", depth: 100, columns: 21, bits: 4, block: 32, packed: true},
	{name: "zero points, groups odd in number", depth: 90, columns: 19, bits: 4, block: 32, packed: true, zeros: true},
	{name: "zero points of float32", depth: 90, columns: 19, bits: 4, block: 32, packed: true, zeros: true, wide: true},
	{name: "blocks of 16", depth: 48, columns: 5, bits: 4, block: 16, packed: true, zeros: true},
	{name: "blocks of 256", depth: 600, columns: 17, bits: 4, block: 256, packed: true, zeros: true},
	{name: "one block that is longer than all", depth: 24, columns: 7, bits: 4, block: 128, packed: true},
	{name: "MatMulNBits of 8 bits", depth: 130, columns: 33, bits: 8, block: 64, packed: true},
	{name: "8 bits with zero points", depth: 130, columns: 33, bits: 8, block: 64, packed: true, zeros: true},
	{name: "int8, a scale a column", depth: 70, columns: 18, bits: 8, block: 70, signed: true},
	{name: "int8 transposed", depth: 70, columns: 18, bits: 8, block: 70, signed: true, transposed: true, zeros: true},
	{name: "uint8 without zero points", depth: 33, columns: 16, bits: 8, block: 33},
	{name: "uint8, one scale for all", depth: 33, columns: 20, bits: 8, block: 33, zeros: true, whole: true},
	{name: "int4 in blocks", depth: 96, columns: 9, bits: 4, block: 32, signed: true, zeros: true},
	{name: "uint4 in blocks, transposed", depth: 90, columns: 9, bits: 4, block: 64, transposed: true, zeros: true},
}

// nibbles packs numbers of 4 bits, the first of two in the low half; of 8 bits they are as they are.
func nibbles(list []int, bits int64) (b []byte) {
	if bits == 8 {
		for _, x := range list {
			b = append(b, byte(x))
		}
		return b
	}
	for i, x := range list {
		if i%2 == 0 {
			b = append(b, byte(x&15))
		} else {
			b[len(b)-1] |= byte(x&15) << 4
		}
	}
	return b
}

// made is a weight of a form, and what it stands for, [K][N].
func (c integersCase) made(seed uint64) (list []*onnx.Tensor, q Integers, want [][]float32) {
	r := rand.New(rand.NewPCG(seed, 11))
	groups := (c.depth + c.block - 1) / c.block
	low, high := 0, 1<<c.bits-1
	if c.signed {
		low, high = -(1 << (c.bits - 1)), 1<<(c.bits-1)-1
	}
	numbers := make([][]int, c.columns) // [N][K]
	scales, zeros := make([][]float32, c.columns), make([][]float32, c.columns)
	for n := range numbers {
		for range c.depth {
			numbers[n] = append(numbers[n], low+r.IntN(high-low+1))
		}
		for g := range groups {
			scale, zero := r.Float32()+0.01, float32(low+r.IntN(high-low+1))
			if c.wide {
				zero += 0.25
			}
			if !c.zeros {
				zero = 0
				if c.packed {
					zero = float32(int(1) << (c.bits - 1))
				}
			}
			if c.whole && n > 0 {
				scale, zero = scales[0][g], zeros[0][g]
			}
			scales[n], zeros[n] = append(scales[n], scale), append(zeros[n], zero)
		}
	}
	for k := range c.depth {
		var row []float32
		for n := range numbers {
			row = append(row, float32((float64(numbers[n][k])-float64(zeros[n][k/c.block]))*float64(scales[n][k/c.block])))
		}
		want = append(want, row)
	}
	q = Integers{Depth: c.depth, Columns: c.columns, Bits: c.bits, Block: c.block, Packed: c.packed,
		Transposed: c.transposed}
	var raw, rawZeros []byte
	var flat []int
	var rawScales []byte
	wide := func(b []byte, x float32) []byte { return binary.LittleEndian.AppendUint32(b, math.Float32bits(x)) }
	put := func(n int, g int64) {
		if c.whole && len(rawScales) > 0 {
			return
		}
		rawScales = wide(rawScales, scales[n][g])
		if c.wide {
			rawZeros = wide(rawZeros, zeros[n][g])
		} else {
			flat = append(flat, int(zeros[n][g]))
		}
	}
	element := map[bool]onnx.Tensor_DataType{true: onnx.Tensor_UINT8, false: onnx.Tensor_UINT4}[c.bits == 8 || c.packed]
	if c.signed {
		element = map[bool]onnx.Tensor_DataType{true: onnx.Tensor_INT8, false: onnx.Tensor_INT4}[c.bits == 8]
	}
	dims := []int64{c.columns, groups, c.block * c.bits / 8}
	switch {
	case c.packed:
		for n := range numbers {
			column := slices.Concat(numbers[n], make([]int, groups*c.block-c.depth))
			raw = append(raw, nibbles(column, c.bits)...)
			flat = nil
			for g := range groups {
				put(n, g)
			}
			if !c.wide {
				rawZeros = append(rawZeros, nibbles(flat, c.bits)...)
			}
		}
	case c.transposed:
		dims = []int64{c.columns, c.depth}
		raw = nibbles(slices.Concat(numbers...), c.bits)
		for n := range numbers {
			for g := range groups {
				put(n, g)
			}
		}
		rawZeros = nibbles(flat, c.bits)
	default:
		dims = []int64{c.depth, c.columns}
		var all []int
		for k := range c.depth {
			for n := range numbers {
				all = append(all, numbers[n][k])
			}
		}
		raw = nibbles(all, c.bits)
		for g := range groups {
			for n := range numbers {
				put(n, g)
			}
		}
		rawZeros = nibbles(flat, c.bits)
	}
	q.Quantized = rawTensor("q", element, raw, dims...)
	q.Scales = rawTensor("scales", onnx.Tensor_FLOAT, rawScales, int64(len(rawScales)/4))
	list = append(list, q.Quantized, q.Scales)
	if c.zeros {
		count := int64(len(rawZeros))
		kind := element
		switch {
		case c.wide:
			kind, count = onnx.Tensor_FLOAT, count/4
		case !c.packed && c.bits == 4:
			count = int64(len(flat))
		}
		q.Zeros = rawTensor("zeros", kind, rawZeros, count)
		list = append(list, q.Zeros)
	}
	return list, q, want
}

// in gives a case's tensors as a model has them.
func (q Integers) in(m *Model) Integers {
	tensors := allTensors(m.Proto())
	q.Quantized, q.Scales = tensors["q"], tensors["scales"]
	if q.Zeros != nil {
		q.Zeros = tensors["zeros"]
	}
	return q
}

// TestIntegers: numbers are those that integers stand for, from files and bytes, and so are panels.
func TestIntegers(t *testing.T) {
	for i, c := range integersCases {
		t.Run(c.name, func(t *testing.T) {
			list, q, want := c.made(uint64(i))
			b := encode(t, modelOf(graphOf(list...)))
			for where, m := range map[string]*Model{"bytes": mustParse(t, b, ""),
				"file": mustOpen(t, writeFile(t, filepath.Join(t.TempDir(), "m.onnx"), b))} {
				made := must.Value(m.Dequantized("numbers", q.in(m)))(t)
				data := must.Value(m.Data(made))(t)
				for k := range c.depth {
					for n := range c.columns {
						at := k*c.columns + n
						if c.transposed {
							at = n*c.depth + k
						}
						if got := math.Float32frombits(binary.LittleEndian.Uint32(data[4*at:])); math.Abs(
							float64(got-want[k][n])) > 1e-6*math.Abs(float64(want[k][n])) {
							t.Fatalf("%s: the number of %d, %d is %g, want %g", where, k, n, got, want[k][n])
						}
					}
				}
				if found := m.IntegersOf(made); found == nil || found.Depth != c.depth {
					t.Fatalf("%s: integers %v", where, found)
				}
				if m.IntegersOf(allTensors(m.Proto())["scales"]) != nil {
					t.Errorf("%s: scales are integers", where)
				}
				inPanels(t, m, m.IntegersOf(made), want, !c.wide && c.block != 16)
			}
		})
	}
}

// inPanels lays out integers, and compares what panels stand for.
func inPanels(t *testing.T, m *Model, q *Integers, want [][]float32, fits bool) {
	t.Helper()
	p, ok := q.Panels()
	if ok != fits {
		t.Fatalf("panels: %t, want %t", ok, fits)
	}
	if !ok {
		if err := m.LayIntegers(q, nil, nil, nil); err == nil {
			t.Error("what has no panels is laid out")
		}
		return
	}
	panels, scales := make([]byte, p.Panels*p.Rows*16), make([]float32, p.Panels*p.Groups*16)
	var zeros []int8
	if p.Zeros {
		zeros = make([]int8, len(scales))
	}
	for i := range panels {
		panels[i] = 0xa5
	}
	for i := range scales {
		scales[i] = float32(math.NaN())
	}
	must.Succeed(t, m.LayIntegers(q, panels, scales, zeros))
	group := int64(128)
	for (q.Depth+group-1)/group != p.Groups {
		group /= 2
	}
	padded := (q.Depth + 31) / 32 * 32
	for k := range padded {
		for n := range p.Panels * 16 {
			panel, i := n/16, n%16
			at := (panel*p.Groups+min(k/group, p.Groups-1))*16 + i
			number := 0
			if q.Bits == 8 {
				number = int(int8(panels[panel*p.Rows*16+k/4*64+i*4+k%4]))
			} else {
				number = int(panels[panel*p.Rows*16+k/8*64+i*4+k%4]>>(k%8/4*4)&15) - 8
			}
			if n >= q.Columns || k >= q.Depth {
				if number != 0 || n >= q.Columns && scales[at] != 0 {
					t.Fatalf("beyond the weight, at %d, %d, is %d", k, n, number)
				}
				continue
			}
			if zeros != nil {
				number -= int(zeros[at])
			}
			if got := float32(number) * scales[at]; math.Abs(float64(got-want[k][n])) > 1e-6*math.Abs(float64(want[k][n])) {
				t.Fatalf("panels have %g at %d, %d, want %g", got, k, n, want[k][n])
			}
		}
	}
	asTensors(t, m, q, panels, scales, zeros)
}

// asTensors compares what LayIntegers laid out with the tensors of one weight, and of it beside itself.
func asTensors(t *testing.T, m *Model, q *Integers, panels []byte, scales []float32, zeros []int8) {
	t.Helper()
	lists := [][]*Integers{{q}}
	if q.Columns%16 == 0 {
		lists = append(lists, []*Integers{q, q})
	} else if _, _, _, err := m.IntegerTensors("beside", q, q); err == nil ||
		!strings.Contains(err.Error(), "cannot be laid out beside another") {
		t.Errorf("a part of a panel beside others: %v", err)
	}
	for _, list := range lists {
		p, s, z, err := m.IntegerTensors("laid", list...)
		must.Succeed(t, err)
		if (z != nil) != (zeros != nil) {
			t.Fatalf("zero points %v, want %t", z, zeros != nil)
		}
		raw := func(x *onnx.Tensor) []byte {
			if x == nil {
				return nil
			}
			b := must.Value(m.Data(x))(t)
			return b
		}
		var wantScales, wantZeros []byte
		for _, x := range scales {
			wantScales = binary.LittleEndian.AppendUint32(wantScales, math.Float32bits(x))
		}
		for _, x := range zeros {
			wantZeros = append(wantZeros, byte(x))
		}
		for _, c := range []struct {
			of   string
			got  []byte
			want []byte
		}{{"panels", raw(p), panels}, {"scales", raw(s), wantScales}, {"zero points", raw(z), wantZeros}} {
			if want := bytes.Repeat(c.want, len(list)); !bytes.Equal(c.got, want) {
				t.Errorf("%s of %d weights are not those of one, repeated", c.of, len(list))
			}
		}
		element := onnx.Tensor_INT8
		if q.Bits == 4 {
			element = onnx.Tensor_UINT8
		}
		if got := onnx.Tensor_DataType(p.GetDataType()); got != element ||
			p.Dims[0] != int64(len(list)*len(panels))/(p.Dims[1]*16) {
			t.Errorf("panels are %v %v", got, p.Dims)
		}
	}
}

// TestIntegersThatDoNotFit: sizes that a file claims and does not have are one error each.
func TestIntegersThatDoNotFit(t *testing.T) {
	for _, c := range []struct {
		name  string
		edit  func(*Integers)
		found string
	}{
		{"no columns", func(q *Integers) { q.Columns = 0 }, "a weight of 64 x 0"},
		{"five bits", func(q *Integers) { q.Bits = 5 }, "5 bits"},
		{"no block", func(q *Integers) { q.Block = 0 }, "blocks of 0"},
		{"a block of no whole bytes", func(q *Integers) { q.Block = 3 }, "integers of uint8"},
		{"more columns than there are", func(q *Integers) { q.Columns = 1 << 20 }, "integers of uint8 [32 2 16]"},
		{"too large to count", func(q *Integers) { q.Columns, q.Depth = 1<<30, 1<<30 },
			"a weight of 1073741824 x 1073741824"},
		{"scales of another count", func(q *Integers) { q.Scales.Dims = []int64{3} }, "scales of float32 [3]"},
		{"scales of another type", func(q *Integers) { q.Scales.DataType = proto.Int32(int32(onnx.Tensor_FLOAT16)) },
			"scales of float16"},
		{"zero points of another count",
			func(q *Integers) { q.Zeros = rawTensor("z", onnx.Tensor_UINT8, make([]byte, 31), 31) },
			"zero points of uint8 [31]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, q, _ := integersCases[0].made(1)
			m := mustParse(t, encode(t, modelOf(graphOf(list...))), "")
			q = q.in(m)
			c.edit(&q)
			must.Fail(t, must.Error(m.Dequantized("numbers", q)), c.found)
		})
	}
}

// TestIntegersInPanelsOfFloats: numbers that integers stand for are laid out as other matrices are, and two weights
// of one place in a file but another form are two.
func TestIntegersInPanelsOfFloats(t *testing.T) {
	list, q, want := integersCases[1].made(3)
	m := mustParse(t, encode(t, modelOf(graphOf(list...))), "")
	made := must.Value(m.Dequantized("numbers", q.in(m)))(t)
	laid := must.Value(m.Panels("laid", Matrix{made, false}))(t)
	data := must.Value(m.Data(laid))(t)
	at := 4 * ((1*q.Depth+7)*16 + 2) // column 18
	if got := math.Float32frombits(binary.LittleEndian.Uint32(data[at:])); math.Abs(float64(got-want[7][18])) > 1e-6 {
		t.Errorf("panels have %g, want %g", got, want[7][18])
	}
	again := must.Value(m.Dequantized("again", q.in(m)))(t)
	other := q.in(m)
	other.Node = &onnx.Node{Attribute: []*onnx.Attribute{{Name: proto.String("accuracy_level"), I: proto.Int64(4)}}}
	rounded := must.Value(m.Dequantized("rounded", other))(t)
	texts := map[string]bool{}
	for _, x := range []*onnx.Tensor{made, again, rounded} {
		o := must.Value(m.origin(x))(t)
		texts[o] = true
	}
	must.Equal(t, len(texts), 2, fmt.Sprint(texts))
}
