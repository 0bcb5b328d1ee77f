package quantized

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/host/session/sessions"
	"github.com/opgraft/graft/internal/must"
)

// product is a MatMulNBits: x [.., K] times a weight of integers, and a bias.
type product struct {
	depth, columns, bits, block, level int64
	zeros, bias                        bool
	rows                               []int64
}

func (p product) String() string {
	return fmt.Sprintf("%v x %d x %d, %d bits, blocks of %d, level %d, zero points %t, bias %t", p.rows, p.depth,
		p.columns, p.bits, p.block, p.level, p.zeros, p.bias)
}

// randomProduct has sizes and numbers of any kind.
func randomProduct(r *rand.Rand) product {
	one := func(list ...int64) int64 { return list[r.IntN(len(list))] }
	p := product{depth: 1 + r.Int64N(one(8, 40, 300)), columns: 1 + r.Int64N(one(4, 40, 160)), bits: one(4, 8),
		block: one(16, 32, 64, 128, 256), level: one(0, 4),
		zeros: r.IntN(2) == 0, bias: r.IntN(2) == 0, rows: []int64{1 + r.Int64N(one(1, 5, 40))}}
	if r.IntN(4) == 0 { // whole panels
		p.depth, p.columns = 32*(1+r.Int64N(8)), 16*(1+r.Int64N(8))
	}
	if r.IntN(3) == 0 {
		p.rows = append(p.rows, 1+r.Int64N(3))
	}
	return p
}

// weight is what a product multiplies with: in the order of MatMulNBits, and the numbers [K][N] that it stands for.
type weight struct {
	integers, zeros []byte
	scales          []float32
	numbers         [][]float64
}

func (p product) weight(r *rand.Rand) *weight {
	groups := (p.depth + p.block - 1) / p.block
	w := &weight{numbers: make([][]float64, p.depth)}
	packed := func(list []byte) []byte {
		if p.bits == 8 {
			return list
		}
		halves := make([]byte, (len(list)+1)/2)
		for i, x := range list {
			halves[i/2] |= x << (i % 2 * 4)
		}
		return halves
	}
	for range p.columns {
		column, points := make([]byte, groups*p.block), make([]byte, groups)
		for g := range groups {
			points[g] = byte(1 << (p.bits - 1))
			if p.zeros {
				points[g] = byte(r.IntN(1 << p.bits))
			}
			scale := float32(math.Ldexp(0.01+r.Float64(), r.IntN(7)-8))
			w.scales = append(w.scales, scale)
			for k := g * p.block; k < (g+1)*p.block; k++ { // beyond K too, where nothing may be read
				column[k] = byte(r.IntN(1 << p.bits))
				if k < p.depth {
					w.numbers[k] = append(w.numbers[k], (float64(column[k])-float64(points[g]))*float64(scale))
				}
			}
		}
		w.integers = append(w.integers, packed(column)...)
		w.zeros = append(w.zeros, packed(points)...)
	}
	return w
}

func floatBytes(list []float32) (b []byte) {
	for _, x := range list {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func floatsOf(b []byte) (list []float32) {
	for i := 0; i < len(b); i += 4 {
		list = append(list, math.Float32frombits(binary.LittleEndian.Uint32(b[i:])))
	}
	return list
}

func tensorOf(name string, element onnx.Tensor_DataType, b []byte, dims ...int64) *onnx.Tensor {
	return &onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(element)), Dims: dims, RawData: b}
}

func whole(name string, v int64) *onnx.Attribute {
	return &onnx.Attribute{Name: proto.String(name), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(v)}
}

// node adds the product of x to a graph, as y.
func (p product) node(g *onnx.Graph, x, y string, w *weight, bias []float32) {
	groups := (p.depth + p.block - 1) / p.block
	add := func(suffix string, element onnx.Tensor_DataType, b []byte, dims ...int64) string {
		g.Initializer = append(g.Initializer, tensorOf(y+suffix, element, b, dims...))
		return y + suffix
	}
	in := []string{x, add(".q", onnx.Tensor_UINT8, w.integers, p.columns, groups, p.block*p.bits/8),
		add(".s", onnx.Tensor_FLOAT, floatBytes(w.scales), p.columns*groups)}
	if p.zeros {
		in = append(in, add(".z", onnx.Tensor_UINT8, w.zeros, int64(len(w.zeros))))
	}
	if bias != nil {
		for len(in) < 5 {
			in = append(in, "")
		}
		in = append(in, add(".b", onnx.Tensor_FLOAT, floatBytes(bias), p.columns))
	}
	g.Node = append(g.Node, &onnx.Node{Name: proto.String(y), Domain: proto.String("com.microsoft"),
		OpType: proto.String("MatMulNBits"), Input: in, Output: []string{y},
		Attribute: []*onnx.Attribute{whole("K", p.depth), whole("N", p.columns), whole("bits", p.bits),
			whole("block_size", p.block), whole("accuracy_level", p.level)}})
}

// encoded is a graph as a file, with an input x of any number of rows.
func encoded(t *testing.T, g *onnx.Graph, rank int, depth int64, outputs ...string) []byte {
	t.Helper()
	dims := []any{"rows", "more"}[:rank-1]
	g.Name, g.Input = proto.String("products"),
		[]*onnx.ValueInfo{{Name: proto.String("x"),
			Type: graph.TensorType(onnx.Tensor_FLOAT, append(slices.Clone(dims), int(depth))...)}}
	for _, y := range outputs {
		g.Output = append(g.Output, &onnx.ValueInfo{Name: proto.String(y)})
	}
	b := must.Value(proto.Marshal(&onnx.Model{IrVersion: proto.Int64(8), Graph: g,
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(17)},
			{Domain: proto.String("com.microsoft"), Version: proto.Int64(1)}}}))(t)
	return b
}

