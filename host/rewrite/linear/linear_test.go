package linear_test

import (
	"slices"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/rewrite/linear"
	"github.com/opgraft/graft/internal/must"
)

func TestDropReshapesAroundLinearLayers(t *testing.T) {
	const body = `
		out z f32[rows, 1, 32]
		in x f32[rows, 1, 64]
		const w f32[64, 32]
		flat = Reshape(x, [-1,64])
		y = graft.PackedLinear(flat, w)
		back = Reshape(y, [-1,1,32])
		z = Relu(back)`
	p, got := blockstest.Rewrite(t, body, dropReshapes, blockstest.Declare("y", "rows", 32))
	must.Equal(t, got, []string{"PackedLinear", "Relu"})
	for _, v := range p.ValueInfo {
		if v.GetName() == "y" && len(v.GetType().GetTensorType().GetShape().GetDim()) != 3 {
			t.Errorf("y is still declared flat: %v", v)
		}
	}
}

// A Reshape that does not undo the other stays, and so does the other.
func TestDropReshapesLeavesThoseThatChangeSomething(t *testing.T) {
	_, got := blockstest.Rewrite(t, `
		in x f32[rows, 2, 64]
		out z f32[rows, 64]
		const w f32[64, 32]
		flat = Reshape(x, [-1,64])
		y = graft.PackedLinear(flat, w)
		back = Reshape(y, [-1,64])
		z = Relu(back)`, dropReshapes, blockstest.Declare("y", "rows2", 32))
	must.Equal(t, len(got), 4, got)
}

const layers = `
	in x f32[rows, 1, 64]
	in p1 f32[8, 64, 16]
	in p2 f32[4, 128, 16]
	out z f32[rows, 1, 64]
	const scale f32[64]
	const offset f32[64]
	n = LayerNormalization(x, scale, offset) axis=-1 epsilon=0.25
	h = graft.PackedLinear(n, p1) columns=128
	a = graft.FusedGelu(h)
	y = graft.PackedLinear(a, p2) columns=64
	s = Add(x, y)
	z = Identity(s)`

func TestFuseLinearTakesInWhatIsAroundThem(t *testing.T) {
	p, got := blockstest.Rewrite(t, layers, fuse,
		blockstest.Declare("h", "rows", 1, 128), blockstest.Declare("a", "rows", 1, 128),
		blockstest.Declare("y", "rows", 1, 64))
	if want := []string{"PackedLinear", "PackedLinear", "Identity"}; !slices.Equal(got, want) {
		t.Fatalf("nodes %v, want %v", got, want)
	}
	first, second := p.Node[0], p.Node[1]
	must.Equal(t, first.Input, []string{"x", "p1", "", "", "scale", "offset"})
	must.Equal(t, second.Input, []string{"h", "p2", "", "x"})
	for _, a := range first.Attribute {
		switch a.GetName() {
		case "activation":
			must.Equal(t, string(a.S), "gelu", a.S)
		case "norm_epsilon":
			must.Equal(t, a.GetF(), 0.25)
		}
	}
	must.Equal(t, len(first.Attribute), 3)
}

// A normalization that is read as it is, and a linear layer read twice, stay.
func TestFuseLinearLeavesWhatIsReadElsewhere(t *testing.T) {
	_, got := blockstest.Rewrite(t, `
		in x f32[rows, 1, 64]
		in p1 f32[4, 64, 16]
		out z f32[rows, 1, 64]
		out z2 f32[rows, 1, 64]
		const scale f32[64]
		n = LayerNormalization(x, scale) axis=-1
		h = graft.PackedLinear(n, p1) columns=64
		z = Add(n, h)
		z2 = Relu(h)`, fuse, blockstest.Declare("h", "rows", 1, 64))
	must.Equal(t, len(got), 4, got)
}

// followed is a matmul in panels of what follows it, up to z.
func followed(follows string) string {
	return `
	in x f32[rows, 64]
	in p f32[4, 64, 16]
	out z f32[rows, 64]
	const scale f32[64]
	const offset f32[64]
	const one f32[1]
	in row f32[1, 64]
	y = graft.PackedLinear(x, p) columns=64
	` + follows
}

