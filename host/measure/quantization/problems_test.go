package quantization_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/measure/quantization"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
)

func open(t testing.TB) (*ort.Library, *loaded.Set) {
	t.Helper()
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	return l, set
}

func weightsOf(t testing.TB, text string) prepare.Weights {
	t.Helper()
	w := must.Value(prepare.ParseWeights(text))(t)
	return w
}

// ways are how exporters write y = x W + c.
var ways = []string{"MatMul", "transposed", "Gemm", "Gemm with transB", "Gemm with C", "Identity", "Constant",
	"in a branch"}

// problem is a linear layer of random numbers.
type problem struct {
	way                  string
	rows, depth, columns int
	weight, addend, x    []float32 // weight is [depth][columns]
	kind, activations    string
	group                int
	zeros                bool
}

func problemOf(r *rand.Rand, way string) *problem {
	p := &problem{way: way, rows: 1 + r.IntN(20), depth: 40 + r.IntN(300), columns: 1 + r.IntN(90), kind: "int8",
		activations: "int8", group: 32 << r.IntN(3)}
	if r.IntN(2) == 0 {
		p.kind = "int4"
	}
	if r.IntN(3) == 0 {
		p.activations = "float32"
	}
	scale := math.Pow(10, float64(r.IntN(5)-3))
	normal := func(n int, by float64) []float32 {
		list := make([]float32, n)
		for i := range list {
			list[i] = float32(by * r.NormFloat64())
		}
		return list
	}
	p.weight, p.x, p.addend = normal(p.depth*p.columns, scale), normal(p.rows*p.depth, 1), normal(p.columns, 1)
	for column := range p.columns {
		if column > 0 && r.IntN(10) == 0 { // of zeros
			for k := range p.depth {
				p.weight[k*p.columns+column] = 0
			}
		}
	}
	if p.zeros = r.IntN(2) == 0; p.zeros && r.IntN(2) == 0 { // columns whose numbers lie beside 0
		for i := range p.weight {
			if p.weight[i] != 0 {
				p.weight[i] += float32(scale) * float32(i%p.columns%5-2)
			}
		}
	}
	return p
}

func raw(list []float32) (b []byte) {
	for _, f := range list {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}

func floats(b []byte) []float32 {
	list := make([]float32, len(b)/4)
	for i := range list {
		list[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return list
}

func constant(name string, data []float32, dims ...int64) *onnx.Tensor {
	return &onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(onnx.Tensor_FLOAT)), Dims: dims,
		RawData: raw(data)}
}

func node(op string, in []string, out string, attributes ...*onnx.Attribute) *onnx.Node {
	return &onnx.Node{OpType: proto.String(op), Name: proto.String("node " + out), Input: in, Output: []string{out},
		Attribute: attributes}
}

func value(name string, kind onnx.Tensor_DataType, dims ...any) *onnx.ValueInfo {
	return &onnx.ValueInfo{Name: proto.String(name), Type: graph.TensorType(kind, dims...)}
}

// model is the layer as a model of x (and of which, where it lies in a branch), with the output y.
func (p *problem) model() *onnx.Model {
	depth, columns := int64(p.depth), int64(p.columns)
	w := constant("w", p.weight, depth, columns)
	turned := make([]float32, len(p.weight))
	for k := range p.depth {
		for n := range p.columns {
			turned[n*p.depth+k] = p.weight[k*p.columns+n]
		}
	}
	across := constant("w", turned, columns, depth)
	ints := func(name string, list ...int64) *onnx.Attribute {
		return &onnx.Attribute{Name: proto.String(name), Type: onnx.Attribute_INTS.Enum(), Ints: list}
	}
	one := &onnx.Attribute{Name: proto.String("transB"), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(1)}
	g := &onnx.Graph{Name: proto.String("layer"), Input: []*onnx.ValueInfo{value("x", onnx.Tensor_FLOAT, "rows", p.depth)},
		Output: []*onnx.ValueInfo{value("y", onnx.Tensor_FLOAT, "rows", p.columns)}}
	switch p.way {
	case "MatMul":
		g.Initializer, g.Node = []*onnx.Tensor{w, constant("c", p.addend, columns)},
			[]*onnx.Node{node("MatMul", []string{"x", "w"}, "t"), node("Add", []string{"t", "c"}, "y")}
	case "transposed":
		g.Initializer, g.Node = []*onnx.Tensor{across, constant("c", p.addend, columns)},
			[]*onnx.Node{node("Transpose", []string{"w"}, "v", ints("perm", 1, 0)),
				node("MatMul", []string{"x", "v"}, "t"), node("Add", []string{"c", "t"}, "y")}
	case "Gemm":
		g.Initializer, g.Node = []*onnx.Tensor{w}, []*onnx.Node{node("Gemm", []string{"x", "w"}, "y")}
		p.addend = nil
	case "Gemm with transB":
		g.Initializer, g.Node = []*onnx.Tensor{across, constant("c", p.addend, columns)},
			[]*onnx.Node{node("Gemm", []string{"x", "w", "c"}, "y", one)}
	case "Gemm with C":
		g.Initializer, g.Node = []*onnx.Tensor{w, constant("c", p.addend, 1, columns)},
			[]*onnx.Node{node("Gemm", []string{"x", "w", "c"}, "y")}
	case "Identity":
		g.Initializer, g.Node = []*onnx.Tensor{w},
			[]*onnx.Node{node("Identity", []string{"w"}, "v"), node("MatMul", []string{"x", "v"}, "y")}
		p.addend = nil
	case "Constant":
		w.Name = nil
		g.Node = []*onnx.Node{node("Constant", nil, "w",
			&onnx.Attribute{Name: proto.String("value"), Type: onnx.Attribute_TENSOR.Enum(), T: w}),
			node("MatMul", []string{"x", "w"}, "y")}
		p.addend = nil
	case "in a branch":
		branch := func(name string) *onnx.Attribute {
			return &onnx.Attribute{Name: proto.String(name), Type: onnx.Attribute_GRAPH.Enum(),
				G: &onnx.Graph{Name: proto.String(name),
					Node:   []*onnx.Node{node("MatMul", []string{"x", "w"}, name)},
					Output: []*onnx.ValueInfo{value(name, onnx.Tensor_FLOAT, "rows", p.columns)}}}
		}
		g.Input = append(g.Input, value("which", onnx.Tensor_BOOL, 1))
		g.Initializer, g.Node = []*onnx.Tensor{w},
			[]*onnx.Node{node("If", []string{"which"}, "y", branch("then_branch"), branch("else_branch"))}
		p.addend = nil
	}
	return &onnx.Model{IrVersion: proto.Int64(8), Graph: g,
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(17)}}}
}