// runner opens models patched and unpatched.
type runner struct {
	l   *ort.Library
	set *loaded.Set
}

func newRunner(t *testing.T) *runner {
	t.Helper()
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	return &runner{l, set}
}

// run is what a model makes of x; patched with the analysis of it, unpatched with nil.
func (r *runner) run(t *testing.T, model []byte, patched bool, shape []int64, x []float32) (outputs [][]float32,
	a *patch.Analysis) {
	t.Helper()
	o := session.Options{IntraOpThreads: 2, Unpatched: !patched, LogSeverity: session.LogError}
	if patched {
		p := &sessions.Patcher{Plugins: r.set.Plugins,
			Options: r.set.Plan(plan.Options{Force: true, QuantizationNoise: true})}
		o.Patcher = func(r session.Request) (*session.Patch, error) {
			planned, err := p.Plan(t.Context(), r)
			if err != nil {
				return nil, err
			}
			a = planned.Analysis
			return planned.Patch()
		}
	}
	s := must.Value(session.FromBytes(r.l, model, o))(t)
	defer s.Close()
	in := must.Value(r.l.NewTensorBytes(ort.Float32, shape, floatBytes(x)))(t)
	defer in.Close()
	made := must.Value(s.Run(t.Context(), map[string]*ort.Value{"x": in}))(t)
	for _, v := range made {
		b := must.Value(v.Bytes())(t)
		outputs = append(outputs, floatsOf(b))
		v.Close()
	}
	return outputs, a
}

// TestNBitsProblems: products with integers in a patched session against float64 of the same numbers. Where rows stay
// float32 the error is that of float32's sums; where they are rounded it is at most that of rounding each group, and
// no greater than ONNX Runtime's over all.
func TestNBitsProblems(t *testing.T) {
	count := 60
	if n, err := strconv.Atoi(os.Getenv("GRAFT_TEST_PROBLEMS")); err == nil {
		count = n
	}
	runs := newRunner(t)
	var ours, theirs float64 // squared errors of rounded rows, in units of their bounds
	left := 0
	for seed := range count {
		r := rand.New(rand.NewPCG(uint64(seed), 17))
		p := randomProduct(r)
		w := p.weight(r)
		var bias []float32
		if p.bias {
			for range p.columns {
				bias = append(bias, float32(r.NormFloat64()))
			}
		}
		rows := int64(1)
		for _, n := range p.rows {
			rows *= n
		}
		x := make([]float32, rows*p.depth)
		for i := range x {
			x[i] = float32(math.Ldexp(r.NormFloat64(), r.IntN(3)))
		}
		g := &onnx.Graph{}
		p.node(g, "x", "y", w, bias)
		shape := append(slices.Clone(p.rows), p.depth)
		model := encoded(t, g, len(shape), p.depth, "y")
		plain, _ := runs.run(t, model, false, shape, x)
		made, a := runs.run(t, model, true, shape, x)
		if p.block == 16 && p.depth > 16 {
			left++
			if a.Plan.Replaced() != 0 || !slices.Equal(plain[0], made[0]) || !strings.Contains(a.Plan.Left(), "blocks of 16") {
				t.Errorf("problem %d, %v: %d replaced%s", seed, p, a.Plan.Replaced(), a.Plan.Left())
			}
			continue
		}
		if a.Plan.Replaced() != 1 {
			t.Errorf("problem %d, %v: is left%s", seed, p, a.Plan.Left())
			continue
		}
		for row := range rows {
			for n := range p.columns {
				want, magnitude, bound := 0., 0., 0.
				for g := int64(0); g < p.depth; g += p.block {
					most, weights := 0., 0.
					for k := g; k < min(p.depth, g+p.block); k++ {
						v, b := float64(x[row*p.depth+k]), w.numbers[k][n]
						want += v * b
						magnitude += math.Abs(v * b)
						most, weights = max(most, math.Abs(v)), weights+math.Abs(b)
					}
					bound += most / 254 * weights
				}
				if bias != nil {
					want += float64(bias[n])
					magnitude += math.Abs(float64(bias[n]))
				}
				float := 2e-6*magnitude + 1e-30
				at := row*p.columns + n
				off := math.Abs(float64(made[0][at]) - want)
				if p.level != 4 && !(off <= float) || p.level == 4 && !(off <= 1.001*bound+float) {
					t.Fatalf("problem %d, %v: row %d, column %d is %g, want %g", seed, p, row, n, made[0][at], want)
				}
				if p.level == 4 && bound > 0 {
					ours += math.Pow(off/bound, 2)
					theirs += math.Pow((float64(plain[0][at])-want)/bound, 2)
				}
			}
		}
	}
	if left == 0 || left == count {
		t.Errorf("%d of %d problems are left", left, count)
	}
	if !(ours <= 1.02*theirs) {
		t.Errorf("errors of rounded rows are %g, those of ONNX Runtime %g", math.Sqrt(ours), math.Sqrt(theirs))
	}
}
