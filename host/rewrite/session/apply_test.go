package session_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/host/rewrite/session"
	"github.com/opgraft/graft/internal/must"
)

// layer is attention over a past whose mask is made from the shape of present.
const layer = `
	n = Shape(present_key) start=2 end=3
	m = Shape(k) start=2 end=3
	both = Concat([1,1], m, n) axis=0
	zeros = ConstantOfShape(both)
	kt = Transpose(present_key) perm=0,1,3,2
	a = MatMul(q, kt)
	s = Mul(a, 0.125)
	c = Add(s, zeros)
	p = Softmax(c)
	o = MatMul(p, present_value)
	o2 = Transpose(o) perm=0,2,1,3
	y0 = Reshape(o2, [0,0,512])
	y = Relu(y0)`

const ends = `
	in q f32[batch, 8, seq, 64]
	in k f32[batch, 8, seq, 64]
	in v f32[batch, 8, seq, 64]
	in past_key f32[batch, 8, past, 64]
	in past_value f32[batch, 8, past, 64]
	out y f32[batch, seq, 512]
	out present_key f32[batch, 8, past + seq, 64]
	out present_value f32[batch, 8, past + seq, 64]
	`

const join = `
	present_key = Concat(past_key, k) axis=2
	present_value = Concat(past_value, v) axis=2`

func parsed(t *testing.T, operators string) *manifest.Manifest {
	t.Helper()
	m := must.Value(manifest.Parse("plugin.yaml", []byte(`schema_version: 1
name: flash
version: 0.1.0
abi: "1.0"
license: Apache-2.0
summary: for a test
variants:
  - {device: cpu, os: linux, arch: amd64, file: libflash.so}
operators:
`+operators)))(t)
	return m
}

const flash = `  - name: Flash
    replaces: {block: attention}
    cost: {bandwidth: 0.9, flops: 0.7, overhead_us: 1}
`

// apply plans and rewrites a model under Force, and sees that what comes out is
// sound: read again, each name defined once, before it is read.
func apply(t *testing.T, p *onnx.Model, o plan.Options, manifests ...*manifest.Manifest) *onnx.Model {
	t.Helper()
	before := signatureOf(p)
	b := must.Value(proto.Marshal(p))(t)
	m := must.Value(model.Parse(b, ""))(t)
	g := must.Value(graph.New(m.Proto(), m))(t)
	s := graph.Infer(g)
	o.Force = true
	pl := plan.Make(g, s, blocks.Find(g, s), manifests, o)
	if pl.Replaced() == 0 {
		t.Fatalf("nothing to rewrite: %+v", pl.Choices)
	}
	must.Succeed(t, session.Apply(g, s, pl))
	must.Equal(t, signatureOf(m.Proto()), before)
	again := must.Value(graph.New(m.Proto(), m))(t, "the rewritten graph is not sound")
	names, given := map[string]bool{}, map[*graph.Value]bool{} // given by a subgraph, from outside or its own
	again.Walk(func(n *graph.Node) {
		for _, s := range n.Subgraphs {
			for _, v := range s.Outputs {
				given[v] = true
			}
		}
	})
	again.Walk(func(n *graph.Node) {
		if name := n.Proto.GetName(); name != "" && names[name] {
			t.Errorf("two nodes are named %s", name)
		}
		names[n.Proto.GetName()] = true
		for _, v := range n.Out {
			if v != nil && !v.IsOutput && len(v.Uses) == 0 && !given[v] && len(n.Out) == 1 {
				t.Errorf("%s makes %s, which nothing reads", n, v.Name)
			}
		}
	})
	return m.Proto()
}

// signatureOf writes down inputs and outputs with their types.
func signatureOf(m *onnx.Model) string {
	var b strings.Builder
	for _, v := range append(append([]*onnx.ValueInfo{}, m.Graph.Input...), m.Graph.Output...) {
		fmt.Fprintln(&b, v.GetName(), v.GetType())
	}
	return b.String()
}