// dequantised are the numbers that the operator's integers stand for, [depth][columns], as its specification has them.
func dequantised(t testing.TB, m *model.Model, n *onnx.Node, find func(name string) *onnx.Tensor) []float32 {
	t.Helper()
	of := map[string]int{}
	for _, a := range n.Attribute {
		of[a.GetName()] = int(a.GetI())
	}
	data := func(name string) []byte {
		tensor := find(name)
		if tensor == nil {
			t.Fatalf("%s is no constant", name)
		}
		b := must.Value(m.Data(tensor))(t)
		return b
	}
	q, scales := data(n.Input[1]), floats(data(n.Input[2]))
	var zeros []byte
	if len(n.Input) > 3 {
		zeros = data(n.Input[3])
	}
	blocks := (of["K"] + of["block_size"] - 1) / of["block_size"]
	if want := of["N"] * blocks * of["block_size"] * of["bits"] / 8; len(q) != want || len(scales) != of["N"]*blocks {
		t.Fatalf("%d bytes of integers and %d scales, want %d and %d", len(q), len(scales), want, of["N"]*blocks)
	}
	row := (blocks*of["bits"] + 7) / 8 // bytes of the zero points of a column
	if zeros != nil && len(zeros) != of["N"]*row {
		t.Fatalf("%d bytes of zero points, want %d", len(zeros), of["N"]*row)
	}
	zero := func(column, block int) int {
		switch {
		case zeros == nil:
			return 1 << (of["bits"] - 1)
		case of["bits"] == 8:
			return int(zeros[column*row+block])
		case block%2 == 1:
			return int(zeros[column*row+block/2]) / 16
		}
		return int(zeros[column*row+block/2]) % 16
	}
	out := make([]float32, of["K"]*of["N"])
	for column := range of["N"] {
		for k := range of["K"] {
			at := column*blocks*of["block_size"] + k
			var stands int
			switch of["bits"] {
			case 8:
				stands = int(q[at])
			case 4:
				stands = int(q[at/2]) % 16
				if at%2 == 1 {
					stands = int(q[at/2]) / 16
				}
			default:
				t.Fatalf("%d bits", of["bits"])
			}
			stands -= zero(column, k/of["block_size"])
			out[k*of["N"]+column] = float32(stands) * scales[column*blocks+k/of["block_size"]]
		}
	}
	return out
}

// quantisedNodes are the nodes of a model that multiply with integers, and what finds constants.
func quantisedNodes(m *model.Model) (list []*onnx.Node, find func(string) *onnx.Tensor) {
	constants := map[string]*onnx.Tensor{}
	var inside func(g *onnx.Graph)
	inside = func(g *onnx.Graph) {
		for _, t := range g.Initializer {
			constants[t.GetName()] = t
		}
		for _, n := range g.Node {
			if n.GetDomain() == "com.microsoft" && n.GetOpType() == "MatMulNBits" {
				list = append(list, n)
			}
			for _, a := range n.Attribute {
				if a.G != nil {
					inside(a.G)
				}
			}
		}
	}
	inside(m.Proto().Graph)
	return list, func(name string) *onnx.Tensor { return constants[name] }
}

