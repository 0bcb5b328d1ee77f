package patch_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
)

// choices reads what a graph is made of off a list of bytes; at its end all of them are zero.
type choices struct{ rest []byte }

func (c *choices) below(n int) int {
	if len(c.rest) == 0 {
		return 0
	}
	b := c.rest[0]
	c.rest = c.rest[1:]
	return int(b) % n
}

// fuzzOps are the operators that recognition looks at.
var fuzzOps = []string{"MatMul", "Softmax", "Add", "Mul", "Where", "Transpose", "Reshape", "Concat", "Slice", "Split",
	"Div", "Sub", "Cast",
	"Identity", "Dropout", "Expand", "Tile", "Squeeze", "Unsqueeze", "Flatten", "Gather", "Shape", "Size", "Range",
	"CumSum", "Trilu", "Less",
	"LessOrEqual", "Greater", "Not", "IsNaN", "Neg", "Tanh", "Erf", "Sqrt", "Pow", "ReduceMean", "Gemm", "Conv",
	"ConstantOfShape", "Cos", "Sin",
	"LayerNormalization", "Attention", "RotaryEmbedding", "com.microsoft.MultiHeadAttention",
	"com.microsoft.GroupQueryAttention",
	"com.microsoft.Attention", "com.microsoft.RotaryEmbedding", "com.microsoft.EmbedLayerNormalization",
	"com.microsoft.SkipLayerNormalization",
	"com.microsoft.FusedMatMul", "If", "Loop"}

// fuzzInputs is how many inputs an operator gets, mostly as many as it needs.
func fuzzInputs(c *choices, op string) int {
	switch op {
	case "MatMul", "Add", "Sub", "Mul", "Div", "Less", "LessOrEqual", "Greater", "Gather", "Reshape", "Expand", "Pow",
		"Gemm", "CumSum", "Tile":
		return 2
	case "Where", "Range", "Conv", "LayerNormalization":
		return 3
	case "Softmax", "Transpose", "Cast", "Identity", "Neg", "Tanh", "Erf", "Not", "IsNaN", "Shape", "Size", "Cos", "Sin",
		"Sqrt":
		return 1
	}
	return c.below(12)
}

// drawRandom draws some steps of a graph that may read names of the graphs around it.
func drawRandom(c *choices, d *drawing, names []string, depth int) []string {
	pick := func() string {
		if c.below(64) == 63 {
			return ""
		}
		return names[len(names)-1-c.below(min(len(names), 24))]
	}
	for range c.below(24) {
		switch c.below(8) {
		case 0: // attention whose parts may be anything
			q, k, v, mask := pick(), pick(), pick(), pick()
			x := d.of("MatMul", q, d.add("Transpose", []string{k}, "perm", []int64{0, 1, 3, 2}))
			if c.below(2) == 0 {
				x = d.of("Add", x, mask)
			}
			s := d.add("Softmax", []string{x}, "axis", -1+4*c.below(2))
			names = append(names, x, s, d.of("MatMul", s, v))
			continue
		case 1:
			names = append(names, d.ints([]int64{0, 1, -1, 4, 16, 64, 2, 8}[c.below(5):][:c.below(4)]...))
			continue
		}
		op := fuzzOps[c.below(len(fuzzOps))]
		var in []string
		for range fuzzInputs(c, op) {
			in = append(in, pick())
		}
		var attributes []any
		for range c.below(4) {
			name := []string{"axis", "perm", "axes", "to", "num_heads", "kv_num_heads", "q_num_heads", "unidirectional",
				"transB", "num_outputs",
				"keepdims", "interleaved", "do_rotary", "qkv_hidden_sizes", "qk_matmul_output_mode", "is_causal",
				"allowzero"}[c.below(17)]
			number := []int{0, 1, -1, 2, 3, 4, 9, 7, 10, 64, 1 << 40, -1 << 63}[c.below(12)]
			if c.below(3) == 0 {
				attributes = append(attributes, name,
					[][]int64{{0, 2, 1, 3}, {0, 1, 3, 2}, {1, 0}, {-1}, {64, 64, 64}, {int64(number)}, nil}[c.below(7)])
			} else {
				attributes = append(attributes, name, number)
			}
		}
		if depth < 3 && (op == "If" || op == "Loop") {
			for _, name := range []string{"then_branch", "else_branch", "body"} {
				body := d.inside()
				inner := drawRandom(c, body, names, depth+1)
				body.output(inner[len(inner)-1])
				attributes = append(attributes, name, body.p)
			}
		}
		y := d.add(op, in, attributes...)
		n := d.p.Node[len(d.p.Node)-1]
		if at := strings.LastIndex(op, "."); at >= 0 {
			n.Domain, n.OpType = proto.String(op[:at]), proto.String(op[at+1:])
		}
		names = append(names, y)
		for range c.below(4) {
			n.Output = append(n.Output, d.name())
			names = append(names, n.Output[len(n.Output)-1])
		}
		if c.below(8) == 7 {
			d.output(y)
		}
	}
	return names
}

