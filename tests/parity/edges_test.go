package parity

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
)

const signature = `
	in q f32[batch, 4, seq, 16]
	in k f32[batch, 4, seq, 16]
	in v f32[batch, 4, seq, 16]
	in past_key f32[batch, 4, past, 16]
	in past_value f32[batch, 4, past, 16]
	`

const present = `
	out present_key f32[batch, 4, past + seq, 16]
	out present_value f32[batch, 4, past + seq, 16]
	`

const attention = `
	present_key = Concat(past_key, k) axis=2
	present_value = Concat(past_value, v) axis=2
	kt = Transpose(present_key) perm=0,1,3,2
	a = MatMul(q, kt)
	s = Mul(a, 0.25)
	p = Softmax(s)
	o = MatMul(p, present_value)
	`

// TestEdges runs small models whose shape arithmetic, outputs or scopes are
// unusual, patched against unpatched, at lengths of zero too.
func TestEdges(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	for name, p := range edges(t) {
		t.Run(name, func(t *testing.T) {
			b := must.Value(proto.Marshal(p))(t)
			path := filepath.Join(t.TempDir(), "model.onnx")
			must.Succeed(t, os.WriteFile(path, b, 0o644))
			for _, dims := range []map[string]int64{
				{"batch": 2, "seq": 3, "past": 5}, {"batch": 1, "seq": 1, "past": 0}, {"batch": 3, "seq": 1, "past": 7},
			} {
				o := comparison.Options{A: "none", B: "auto", Force: true, Unoptimized: true,
					Inputs: inputs.Options{Seed: 1, Dims: dims, LooseDims: true}}
				r := must.Value(comparison.Answers(context.Background(), l, set, path, o))(t, "at", dims)
				if r.B.Replaced == 0 {
					t.Error("nothing was replaced")
				}
				for _, out := range r.Parity.Outputs {
					if !out.OK || out.SameMistake() {
						t.Errorf("at %v: %s: %s, %d of %v differ, max %g", dims, out.Name, out.Problem, out.Disagree, out.Shape,
							out.MaxAbsolute)
					}
				}
			}
		})
	}
}

// crossing is a model in which operators of two plugins make rows of two lengths that nobody knows, in
// turns: one's are dead when the other's are made.
func crossing() string {
	text := `
	in x f32[batch]
	in z f32[seq, 3]
	out y f32[]
	const w f32[1, 64]
	last0 = Identity(1.0)`
	for i := range 12 {
		at := strings.NewReplacer("#", strconv.Itoa(i), "@", strconv.Itoa(i+1))
		text += at.Replace(`
	xm# = Mul(x, last#)
	xn# = NonZero(xm#)
	xc# = Cast(xn#) to=1
	xt# = Transpose(xc#)
	xy# = MatMul(xt#, w)
	xr# = ReduceMax(xy#) keepdims=0
	xs# = Add(xr#, 1.0)
	zm# = Mul(z, xs#)
	zn# = NonZero(zm#)
	zc# = Cast(zn#) to=1
	zt# = Transpose(zc#) perm=1,0
	zr# = Slice(zt#, [0], [1], [1])
	ze# = Expand(zr#, [1,64])
	a# = Div(ze#, 1.4142135)
	b# = Erf(a#)
	c# = Add(b#, 1.0)
	d# = Mul(ze#, c#)
	e# = Mul(d#, 0.5)
	f# = ReduceMax(e#) keepdims=0
	last@ = Add(f#, 1.0)`)
	}
	return text + `
	y = Identity(last12)`
}