// TestProblems: ONNX Runtime, without graft, gives of a quantised layer what float64 gives of the numbers that its
// integers stand for, and these are near the weights: random layers in all the ways that exporters write one. Of
// activations that are rounded a block of x moves by half a step at most.
func TestProblems(t *testing.T) {
	l, set := open(t)
	count := 40
	if n, err := strconv.Atoi(os.Getenv("GRAFT_TEST_PROBLEMS")); err == nil {
		count = n
	}
	for i := range count {
		r := rand.New(rand.NewPCG(uint64(i), 17))
		p := problemOf(r, ways[i%len(ways)])
		what := fmt.Sprintf("problem %d: %s of %d x %d, %d rows, %s, group %d, activations %s, zero points %t", i, p.way,
			p.depth, p.columns, p.rows, p.kind, p.group, p.activations, p.zeros)
		dir := t.TempDir()
		from, to := filepath.Join(dir, "model.onnx"), filepath.Join(dir, "out.onnx")
		data, err := proto.Marshal(p.model())
		if err == nil {
			err = os.WriteFile(from, data, 0o600)
		}
		must.Succeed(t, err)
		report, err := quantization.File(t.Context(), from, to, quantization.Options{Plugins: set.Plugins, Threads: 1 + i%2,
			Weights: weightsOf(t, fmt.Sprintf("%s,group=%d,activations=%s,zero-points=%t", p.kind, p.group, p.activations,
				p.zeros))})
		must.Succeed(t, err, what)
		w := p.written(t, what, to)
		off := apart(w, p.weight)
		if most := map[string]float64{"int8": 0.012, "int4": 0.13}[p.kind]; !(off <= most) {
			t.Errorf("%s: the weight moved by %.3g of itself, want at most %g", what, off, most)
		}
		if layer := report.Graphs[0].Layers[0]; math.Abs(layer.Error-off) > 1e-6 || layer.Type != p.kind ||
			layer.Depth != int64(p.depth) || layer.Columns != int64(p.columns) {
			t.Errorf("%s: the report says %+v, want an error of %g", what, layer, off)
		}
		p.run(t, l, what, to, w)
	}
}

// written are the numbers of the layer in the file that was written.
func (p *problem) written(t *testing.T, what, path string) []float32 {
	t.Helper()
	m := must.Value(model.Open(path))(t, what)
	defer m.Close()
	list, find := quantisedNodes(m)
	if want := map[bool]int{true: 2, false: 1}[p.way == "in a branch"]; len(list) != want {
		t.Fatalf("%s: %d nodes multiply with integers, want %d", what, len(list), want)
	}
	for _, n := range list[1:] {
		must.Equal(t, n.Input[1], list[0].Input[1], what)
	}
	for _, initializer := range m.Proto().Graph.Initializer {
		if initializer.GetName() == "w" {
			t.Errorf("%s: the weight of float32 is there still", what)
		}
	}
	return dequantised(t, m, list[0], find)
}

// apart is the root of the sum of squares of differences, over that of the numbers that are wanted.
func apart(got, want []float32) float64 {
	var off, all float64
	for i := range want {
		d := float64(got[i]) - float64(want[i])
		off += d * d
		all += float64(want[i]) * float64(want[i])
	}
	return math.Sqrt(off / all)
}

// run compares what plain ONNX Runtime gives.
func (p *problem) run(t *testing.T, l *ort.Library, what, path string, w []float32) {
	t.Helper()
	s := must.Value(session.Open(l, path, session.Options{Unpatched: true, IntraOpThreads: 1}))(t, what)
	defer s.Close()
	x := must.Value(ort.NewTensor(l, []int64{int64(p.rows), int64(p.depth)}, p.x))(t)
	defer x.Close()
	fed := map[string]*ort.Value{"x": x}
	if p.way == "in a branch" {
		which := must.Value(ort.NewTensor(l, []int64{1}, []bool{p.rows%2 == 0}))(t)
		defer which.Close()
		fed["which"] = which
	}
	out := must.Value(s.Run(t.Context(), fed, "y"))(t, what)
	defer out[0].Close()
	got := must.Value(ort.Data[float32](out[0]))(t)
	if len(got) != p.rows*p.columns {
		t.Fatalf("%s: %d numbers, want %d", what, len(got), p.rows*p.columns)
	}
	for row := range p.rows {
		for column := range p.columns {
			want, bound := 0.0, 0.0
			if p.addend != nil {
				want = float64(p.addend[column])
				bound = 1e-6 * math.Abs(want)
			}
			for block := 0; block < p.depth; block += p.group {
				end := min(block+p.group, p.depth)
				most, sum := 0.0, 0.0
				for k := block; k < end; k++ {
					a, b := float64(p.x[row*p.depth+k]), float64(w[k*p.columns+column])
					want += a * b
					bound += 4e-6 * math.Abs(a*b)
					most, sum = max(most, math.Abs(a)), sum+math.Abs(b)
				}
				if p.activations == "int8" {
					bound += 0.51 * most / 127 * sum
				}
			}
			if y := float64(got[row*p.columns+column]); !(math.Abs(y-want) <= bound+1e-9) {
				t.Fatalf("%s: row %d, column %d is %g, want %g within %g", what, row, column, y, want, bound)
			}
		}
	}
}