func node(t *testing.T, g *onnx.Graph, op string) *onnx.Node {
	t.Helper()
	i := slices.IndexFunc(g.Node, func(n *onnx.Node) bool { return n.GetOpType() == op })
	if i < 0 {
		t.Fatalf("no %s among %v", op, blockstest.Operators(g))
	}
	return g.Node[i]
}

func TestAttention(t *testing.T) {
	p := apply(t, blockstest.Proto(t, ends+join+layer), plan.Options{}, parsed(t, flash))
	n := node(t, p.Graph, "Flash")
	must.Equal(t, n.GetDomain(), manifest.Domain)
	if want := []string{"q", "k", "v", "past_key", "past_value"}; !slices.Equal(n.Input[:5], want) || len(n.Input) != 6 {
		t.Errorf("inputs %v", n.Input)
	}
	if n.Output[1] != "present_key" || n.Output[2] != "present_value" || len(n.Output) != 3 {
		t.Errorf("outputs %v", n.Output)
	}
	for name, want := range map[string]int64{"num_heads": 8, "kv_num_heads": 8, "is_causal": 0, "output_rank": 3,
		"packed_qkv": 0} {
		must.Equal(t, blockstest.Attribute(n, name).GetI(), want, name)
	}
	for name, want := range map[string]string{"query_layout": "bhsd", "key_layout": "bhsd", "output_layout": "bshd"} {
		if a := blockstest.Attribute(n, name); string(a.GetS()) != want {
			t.Errorf("%s is %s, want %s", name, a.GetS(), want)
		}
	}
	must.Equal(t, blockstest.Attribute(n, "scale").GetF(), 0.125)
	for _, gone := range []string{"Softmax", "MatMul", "Transpose"} {
		if slices.Contains(blockstest.Operators(p.Graph), gone) {
			t.Errorf("%s is left in %v", gone, blockstest.Operators(p.Graph))
		}
	}
	if i := slices.IndexFunc(p.OpsetImport,
		func(o *onnx.OperatorSet) bool { return o.GetDomain() == manifest.Domain }); i < 0 {
		t.Error("the operators' domain is not imported")
	}
	i := slices.IndexFunc(p.Graph.ValueInfo, func(v *onnx.ValueInfo) bool { return v.GetName() == n.Output[0] })
	if i < 0 {
		t.Fatalf("the shape of %s is not declared", n.Output[0])
	}
	shape := p.Graph.ValueInfo[i].GetType().GetTensorType()
	if d := shape.GetShape().GetDim(); shape.GetElemType() != int32(onnx.Tensor_FLOAT) || len(d) != 3 ||
		d[0].GetDimParam() != "batch" || d[2].GetDimValue() != 512 {
		t.Errorf("declared as %v", shape)
	}
}

// The mask must not wait for present, however the two are tied.
func TestMaskFromTheShapeOfPresent(t *testing.T) {
	for name, shape := range map[string]string{
		"directly":        "n = Shape(present_key) start=2 end=3",
		"through a copy":  "copy = Identity(present_key)\nn = Shape(copy) start=2 end=3",
		"through a view":  "turned = Transpose(present_key) perm=0,2,1,3\nn = Shape(turned) start=1 end=2",
		"of the scores":   "",
		"of the new keys": "both0 = Concat(past_key, k) axis=2\nn = Shape(both0) start=2 end=3",
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(layer, "n = Shape(present_key) start=2 end=3", shape, 1)
			if shape == "" {
				text = strings.Replace(strings.Replace(layer, "n = Shape(present_key) start=2 end=3\n", "", 1), "both = ", "", 1)
				text = strings.Replace(text, "m = Shape(k) start=2 end=3\n", "", 1)
				text = strings.Replace(text, "Concat([1,1], m, n) axis=0\n", "\n", 1)
				text = strings.Replace(text, "zeros = ConstantOfShape(both)\n", "", 1)
				text = strings.Replace(text, "c = Add(s, zeros)",
					"both = Shape(s)\nzeros = ConstantOfShape(both)\nc = Add(s, zeros)", 1)
				text = strings.Replace(text, "\n\t\n", "\n", -1)
			}
			p := apply(t, blockstest.Proto(t, ends+join+text), plan.Options{}, parsed(t, flash))
			if slices.Contains(blockstest.Operators(p.Graph), "Softmax") {
				t.Errorf("left %v", blockstest.Operators(p.Graph))
			}
		})
	}
}