// drawn is the model that a list of bytes stands for.
func drawn(data []byte) *onnx.Model {
	c, d := &choices{data}, draw()
	names := []string{
		d.floats("batch", 4, "seq", 16), d.floats("batch", 4, "past", 16), d.floats("batch", "seq", 64),
		d.floats("batch", 1, "seq", "seq"),
		d.input(onnx.Tensor_BOOL, "seq", "seq"), d.input(onnx.Tensor_INT64, "batch", "seq"), d.table(64, 64), d.table(8, 16),
		d.floats(0, "seq"),
		d.constant(graph.FloatTensor("", nil, 0.25)), d.ints(0, 0, 4, 16), d.ints(0, 0, 64),
	}
	names = drawRandom(c, d, names, 0)
	d.output(names[len(names)-1])
	return d.model()
}

// checkDrawn leads such a model through the whole analysis, which must not fail and must leave it sound.
func checkDrawn(t *testing.T, data []byte, with []*manifest.Manifest) (blocks, replaced int) {
	t.Helper()
	b := must.Value(proto.Marshal(drawn(data)))(t)
	m := must.Value(model.Parse(b, ""))(t)
	if g, err := graph.New(m.Proto(), m); err != nil || g.Complete() != nil {
		return 0, 0 // a value that is handed out twice, say
	}
	rows := must.Value(patch.ViewRows(unhurried(t), m, proto.CloneOf(m.Proto())))(t)
	must.Value(graph.New(rows.Graph.Model(), m))(t, "the graph for rows without padding is not sound")
	a, err := patch.Analyse(unhurried(t), m, with, plan.Options{Force: true})
	if err == nil {
		err = a.Apply(unhurried(t))
	}
	must.Succeed(t, err)
	must.Value(graph.New(m.Proto(), m))(t, "the rewritten graph is not sound")
	return len(a.Report.Blocks), a.Plan.Replaced()
}

func TestRandomGraphs(t *testing.T) {
	with := manifests(t, "flash-decode", "fused-gelu", "packed-linear")
	r := rand.New(rand.NewPCG(7, 8))
	blocks, replaced := 0, 0
	for range 2000 {
		data := make([]byte, r.IntN(600))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		b, n := checkDrawn(t, data, with)
		blocks, replaced = blocks+b, replaced+n
	}
	if blocks < 20 || replaced < 10 {
		t.Errorf("%d blocks, %d replaced: the graphs do not reach what they should", blocks, replaced)
	}
}

func FuzzAnalysis(f *testing.F) {
	with := manifests(f, "flash-decode", "fused-gelu", "packed-linear")
	f.Fuzz(func(t *testing.T, data []byte) {
		must.CostLittle(t, len(data), func() { checkDrawn(t, data, with) })
	})
}