func TestFuseLinearEnds(t *testing.T) {
	for _, c := range []struct {
		name, follows string
		want          []string
	}{
		{"a sum and its normalization", `
			s = Add(y, x)
			n = LayerNormalization(s, scale, offset) axis=-1
			z = Identity(n)`, []string{"PackedLinear", "Identity"}},
		{"a normalization alone", `
			n = LayerNormalization(y, scale) axis=-1
			z = Identity(n)`, []string{"PackedLinear", "Identity"}},
		{"a sum that something else reads", `
			s = Add(y, x)
			n = LayerNormalization(s, scale, offset) axis=-1
			z = Add(n, s)`, []string{"PackedLinear", "LayerNormalization", "Add"}},
		{"a normalization of all rows", `
			n = LayerNormalization(y, scale) axis=0
			z = Identity(n)`, []string{"PackedLinear", "LayerNormalization", "Identity"}},
		{"a sum with what is made later", `
			late = Relu(x)
			s = Add(y, late)
			z = Identity(s)`, []string{"Relu", "PackedLinear", "Identity"}},
		{"y sigmoid(1.702 y)", `
			a = Mul(y, 1.702)
			b = Sigmoid(a)
			c = Mul(y, b)
			z = Identity(c)`, []string{"PackedLinear", "Identity"}},
		{"a bias and GELU as one", `
			b = com.microsoft.BiasGelu(y, offset)
			z = Identity(b)`, []string{"PackedLinear", "Identity"}},
		{"a bias and approximate GELU as one", `
			b = com.microsoft.FastGelu(y, offset)
			z = Identity(b)`, []string{"PackedLinear", "Identity"}},
		{"approximate GELU", `
			b = com.microsoft.FastGelu(y)
			z = Identity(b)`, []string{"PackedLinear", "Identity"}},
		{"quick GELU", `
			b = com.microsoft.QuickGelu(y) alpha=1.702
			z = Identity(b)`, []string{"PackedLinear", "Identity"}},
		{"quick GELU of another factor", `
			b = com.microsoft.QuickGelu(y) alpha=1.5
			z = Identity(b)`, []string{"PackedLinear", "QuickGelu", "Identity"}},
		{"a bias that is one number", `
			b = com.microsoft.BiasGelu(y, one)
			z = Identity(b)`, []string{"PackedLinear", "BiasGelu", "Identity"}},
		{"a residual, a bias and a normalization as one", `
			n = com.microsoft.SkipLayerNormalization(y, x, scale, offset, offset)
			z = Identity(n)`, []string{"PackedLinear", "Identity"}},
		{"the residual before it, no bias and no shift", `
			n = com.microsoft.SkipLayerNormalization(x, y, scale)
			z = Identity(n)`, []string{"PackedLinear", "Identity"}},
		{"what hands out", `
			z = com.microsoft.SkipLayerNormalization(y, x, scale, offset)`, []string{"PackedLinear"}},
		{"a sum that is read as well", `
			n, , , s = com.microsoft.SkipLayerNormalization(y, x, scale, offset, offset)
			z = Add(n, s)`, []string{"PackedLinear", "LayerNormalization", "Add"}},
		{"a residual that is one row", `
			n = com.microsoft.SkipLayerNormalization(y, row, scale, offset)
			z = Identity(n)`, []string{"PackedLinear", "SkipLayerNormalization", "Identity"}},
		{"a mean that is read", `
			n, mean = com.microsoft.SkipLayerNormalization(y, x, scale, offset)
			z = Add(n, mean)`, []string{"PackedLinear", "SkipLayerNormalization", "Add"}},
		{"a linear layer beside itself", `
			n = com.microsoft.SkipLayerNormalization(y, y, scale, offset)
			z = Identity(n)`, []string{"PackedLinear", "SkipLayerNormalization", "Identity"}},
		{"a sigmoid of another factor", `
			a = Mul(y, 1.5)
			b = Sigmoid(a)
			c = Mul(y, b)
			z = Identity(c)`, []string{"PackedLinear", "Mul", "Sigmoid", "Mul", "Identity"}},
		{"a sigmoid that something else reads", `
			a = Mul(y, 1.702)
			b = Sigmoid(a)
			c = Mul(y, b)
			z = Add(c, b)`, []string{"PackedLinear", "Mul", "Sigmoid", "Mul", "Add"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, got := blockstest.Rewrite(t, followed(c.follows), fuse, blockstest.Declare("y", "rows", 64))
			must.Equal(t, got, c.want)
		})
	}
}