func TestShapeOfTheScoresIsReadElsewhere(t *testing.T) {
	text := ends + "out size i64[4]\n" + join + layer + "\n\tsize = Shape(a)"
	p := apply(t, blockstest.Proto(t, text), plan.Options{}, parsed(t, flash))
	if slices.Contains(blockstest.Operators(p.Graph), "MatMul") {
		t.Errorf("the scores were kept for their shape: %v", blockstest.Operators(p.Graph))
	}
}

func TestInvertedMask(t *testing.T) {
	p := apply(t, blockstest.Proto(t, `
		in q f32[b, 4, s, 16]
		in k f32[b, 4, t, 16]
		in v f32[b, 4, t, 16]
		in hidden bool[b, 1, s, t]
		out y f32[b, 4, s, 16]
		kt = Transpose(k) perm=0,1,3,2
		a = MatMul(q, kt)
		m = Where(hidden, -1e9, a)
		p = Softmax(m)
		y = MatMul(p, v)`), plan.Options{}, parsed(t, flash))
	n, not := node(t, p.Graph, "Flash"), node(t, p.Graph, "Not")
	if not.Input[0] != "hidden" || len(n.Input) != 7 || n.Input[6] != not.Output[0] || n.Output[0] != "y" {
		t.Errorf("%v reads %v", n.Output, n.Input)
	}
	must.Equal(t, blockstest.Attribute(n, "mask_fill").GetF(), -1e9)
}

func TestProbabilitiesThatLeave(t *testing.T) {
	p := apply(t, blockstest.Proto(t, `
		in q f32[b, 4, s, 16]
		in k f32[b, 4, t, 16]
		in v f32[b, 4, t, 16]
		out y f32[b, 4, s, 16]
		out p f32[b, 4, s, t]
		kt = Transpose(k) perm=0,1,3,2
		a = MatMul(q, kt)
		p = Softmax(a)
		y = MatMul(p, v)`), plan.Options{}, parsed(t, flash))
	n := node(t, p.Graph, "Flash")
	if want := []string{"y", "", "", "p"}; !slices.Equal(n.Output, want) ||
		blockstest.Attribute(n, "scores_mode").GetI() != 3 {
		t.Errorf("outputs %v", n.Output)
	}
}

// TestBranch rewrites attention inside an If whose past is the outer graph's.
func TestBranch(t *testing.T) {
	inner := blockstest.Proto(t, ends+join+layer).Graph
	inner.Input = nil
	other := blockstest.Proto(t, "out y f32[batch, seq, 512]\nout present_key f32[batch, 8, past + seq, 64]\nout "+
		"present_value f32[batch, 8, past + seq, 64]\n"+
		"t = Transpose(q) perm=0,2,1,3\ny = Reshape(t, [0,0,512])\n"+
		"present_key = Identity(k)\npresent_value = Identity(v)").Graph
	p := blockstest.Proto(t, ends+"in use bool[1]\ny, present_key, present_value = If(use)")
	for name, g := range map[string]*onnx.Graph{"then_branch": inner, "else_branch": other} {
		p.Graph.Node[0].Attribute = append(p.Graph.Node[0].Attribute,
			&onnx.Attribute{Name: proto.String(name), Type: onnx.Attribute_GRAPH.Enum(), G: g})
	}
	for _, g := range []*onnx.Graph{inner, other} { // names of a branch are its own
		rename := map[string]string{}
		for i, v := range g.Output {
			rename[v.GetName()] = fmt.Sprintf("branch_%d", i)
			v.Name = proto.String(rename[v.GetName()])
		}
		for _, n := range g.Node {
			for _, list := range [][]string{n.Input, n.Output} {
				for i, name := range list {
					if rename[name] != "" {
						list[i] = rename[name]
					}
				}
			}
		}
	}
	p = apply(t, p, plan.Options{}, parsed(t, flash))
	var then *onnx.Graph
	for _, a := range p.Graph.Node[len(p.Graph.Node)-1].Attribute {
		if a.GetName() == "then_branch" {
			then = a.G
		}
	}
	n := node(t, then, "Flash")
	if n.Input[3] != "past_key" || n.Output[1] != "branch_1" || n.Output[2] != "branch_2" {
		t.Errorf("reads %v, makes %v", n.Input, n.Output)
	}
}

