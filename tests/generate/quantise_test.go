package generate

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// quantisation is a way in which others quantise the linear layers of an exported model.
type quantisation struct {
	name  string
	layer func(z *quantiser, l layer) []*onnx.Node
}

// layer is a linear layer: its node, the weight [K, N] as stored in memory, and its bias, "" for none.
type layer struct {
	node           *onnx.Node
	x, y, bias     string
	weight         string
	depth, columns int64
	numbers        []float32 // [K][N]
}

// matMulNBits is what genai and ONNX Runtime's MatMulNBitsQuantizer write.
func matMulNBits(bits, block int64, zeros bool, accuracy int64) quantisation {
	name := fmt.Sprintf("MatMulNBits of %d bits, blocks of %d, zero points %t, accuracy level %d", bits, block, zeros,
		accuracy)
	return quantisation{name, func(z *quantiser, l layer) []*onnx.Node {
		groups := (l.depth + block - 1) / block
		most := int64(1)<<bits - 1
		var integers, points []byte
		var scales []float32
		for n := range l.columns {
			column := make([]byte, groups*block)
			var zero []byte
			for g := range groups {
				low, high := 0., 0.
				for k := g * block; k < min(l.depth, (g+1)*block); k++ {
					w := float64(l.numbers[k*l.columns+n])
					low, high = min(low, w), max(high, w)
				}
				scale, middle := max(-low, high)*2/float64(most), float64(most+1)/2
				if zeros {
					scale = (high - low) / float64(most)
					middle = math.Round(-low / scale)
				}
				for k := g * block; k < (g+1)*block; k++ {
					w := 0.
					if k < l.depth {
						w = float64(l.numbers[k*l.columns+n])
					}
					column[k] = byte(min(max(math.RoundToEven(w/scale)+middle, 0), float64(most)))
				}
				scales, zero = append(scales, float32(scale)), append(zero, byte(middle))
			}
			integers, points = append(integers, halves(column, bits)...), append(points, halves(zero, bits)...)
		}
		in := []string{l.x, z.add(l, "q", onnx.Tensor_UINT8, integers, l.columns, groups, block*bits/8),
			z.add(l, "s", onnx.Tensor_FLOAT, floatBytes(scales), l.columns*groups)}
		if zeros {
			in = append(in, z.add(l, "z", onnx.Tensor_UINT8, points, int64(len(points))))
		} else if l.bias != "" {
			in = append(in, "")
		}
		if l.bias != "" {
			in = append(in, "", l.bias)
		}
		return []*onnx.Node{{Name: l.node.Name, Domain: proto.String("com.microsoft"), OpType: proto.String("MatMulNBits"),
			Input: in, Output: []string{l.y},
			Attribute: []*onnx.Attribute{whole("K", l.depth), whole("N", l.columns), whole("bits", bits),
				whole("block_size", block), whole("accuracy_level", accuracy)}}}
	}}
}

// dynamic is what quantize_dynamic writes, with weights of seven bits, whose products saturate nowhere.
var dynamic = quantisation{"dynamic int8", func(z *quantiser, l layer) []*onnx.Node {
	most := 0.
	for _, w := range l.numbers {
		most = max(most, math.Abs(float64(w)))
	}
	integers := make([]byte, len(l.numbers))
	for i, w := range l.numbers {
		integers[i] = byte(int8(math.RoundToEven(float64(w) / most * 63)))
	}
	w := z.add(l, "w", onnx.Tensor_INT8, integers, l.depth, l.columns)
	scale, zero := z.add(l, "ws", onnx.Tensor_FLOAT, floatBytes([]float32{float32(most / 63)}), 1),
		z.add(l, "wz", onnx.Tensor_INT8, []byte{0}, 1)
	at := func(name string) string { return l.y + "." + name }
	nodes := []*onnx.Node{
		plain("DynamicQuantizeLinear", []string{l.x}, at("q"), at("scale"), at("zero")),
		plain("MatMulInteger", []string{at("q"), w, at("zero"), zero}, at("integers")),
		plain("Cast", []string{at("integers")}, at("cast")),
		plain("Mul", []string{at("scale"), scale}, at("scales")),
		plain("Mul", []string{at("cast"), at("scales")}, l.y),
	}
	nodes[2].Attribute = []*onnx.Attribute{whole("to", int64(onnx.Tensor_FLOAT))}
	if l.bias != "" {
		nodes[4].Output[0] = at("product")
		nodes = append(nodes, plain("Add", []string{at("product"), l.bias}, l.y))
	}
	return nodes
}}