// provide notes in a graph what operators of plugins do.
func provide(g *graph.Graph) {
	g.Provide(capability.LinearPanels, "graft.PackedLinear")
	g.Provide(capability.GELU, "graft.FusedGelu")
}

func dropReshapes(g *graph.Graph, shapes *graph.Shapes) error {
	provide(g)
	return linear.DropReshapes(g, shapes)
}

func fuse(g *graph.Graph, shapes *graph.Shapes) error {
	provide(g)
	return linear.Fuse(g, shapes)
}

// inPanels makes a graph and lays out its weights.
func inPanels(t *testing.T, text string, made ...blockstest.Declared) (*onnx.Graph, []string) {
	t.Helper()
	m, g := blockstest.Open(t, text, made)
	provide(g)
	must.Succeed(t, linear.Panels(g, graph.Infer(g), m))
	return m.Proto().Graph, blockstest.Operators(m.Proto().Graph)
}

// projections are linear layers of one x: three that can be one, one of another width, and one of another x.
const projections = `
	in x f32[rows, 64]
	out a f32[rows, 32]
	const wq f32[64, 32]
	const wk f32[32, 64]
	const wv f32[64, 32]
	const ww f32[64, 48]
	const bq f32[32]
	const bv f32[32]
	q = graft.PackedLinear(x, wq, bq)
	k = graft.PackedLinear(x, wk) transposed=1
	v = graft.PackedLinear(x, wv, bv)
	w = graft.PackedLinear(x, ww)
	qk = Add(q, k)
	a = Add(qk, v)
	out b f32[rows, 48]
	b = Relu(w)`

func TestPanelsJoinsProjections(t *testing.T) {
	g, got := inPanels(t, projections, blockstest.Declare("q", "rows", 32), blockstest.Declare("k", "rows", 32),
		blockstest.Declare("v", "rows", 32), blockstest.Declare("w", "rows", 48))
	if want := []string{"PackedLinear", "PackedLinear", "Add", "Add", "Relu"}; !slices.Equal(sorted(got), sorted(want)) {
		t.Fatalf("nodes %v, want %v", got, want)
	}
	for _, n := range g.Node {
		if n.GetOpType() != "PackedLinear" || len(n.Output) == 1 {
			continue
		}
		if len(n.Output) != 3 || len(n.Input) != 3 {
			t.Errorf("three projections read %q and make %q", n.Input, n.Output)
		}
		for _, a := range n.Attribute {
			must.Equal(t, a.GetI(), map[string]int64{"columns": 96, "parts": 3}[a.GetName()], a.GetName())
		}
		bias := g.Initializer[slices.IndexFunc(g.Initializer, func(x *onnx.Tensor) bool { return x.GetName() == n.Input[2] })]
		if len(bias.RawData) != 4*96 || !allZero(bias.RawData[4*32:4*64]) {
			t.Errorf("the biases are %d bytes, and those of the keys not zero", len(bias.RawData))
		}
	}
}

func allZero(b []byte) bool { return !slices.ContainsFunc(b, func(x byte) bool { return x != 0 }) }

func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