// halves folds a matrix into two.
type halves struct{}

func (halves) Fold(_, _ string, constants []tensor.Weight, attributes []manifest.Attribute) ([]tensor.Weight, error) {
	w := constants[0]
	n := int64(len(w.Floats)) / w.Shape[0]
	return []tensor.Weight{
		{Name: "left", Shape: []int64{w.Shape[0], 1}, Floats: w.Floats[:w.Shape[0]]},
		{Name: "right", Shape: []int64{1, n}, Floats: w.Floats[:n]},
	}, nil
}

func TestPatternWithFold(t *testing.T) {
	m := parsed(t, `  - name: Thin
    replaces:
      pattern:
        inputs: [x]
        outputs: [y]
        nodes: [{op: MatMul, in: [x, w], out: [y]}]
        constants: {w: {any: true, rank: 2}}
    with:
      fold: [left, right]
      nodes:
        - {op: MatMul, in: [x, left], out: [t]}
        - {op: MatMul, in: [t, right], out: [y]}
    cost: {bandwidth: 0.9, flops: 0.5, overhead_us: 1}
`)
	p := apply(t, blockstest.Proto(t, `
		in x f32[b, s, 64]
		out y f32[b, s, 32]
		const w1 f32[64, 48]
		const w2 f32[48, 32]
		h = MatMul(x, w1)
		r = Relu(h)
		y = MatMul(r, w2)`), plan.Options{Folder: halves{}}, m)
	if got, want := blockstest.Operators(p.Graph),
		[]string{"MatMul", "MatMul", "Relu", "MatMul", "MatMul"}; !slices.Equal(got, want) {
		t.Errorf("nodes %v, want %v", got, want)
	}
	must.Equal(t, p.Graph.Node[4].Output[0], "y")
	dims := map[string][]int64{}
	for _, c := range p.Graph.Initializer {
		dims[c.GetName()] = c.Dims
		if c.GetName() == "w1" || c.GetName() == "w2" {
			t.Errorf("%s stayed, which nothing reads", c.GetName())
		}
	}
	if first := p.Graph.Node[0]; !slices.Equal(dims[first.Input[1]], []int64{64, 1}) ||
		!slices.Equal(dims[p.Graph.Node[1].Input[1]], []int64{1, 48}) {
		t.Errorf("folded constants %v", dims)
	}
}

// TestBlockReadsBlock sees that what one operator makes is what the next reads:
// no node of the first block stays for the sake of the second.
func TestBlockReadsBlock(t *testing.T) {
	p := apply(t, blockstest.Proto(t, ends+join+`
		kt = Transpose(present_key) perm=0,1,3,2
		a = MatMul(q, kt)
		s = Mul(a, 0.125)
		p = Softmax(s)
		o = MatMul(p, present_value)
		kt2 = Transpose(k) perm=0,1,3,2
		a2 = MatMul(o, kt2)
		s2 = Mul(a2, 0.125)
		p2 = Softmax(s2)
		o2 = MatMul(p2, v)
		t = Transpose(o2) perm=0,2,1,3
		y = Reshape(t, [0,0,512])`), plan.Options{}, parsed(t, flash))
	if got, want := blockstest.Operators(p.Graph), []string{"Flash", "Flash"}; !slices.Equal(got, want) {
		t.Errorf("nodes %v, want %v", got, want)
	}
}