// dequantised are weights of int8 with a scale a column, which a DequantizeLinear makes float32 again; static rounds
// rows too, as calibration says.
func dequantised(static bool) quantisation {
	name, greatest := "DequantizeLinear of weights", 127.
	if static {
		name, greatest = "QDQ", 63. // ONNX Runtime's sums of more than seven bits saturate where the CPU has no VNNI
	}
	return quantisation{name, func(z *quantiser, l layer) []*onnx.Node {
		integers, scales := make([]byte, len(l.numbers)), make([]float32, l.columns)
		for n := range l.columns {
			most := 0.
			for k := range l.depth {
				most = max(most, math.Abs(float64(l.numbers[k*l.columns+n])))
			}
			scales[n] = float32(most / greatest)
			for k := range l.depth {
				integers[k*l.columns+n] = byte(int8(math.RoundToEven(float64(l.numbers[k*l.columns+n]) / most * greatest)))
			}
		}
		w := z.add(l, "w", onnx.Tensor_INT8, integers, l.depth, l.columns)
		of, zeros := z.add(l, "ws", onnx.Tensor_FLOAT, floatBytes(scales), l.columns),
			z.add(l, "wz", onnx.Tensor_INT8, make([]byte, l.columns), l.columns)
		at := func(name string) string { return l.y + "." + name }
		back := plain("DequantizeLinear", []string{w, of, zeros}, at("w"))
		back.Attribute = []*onnx.Attribute{whole("axis", 1)}
		nodes, x := []*onnx.Node{back}, l.x
		if static {
			const scale = 1. / 16
			by, middle := z.add(l, "xs", onnx.Tensor_FLOAT, floatBytes([]float32{scale})),
				z.add(l, "xz", onnx.Tensor_UINT8, []byte{128})
			x = l.x + ".x"
			if !z.made[x] { // several layers read one x
				z.made[x] = true
				nodes = append(nodes, plain("QuantizeLinear", []string{l.x, by, middle}, l.x+".q"),
					plain("DequantizeLinear", []string{l.x + ".q", by, middle}, x))
			}
		}
		product := plain(l.node.GetOpType(), []string{x, at("w")}, l.y)
		if l.bias != "" {
			product.Input = append(product.Input, l.bias)
		}
		return append(nodes, product)
	}}
}

func plain(op string, in []string, out ...string) *onnx.Node {
	return &onnx.Node{Name: proto.String(op + " of " + out[0]), OpType: proto.String(op), Input: in, Output: out}
}

func whole(name string, v int64) *onnx.Attribute {
	return &onnx.Attribute{Name: proto.String(name), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(v)}
}

func floatBytes(list []float32) (b []byte) {
	for _, x := range list {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// halves packs numbers of 4 bits, and leaves those of 8.
func halves(list []byte, bits int64) []byte {
	if bits == 8 {
		return list
	}
	b := make([]byte, (len(list)+1)/2)
	for i, x := range list {
		b[i/2] |= x << (i % 2 * 4)
	}
	return b
}

// quantiser changes a model.
type quantiser struct {
	graph *onnx.Graph
	made  map[string]bool
	count int
}

// add adds a constant of a layer's weight, once.
func (z *quantiser) add(l layer, what string, t onnx.Tensor_DataType, raw []byte, dims ...int64) string {
	name := l.weight + "." + what
	if !z.made[name] {
		z.made[name] = true
		z.graph.Initializer = append(z.graph.Initializer,
			&onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(t)), Dims: dims, RawData: raw})
	}
	return name
}

// quantise quantises the linear layers of all graphs of a folder, and returns how many these are.
func quantise(t *testing.T, folder string, by quantisation) (layers int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.onnx"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		must.Succeed(t, err)
		var p onnx.Model
		must.Succeed(t, proto.Unmarshal(data, &p))
		z := &quantiser{graph: p.Graph, made: map[string]bool{}}
		z.visit(p.Graph, map[string]*onnx.Tensor{}, by)
		p.OpsetImport = append(p.OpsetImport,
			&onnx.OperatorSet{Domain: proto.String("com.microsoft"), Version: proto.Int64(1)})
		if data, err = proto.Marshal(&p); err != nil {
			t.Fatal(err)
		}
		must.Succeed(t, os.WriteFile(path, data, 0o644))
		layers += z.count
	}
	return layers
}

// visit quantises a graph and those inside it.
func (z *quantiser) visit(g *onnx.Graph, outer map[string]*onnx.Tensor, by quantisation) {
	constants := map[string]*onnx.Tensor{}
	for name, t := range outer {
		constants[name] = t
	}
	for _, t := range g.Initializer {
		constants[t.GetName()] = t
	}
	var nodes []*onnx.Node
	for _, n := range g.Node {
		for _, a := range n.Attribute {
			if a.G != nil {
				z.visit(a.G, constants, by)
			}
		}
		if l, ok := layerOf(n, constants); ok {
			nodes = append(nodes, by.layer(z, l)...)
			z.count++
			continue
		}
		nodes = append(nodes, n)
	}
	g.Node = nodes
}

// layerOf is the linear layer of a node.
func layerOf(n *onnx.Node, constants map[string]*onnx.Tensor) (l layer, ok bool) {
	if op := n.GetOpType(); n.GetDomain() != "" || op != "MatMul" && op != "Gemm" {
		return l, false
	}
	w := constants[n.Input[1]]
	if w == nil || len(w.Dims) != 2 || onnx.Tensor_DataType(w.GetDataType()) != onnx.Tensor_FLOAT ||
		int64(len(w.RawData)) != 4*w.Dims[0]*w.Dims[1] {
		return l, false
	}
	for _, a := range n.Attribute { // of Gemm
		if a.GetName() == "transA" && a.GetI() != 0 || a.GetName() == "transB" && a.GetI() != 0 {
			return l, false
		}
	}
	l = layer{node: n, x: n.Input[0], y: n.Output[0], weight: w.GetName(), depth: w.Dims[0], columns: w.Dims[1]}
	if len(n.Input) > 2 {
		l.bias = n.Input[2]
	}
	for i := 0; i < len(w.RawData); i += 4 {
		l.numbers = append(l.numbers, math.Float32frombits(binary.LittleEndian.Uint32(w.RawData[i:])))
	}
	return l, true
}