// A weight that something else reads stays as stored, and so does one whose columns are no whole panels beside others.
func TestPanelsLeave(t *testing.T) {
	for _, c := range []struct {
		name, text string
		panels     int
	}{
		{"a table of embeddings", `
			in x f32[rows, 64]
			in ids i64[n]
			out z f32[rows, 96]
			out e f32[n, 64]
			const w f32[96, 64]
			e = Gather(w, ids) axis=0
			z = graft.PackedLinear(x, w) transposed=1`, 0},
		{"a weight that is computed", `
			in x f32[rows, 64]
			in w f32[64, 96]
			out z f32[rows, 96]
			z = graft.PackedLinear(x, w)`, 0},
		{"a part of a panel", `
			in x f32[rows, 64]
			out z f32[rows, 9]
			out y f32[rows, 9]
			const w f32[64, 9]
			const v f32[64, 9]
			z = graft.PackedLinear(x, w)
			y = graft.PackedLinear(x, v)`, 2},
		{"one weight of two layers", `
			in x f32[rows, 64]
			out z f32[rows, 64]
			const w f32[64, 64]
			y = graft.PackedLinear(x, w)
			r = Relu(y)
			z = graft.PackedLinear(r, w)`, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, _ := inPanels(t, c.text, blockstest.Declare("y", "rows", 64), blockstest.Declare("r", "rows", 64))
			panels := 0
			for _, n := range g.Node {
				if n.GetOpType() == "PackedLinear" &&
					slices.ContainsFunc(n.Attribute, func(a *onnx.Attribute) bool { return a.GetName() == "columns" }) {
					panels++
				}
			}
			if panels != c.panels {
				t.Errorf("%d layers have panels, want %d: %v", panels, c.panels, g.Node)
			}
		})
	}
}

func TestFuseLinearGates(t *testing.T) {
	const body = `
		in x f32[rows, 64]
		in p f32[4, 64, 16]
		out z f32[rows, 32]
		y = graft.PackedLinear(x, p) columns=64
		`
	for _, c := range []struct {
		name, follows string
		want          []string
	}{
		{"a split", `
			a, b = Split(y) axis=-1 num_outputs=2
			g = Relu(a)
			m = Mul(g, b)
			z = Identity(m)`, []string{"PackedLinear", "Identity"}},
		{"two slices", `
			a = Slice(y, [0], [32], [1])
			b = Slice(y, [32], [64], [1])
			g = Relu(a)
			m = Mul(g, b)
			z = Identity(m)`, []string{"PackedLinear", "Identity"}},
		{"a function that is its argument times a sigmoid", `
			a = Slice(y, [0], [32], [1])
			b = Slice(y, [32], [64], [1])
			s = Sigmoid(a)
			g = Mul(a, s)
			m = Mul(b, g)
			z = Identity(m)`, []string{"PackedLinear", "Identity"}},
		{"slices of other columns", `
			a = Slice(y, [0], [32], [1])
			b = Slice(y, [16], [48], [1])
			g = Relu(a)
			m = Mul(g, b)
			z = Identity(m)`, []string{"PackedLinear", "Slice", "Slice", "Relu", "Mul", "Identity"}},
		{"slices in steps", `
			a = Slice(y, [0], [64], [1], [2])
			b = Slice(y, [32], [64], [1])
			g = Relu(a)
			m = Mul(g, b)
			z = Identity(m)`, []string{"PackedLinear", "Slice", "Slice", "Relu", "Mul", "Identity"}},
		{"a half that something else reads", `
			a, b = Split(y) axis=-1 num_outputs=2
			g = Relu(a)
			m = Mul(g, b)
			z = Add(m, b)`, []string{"PackedLinear", "Split", "Relu", "Mul", "Add"}},
		{"the first half of the rows", `
			a, b = Split(y) axis=0 num_outputs=2
			g = Relu(a)
			m = Mul(g, b)
			z = Identity(m)`, []string{"PackedLinear", "Split", "Relu", "Mul", "Identity"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, got := blockstest.Rewrite(t, body+c.follows, fuse, blockstest.Declare("y", "rows", 64))
			must.Equal(t, sorted(got), sorted(c.want), got)
		})
	}
}
