package rewrite_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/blocks/blockstest"
	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/model/onnx"
	"github.com/opgraft/graft/host/rewrite"
)

// shape is what is declared of a value that a plugin's operator makes, float32.
type shape struct {
	name string
	dims []any
}

// rewritten makes a graph, changes it and gives it with its operators in order.
func rewritten(t *testing.T, text string, change func(*graph.Graph, *graph.Shapes) error, made ...shape) (*onnx.Graph, []string) {
	t.Helper()
	p := blockstest.Proto(t, text)
	for _, s := range made {
		p.Graph.ValueInfo = append(p.Graph.ValueInfo, &onnx.ValueInfo{Name: proto.String(s.name), Type: graph.TensorType(onnx.Tensor_FLOAT, s.dims...)})
	}
	b, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Parse(b, "")
	if err != nil {
		t.Fatal(err)
	}
	g, err := graph.New(m.Proto(), m)
	if err != nil {
		t.Fatal(err)
	}
	if err := change(g, graph.Infer(g)); err != nil {
		t.Fatal(err)
	}
	return m.Proto().Graph, ops(m.Proto().Graph)
}

// engineEnd is the last layer of an engine graph: attention, its projection, a
// residual, a normalization and the linear layer to the vocabulary.
const engineEnd = `
	in x f32[rows, 1, 64]
	in graft.select i64[chosen]
	out logits f32[chosen, 1, 100]
	const w f32[64, 64]
	const v f32[64, 100]
	const scale f32[64]
	a = graft.CachedAttention(x)
	shaped = Reshape(a, [-1,1,64])
	m = MatMul(shaped, w)
	r = Add(m, x)
	n = LayerNormalization(r, scale) axis=-1
	picked = Gather(n, graft.select) axis=0
	logits = MatMul(picked, v)`

func TestSelectEarlyPicksRowsBehindTheLastAttention(t *testing.T) {
	p, got := rewritten(t, engineEnd, rewrite.SelectEarly, shape{"a", []any{"rows", 4, 1, 16}})
	want := []string{"CachedAttention", "Gather", "Reshape", "MatMul", "Gather", "Add", "LayerNormalization", "MatMul"}
	if !slices.Equal(got, want) {
		t.Errorf("nodes %v, want %v", got, want)
	}
	if last := p.Node[len(p.Node)-1]; last.Output[0] != "logits" {
		t.Errorf("the last node makes %s", last.Output[0])
	}
}

// What something else reads is needed for all rows.
func TestSelectEarlyLeavesWhatAttentionReads(t *testing.T) {
	_, got := rewritten(t, `
		in x f32[rows, 1, 64]
		in graft.select i64[chosen]
		out logits f32[chosen, 1, 100]
		const v f32[64, 100]
		h = Relu(x)
		a = graft.CachedAttention(h)
		shaped = Reshape(a, [-1,1,64])
		r = Add(shaped, h)
		s = Softmax(r) axis=0
		e = Add(s, r)
		picked = Gather(e, graft.select) axis=0
		logits = MatMul(picked, v)`, rewrite.SelectEarly, shape{"a", []any{"rows", 4, 1, 16}})
	// A softmax along the rows needs them all, and so does what it reads.
	want := []string{"Relu", "CachedAttention", "Reshape", "Add", "Softmax", "Gather", "Gather", "Add", "MatMul"}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("nodes %v, want %v", got, want)
	}
}

func TestDropReshapesAroundLinearLayers(t *testing.T) {
	const body = `
		out z f32[rows, 1, 32]
		in x f32[rows, 1, 64]
		const w f32[64, 32]
		flat = Reshape(x, [-1,64])
		y = graft.PackedLinear(flat, w)
		back = Reshape(y, [-1,1,32])
		z = Relu(back)`
	p, got := rewritten(t, body, rewrite.DropReshapes, shape{"y", []any{"rows", 32}})
	if want := []string{"PackedLinear", "Relu"}; !slices.Equal(got, want) {
		t.Errorf("nodes %v, want %v", got, want)
	}
	for _, v := range p.ValueInfo {
		if v.GetName() == "y" && len(v.GetType().GetTensorType().GetShape().GetDim()) != 3 {
			t.Errorf("y is still declared flat: %v", v)
		}
	}
}

// A Reshape that does not undo the other stays, and so does the other.
func TestDropReshapesLeavesThoseThatChangeSomething(t *testing.T) {
	_, got := rewritten(t, `
		in x f32[rows, 2, 64]
		out z f32[rows, 64]
		const w f32[64, 32]
		flat = Reshape(x, [-1,64])
		y = graft.PackedLinear(flat, w)
		back = Reshape(y, [-1,64])
		z = Relu(back)`, rewrite.DropReshapes, shape{"y", []any{"rows2", 32}})
	if len(got) != 4 {
		t.Errorf("nodes %v", got)
	}
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
	p, got := rewritten(t, layers, rewrite.FuseLinear,
		shape{"h", []any{"rows", 1, 128}}, shape{"a", []any{"rows", 1, 128}}, shape{"y", []any{"rows", 1, 64}})
	if want := []string{"PackedLinear", "PackedLinear", "Identity"}; !slices.Equal(got, want) {
		t.Fatalf("nodes %v, want %v", got, want)
	}
	first, second := p.Node[0], p.Node[1]
	if want := []string{"x", "p1", "", "", "scale", "offset"}; !slices.Equal(first.Input, want) {
		t.Errorf("the first reads %q, want %q", first.Input, want)
	}
	if want := []string{"h", "p2", "", "x"}; !slices.Equal(second.Input, want) {
		t.Errorf("the second reads %q, want %q", second.Input, want)
	}
	for _, a := range first.Attribute {
		switch a.GetName() {
		case "activation":
			if string(a.S) != "gelu" {
				t.Errorf("activation %s", a.S)
			}
		case "norm_epsilon":
			if a.GetF() != 0.25 {
				t.Errorf("epsilon %g", a.GetF())
			}
		}
	}
	if len(first.Attribute) != 3 {
		t.Errorf("attributes %v", first.Attribute)
	}
}

// A normalization that is read as it is, and a linear layer read twice, stay.
func TestFuseLinearLeavesWhatIsReadElsewhere(t *testing.T) {
	_, got := rewritten(t, `
		in x f32[rows, 1, 64]
		in p1 f32[4, 64, 16]
		out z f32[rows, 1, 64]
		out z2 f32[rows, 1, 64]
		const scale f32[64]
		n = LayerNormalization(x, scale) axis=-1
		h = graft.PackedLinear(n, p1) columns=64
		z = Add(n, h)
		z2 = Relu(h)`, rewrite.FuseLinear, shape{"h", []any{"rows", 1, 64}})
	if len(got) != 4 {
		t.Errorf("nodes %v", got)
	}
}