func edges(t *testing.T) map[string]*onnx.Model {
	made := func(text string) *onnx.Model { return blockstest.Proto(t, text) }
	list := map[string]*onnx.Model{
		"unknown lengths of two plugins": made(crossing()),
		"values times turned probabilities": made(`
			in rows f32[batch, 160, seq]
			in v f32[batch, 4, 16, past]
			in k f32[batch, 4, 20, past]
			out y f32[batch, 64, seq]
			heads = Reshape(rows, [0,4,40,-1])
			q, rest = Split(heads, [20,20]) axis=2
			qt = Transpose(q) perm=0,1,3,2
			a = MatMul(qt, k)
			s = Mul(a, 0.25)
			p = Softmax(s)
			pt = Transpose(p) perm=0,1,3,2
			o = MatMul(v, pt)
			y = Reshape(o, [0,64,-1])`),
		"values times turned probabilities of one head": made(`
			in q f32[batch, seq, 16]
			in k f32[batch, 16, past]
			in v f32[batch, 24, past]
			out y f32[batch, 24, seq]
			a = MatMul(q, k)
			s = Mul(a, 0.25)
			p = Softmax(s)
			pt = Transpose(p) perm=0,2,1
			y = MatMul(v, pt)`),
		"rows cleared before the zeros of heads are cut off": made(`
			in q f32[batch, 4, seq, 12]
			in k f32[batch, 4, past, 12]
			in v f32[batch, 4, past, 12]
			in none bool[batch, 1, seq, 1]
			out y f32[batch, seq, 4, 12]
			q2 = Pad(q, [0,0,0,0,0,0,0,4])
			k2 = Pad(k, [0,0,0,0,0,0,0,4])
			v2 = Pad(v, [0,0,0,0,0,0,0,4])
			kt = Transpose(k2) perm=0,1,3,2
			a = MatMul(q2, kt)
			p = Softmax(a)
			o = MatMul(p, v2)
			z = Where(none, 0.0, o)
			t = Transpose(z) perm=0,2,1,3
			y = Slice(t, [0], [12], [3])`),
		"channels before positions": made(`
			in q3 f32[batch, 64, seq]
			in k3 f32[batch, 64, seq]
			in v3 f32[batch, 64, seq]
			out y f32[batch, 64, seq]
			q4 = Reshape(q3, [0,4,16,-1])
			k4 = Reshape(k3, [0,4,16,-1])
			v4 = Reshape(v3, [0,4,16,-1])
			q = Transpose(q4) perm=0,1,3,2
			v = Transpose(v4) perm=0,1,3,2
			a = MatMul(q, k4)
			s = Mul(a, 0.25)
			p = Softmax(s)
			o = MatMul(p, v)
			o4 = Transpose(o) perm=0,1,3,2
			y = Reshape(o4, [0,64,-1])`),
		"shape of the scores leaves": made(signature + present + attention + `
			out n i64[4]
			out y f32[batch, 4, seq, 16]
			n = Shape(s)
			y = Identity(o)`),
		"one shape leaves twice": made(signature + present + attention + `
			out n i64[4]
			out m i64[4]
			out y f32[batch, 4, seq, 16]
			n = Shape(s)
			m = Shape(a)
			y = Identity(o)`),
		"a constant shape leaves": made(signature + present + attention + `
			out n i64[1]
			out y f32[batch, 4, seq, 16]
			n = Shape(s) start=1 end=2
			y = Identity(o)`),
		"count of the scores": made(signature + present + attention + `
			out n i64[]
			out y f32[batch, 4, seq, 16]
			n = Size(s)
			y = Identity(o)`),
		"result leaves": made(signature + present + attention + `
			out o f32[batch, 4, seq, 16]
			out y f32[batch, 4, seq, 16]
			y = Relu(o)`),
		"attention of attention": made(signature + present + attention + `
			out o2 f32[batch, 4, seq, 16]
			kt2 = Transpose(k) perm=0,1,3,2
			a2 = MatMul(o, kt2)
			s2 = Mul(a2, 0.25)
			p2 = Softmax(s2)
			o2 = MatMul(p2, v)`),
		"present is the next past": made(signature + present + attention + `
			out o2 f32[batch, 4, seq, 16]
			next_key = Concat(present_key, k) axis=2
			next_value = Concat(present_value, v) axis=2
			kt2 = Transpose(next_key) perm=0,1,3,2
			a2 = MatMul(o, kt2)
			s2 = Mul(a2, 0.25)
			p2 = Softmax(s2)
			o2 = MatMul(p2, next_value)`),
		"a length that may be zero beside one left open": made(signature + present + attention + `
			in pairs f32[2*batch, past, 8]
			out y f32[batch, past, 16]
			out z f32[batch, 4, seq, 16]
			z = Identity(o)
			b = Shape(q) start=0 end=1
			n = Shape(past_key) start=2 end=3
			t = Concat(b, n, [16]) axis=0
			y = Reshape(pairs, t)`),
		"targets of all kinds": made(signature + present + attention + `
			out y f32[batch, seq, 64]
			out z f32[rows, 64]
			out w f32[batch, seq, 4, 16]
			b = Shape(q) start=0 end=1
			n = Shape(q) start=2 end=3
			bn = Mul(b, n)
			ot = Transpose(o) perm=0,2,1,3
			ty = Concat(b, n, [64]) axis=0
			y = Reshape(ot, ty)
			tz = Concat(bn, [64]) axis=0
			z = Reshape(y, tz)
			tw = Concat(b, [-1,4,16]) axis=0
			w = Reshape(z, tw)`),
	}
	list["a cache that grows in a loop"] = growing(t)
	list["attention in a function's caller"] = calling(t)
	old := made(signature + present + attention +
		"out y f32[batch, 4, seq, 16]\nn = Shape(s) start=1 end=3\nt = Concat([0], n, [16]) axis=0\ny = Reshape(o, t)")
	old.IrVersion = proto.Int64(3)
	for _, c := range old.Graph.Initializer {
		old.Graph.Input = append(old.Graph.Input,
			&onnx.ValueInfo{Name: c.Name, Type: &onnx.Type{Value: &onnx.Type_TensorType_{
				TensorType: &onnx.Type_TensorType{ElemType: c.DataType, Shape: shapeOf(c.Dims)}}}})
	}
	list["IR version 3"] = old
	for name, p := range list {
		must.Succeed(t, named(p), name)
	}
	return list
}

// growing decodes three steps in a Loop whose body names the length of its cache
// as the model names it before the first step.
func growing(t *testing.T) *onnx.Model {
	body := blockstest.Proto(t, `
		in step i64[]
		in go bool[1]
		in key f32[batch, 4, past, 16]
		in value f32[batch, 4, past, 16]
		in x f32[batch, 4, seq, 16]
		out on bool[1]
		out key2 f32[batch, 4, grown, 16]
		out value2 f32[batch, 4, grown, 16]
		out x2 f32[batch, 4, seq, 16]
		out cached f32[64]
		on = Identity(go)
		key2 = Concat(key, k) axis=2
		value2 = Concat(value, v) axis=2
		kt = Transpose(key2) perm=0,1,3,2
		a = MatMul(x, kt)
		s = Mul(a, 0.25)
		p = Softmax(s)
		x2 = MatMul(p, value2)
		all = Shape(s)
		nb = Gather(all, [0]) axis=0
		nt = Gather(all, [3]) axis=0
		width = Concat(nb, nt, [64]) axis=0
		moved = Transpose(key2) perm=0,1,3,2
		flat = Reshape(moved, width)
		cached = ReduceSum(flat, [0,1]) keepdims=0`).Graph
	for _, c := range body.Initializer {
		rename(body, c.GetName(), "body_"+c.GetName())
	}
	p := blockstest.Proto(t, signature+`
		out last_key f32[batch, 4, last, 16]
		out last_value f32[batch, 4, last, 16]
		out y f32[batch, 4, seq, 16]
		out sums f32[steps, 64]
		const count i64[1]
		const yes bool[1]
		n = Add(count, [2])
		last_key, last_value, y, sums = Loop(n, yes, past_key, past_value, q)`)
	last := p.Graph.Node[len(p.Graph.Node)-1]
	last.Attribute = append(last.Attribute,
		&onnx.Attribute{Name: proto.String("body"), Type: onnx.Attribute_GRAPH.Enum(), G: body})
	return p
}

// calling has attention beside a function of the model's own.
func calling(t *testing.T) *onnx.Model {
	p := blockstest.Proto(t, signature+present+attention+`
		out y f32[batch, 4, seq, 16]
		y = own.Twice(o)`)
	p.OpsetImport = append(p.OpsetImport, &onnx.OperatorSet{Domain: proto.String("own"), Version: proto.Int64(1)})
	p.Functions = []*onnx.Function{{
		Name: proto.String("Twice"), Domain: proto.String("own"), Input: []string{"x"}, Output: []string{"z"},
		Node:        []*onnx.Node{{OpType: proto.String("Add"), Input: []string{"x", "x"}, Output: []string{"z"}}},
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(blockstest.Opset)}},
	}}
	return p
}

// rename gives a constant of a graph another name.
func rename(g *onnx.Graph, from, to string) {
	for _, c := range g.Initializer {
		if c.GetName() == from {
			c.Name = proto.String(to)
		}
	}
	for _, n := range g.Node {
		for i, name := range n.Input {
			if name == from {
				n.Input[i] = to
			}
		}
	}
}

func shapeOf(dims []int64) *onnx.Shape {
	s := &onnx.Shape{}
	for _, d := range dims {
		s.Dim = append(s.Dim, &onnx.Shape_Dim{Value: &onnx.Shape_Dim_DimValue{DimValue: d}})
	}
	return s
}

// named sees that no two nodes share a name.
func named(p *onnx.Model) error {
	seen := map[string]bool{}
	for _, n := range p.Graph.Node {
		if seen[n.GetName()] {
			return fmt.Errorf("two nodes are named %s", n.GetName())
		}
		seen[n.GetName()] = true
	}
	return nil
}
