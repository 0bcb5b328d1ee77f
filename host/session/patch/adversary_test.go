package patch_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/internal/must"
)

// drawing is a graph in the making. Names of values are numbers.
type drawing struct {
	p     *onnx.Graph
	fresh *int
}

func draw() *drawing { return &drawing{&onnx.Graph{Name: proto.String("drawn")}, new(int)} }

func (d *drawing) name() string {
	*d.fresh++
	return fmt.Sprint("v", *d.fresh)
}

// input is a new input of the graph; lengths are numbers and names.
func (d *drawing) input(kind onnx.Tensor_DataType, dims ...any) string {
	name := d.name()
	d.p.Input = append(d.p.Input, &onnx.ValueInfo{Name: proto.String(name), Type: graph.TensorType(kind, dims...)})
	return name
}

func (d *drawing) floats(dims ...any) string { return d.input(onnx.Tensor_FLOAT, dims...) }

// output hands values out.
func (d *drawing) output(names ...string) {
	for _, name := range names {
		d.p.Output = append(d.p.Output, &onnx.ValueInfo{Name: proto.String(name)})
	}
}

func (d *drawing) constant(t *onnx.Tensor) string {
	t.Name = proto.String(d.name())
	d.p.Initializer = append(d.p.Initializer, t)
	return t.GetName()
}

func (d *drawing) ints(list ...int64) string {
	return d.constant(graph.Int64Tensor("", []int64{int64(len(list))}, list...))
}

func (d *drawing) table(rows, columns int64) string {
	return d.constant(&onnx.Tensor{DataType: proto.Int32(int32(onnx.Tensor_FLOAT)), Dims: []int64{rows, columns},
		RawData: make([]byte, 4*rows*columns)})
}

// add is what a node makes. Attributes are names and values, int or []int64.
func (d *drawing) add(op string, in []string, attributes ...any) string {
	n := &onnx.Node{OpType: proto.String(op), Input: in, Output: []string{d.name()}}
	for i := 0; i < len(attributes); i += 2 {
		a := &onnx.Attribute{Name: proto.String(attributes[i].(string))}
		switch v := attributes[i+1].(type) {
		case int:
			a.Type, a.I = onnx.Attribute_INT.Enum(), proto.Int64(int64(v))
		case []int64:
			a.Type, a.Ints = onnx.Attribute_INTS.Enum(), v
		case *onnx.Graph:
			a.Type, a.G = onnx.Attribute_GRAPH.Enum(), v
		}
		n.Attribute = append(n.Attribute, a)
	}
	d.p.Node = append(d.p.Node, n)
	return n.Output[0]
}

func (d *drawing) of(op string, in ...string) string { return d.add(op, in) }

// inside is a graph inside this one.
func (d *drawing) inside() *drawing {
	return &drawing{&onnx.Graph{Name: proto.String("inner")}, d.fresh}
}

func (d *drawing) model() *onnx.Model {
	return &onnx.Model{IrVersion: proto.Int64(8), Graph: d.p, OpsetImport: []*onnx.OperatorSet{
		{Domain: proto.String(""), Version: proto.Int64(18)},
		{Domain: proto.String("com.microsoft"), Version: proto.Int64(1)}}}
}

// heads are query, key and value of attention as inputs.
func (d *drawing) heads() (q, k, v string) {
	return d.floats("batch", 4, "seq", 16), d.floats("batch", 4, 16, "seq"), d.floats("batch", 4, "seq", 16)
}

// attention hands out softmax(scores) v, where scores are made of q k.
func (d *drawing) attention(scores func(qk string) string) {
	q, k, v := d.heads()
	d.output(d.of("MatMul", d.of("Softmax", scores(d.of("MatMul", q, k))), v))
}

// nested applies a step n times.
func nested(n int, x string, step func(x string) string) string {
	for range n {
		x = step(x)
	}
	return x
}

// adversaries draw graphs with about n nodes on which a careless walk takes longer than
// their size.
var adversaries = []struct {
	name string
	draw func(d *drawing, n int)
}{
	{"Add(x, x) as scores", func(d *drawing, n int) {
		d.attention(func(x string) string { return nested(n, x, func(x string) string { return d.of("Add", x, x) }) })
	}},
	{"Mul(x, x) as scores", func(d *drawing, n int) {
		d.attention(func(x string) string { return nested(n, x, func(x string) string { return d.of("Mul", x, x) }) })
	}},
	{"Where(c, x, x) as scores", func(d *drawing, n int) {
		c := d.input(onnx.Tensor_BOOL, "seq", "seq")
		d.attention(func(x string) string { return nested(n, x, func(x string) string { return d.of("Where", c, x, x) }) })
	}},
	{"Add(x, x) as mask", func(d *drawing, n int) {
		mask := nested(n, d.floats("batch", 1, "seq", "seq"), func(x string) string { return d.of("Add", x, x) })
		d.attention(func(x string) string { return d.of("Add", x, mask) })
	}},
	{"counted positions, added", func(d *drawing, n int) {
		x := d.of("Range", d.ints(0), d.ints(8), d.ints(1))
		x = nested(n, x, func(x string) string { return d.of("Add", x, x) })
		mask := d.add("Cast", []string{d.of("Less", x, d.of("Unsqueeze", x, d.ints(1)))}, "to", int(onnx.Tensor_FLOAT))
		d.attention(func(x string) string { return d.of("Add", x, mask) })
	}},
	{"tokens, added", func(d *drawing, n int) {
		x := nested(n, d.input(onnx.Tensor_INT64, "batch", "seq"), func(x string) string { return d.of("Add", x, x) })
		d.output(d.of("Add", d.of("Gather", d.table(8, 16), x), d.of("Gather", d.table(16, 16), x)))
	}},
	{"embeddings, added", func(d *drawing, n int) {
		x := d.of("Gather", d.table(8, 16), d.input(onnx.Tensor_INT64, "batch", "seq"))
		x = nested(n, x, func(x string) string { return d.of("Add", x, x) })
		d.output(d.of("Add", x, x))
	}},
	{"many Concats of one value", func(d *drawing, n int) {
		x := d.floats("batch", "seq")
		for range max(n/16, 1) {
			x = d.add("Concat", []string{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}, "axis", 0)
		}
		d.output(d.of("Cos", x))
	}},
	{"lengths, doubled", func(d *drawing, n int) {
		x := d.floats("batch", "seq")
		s := nested(n, d.of("Shape", x), func(s string) string { return d.of("Add", s, s) })
		d.output(d.of("Expand", x, s))
	}},
	{"lengths, squared", func(d *drawing, n int) {
		x := d.floats("batch", "seq")
		s := nested(n, d.of("Shape", x), func(s string) string { return d.of("Mul", s, s) })
		d.output(d.of("Reshape", d.of("Expand", x, s), d.ints(math.MaxInt64)))
	}},
	{"lengths, joined", func(d *drawing, n int) {
		x := d.floats("batch", "seq")
		for range n {
			x = d.add("Concat", []string{x, x}, "axis", 0)
		}
		d.output(x)
	}},
	{"a sum of many lengths", func(d *drawing, n int) {
		var rows []string
		for i := range n {
			rows = append(rows, d.floats(fmt.Sprint("rows", i), 4))
		}
		x := rows[0]
		for _, r := range rows[1:] {
			x = d.add("Concat", []string{x, r}, "axis", 0)
		}
		d.output(x)
	}},
	{"Identities", func(d *drawing, n int) {
		d.output(nested(n, d.floats("batch", "seq", 64), func(x string) string { return d.of("Identity", x) }))
	}},
	{"Casts", func(d *drawing, n int) {
		d.output(nested(n, d.floats("batch", "seq", 64),
			func(x string) string { return d.add("Cast", []string{x}, "to", 1+9*(*d.fresh%2)) }))
	}},
	{"Transposes", func(d *drawing, n int) {
		d.output(nested(n, d.floats("batch", "seq", 64),
			func(x string) string { return d.add("Transpose", []string{x}, "perm", []int64{2, 0, 1}) }))
	}},
	{"Reshapes", func(d *drawing, n int) {
		shapes := []string{d.ints(0, 0, 4, 16), d.ints(0, 0, 64), d.ints(0, 0, 2, 32)}
		d.output(nested(n, d.floats("batch", "seq", 64),
			func(x string) string { return d.of("Reshape", x, shapes[*d.fresh%3]) }))
	}},
	{"Reshapes through one computed shape", func(d *drawing, n int) {
		x := d.floats("batch", "seq", 64)
		s := d.of("Shape", x)
		for range n {
			d.output(d.of("Reshape", x, s))
		}
	}},
	{"views as scores", func(d *drawing, n int) {
		d.attention(func(x string) string {
			return nested(n/2, x, func(x string) string {
				return d.add("Transpose", []string{d.add("Transpose", []string{x}, "perm", []int64{0, 2, 1, 3})}, "perm",
					[]int64{0, 2, 1, 3})
			})
		})
	}},
	{"Relus", func(d *drawing, n int) {
		d.output(nested(n, d.floats("batch", "seq", 64), func(x string) string { return d.of("Relu", x) }))
	}},
	{"a value with many readers", func(d *drawing, n int) {
		x := d.of("Relu", d.floats("batch", "seq", 64))
		for range n {
			d.output(d.of("Relu", x))
		}
	}},
	{"a constant with many readers", func(d *drawing, n int) {
		x, c := d.floats("batch", "seq", 64), d.table(1, 64)
		for range n {
			x = d.of("Add", x, c)
		}
		d.output(x)
	}},
	{"many softmaxes of one matmul", func(d *drawing, n int) {
		q, k, v := d.heads()
		x := d.of("MatMul", q, k)
		for range n / 2 {
			d.output(d.of("MatMul", d.of("Softmax", x), v))
		}
	}},
	{"attentions that share a mask", func(d *drawing, n int) {
		q, k, v := d.heads()
		mask := nested(n/4, d.floats("batch", 1, "seq", "seq"), func(x string) string { return d.of("Relu", x) })
		for range n / 4 {
			d.output(d.of("MatMul", d.of("Softmax", d.of("Add", d.of("MatMul", q, k), mask)), v))
		}
	}},
	{"attentions that share a mask, each in its own copy", func(d *drawing, n int) {
		q, k, v := d.heads()
		mask := nested(n/4, d.floats("batch", 1, "seq", "seq"), func(x string) string { return d.of("Relu", x) })
		for range n / 5 {
			d.output(d.of("MatMul", d.of("Softmax", d.of("Add", d.of("MatMul", q, k), d.of("Neg", mask))), v))
		}
	}},
	{"attentions, one after the other", func(d *drawing, n int) {
		q, k, v := d.heads()
		mask := d.floats("batch", 1, "seq", "seq")
		for range n / 4 {
			q = d.of("MatMul", d.of("Softmax", d.of("Add", d.of("MatMul", q, k), mask)), v)
		}
		d.output(q)
	}},
	{"attentions with presents, the mask from their shapes", func(d *drawing, n int) {
		q, _, v := d.heads()
		past := d.floats("batch", 4, "past", 16)
		for range n / 8 {
			k := d.add("Concat", []string{past, v}, "axis", 2)
			shape := d.of("Shape", k)
			mask := d.of("ConstantOfShape", d.add("Gather", []string{shape, d.ints(2)}, "axis", 0))
			kt := d.add("Transpose", []string{k}, "perm", []int64{0, 1, 3, 2})
			q = d.of("MatMul", d.of("Softmax", d.of("Add", d.of("MatMul", q, kt), mask)), k)
			d.output(k)
		}
		d.output(q)
	}},
	{"GELUs", func(d *drawing, n int) {
		x := d.floats("batch", "seq", 64)
		number := func(x float32) string { return d.constant(graph.FloatTensor("", nil, x)) }
		root, one, half := number(1.41421356), number(1), number(0.5)
		for range n / 5 {
			x = d.of("Mul", d.of("Mul", x, d.of("Add", d.of("Erf", d.of("Div", x, root)), one)), half)
		}
		d.output(x)
	}},
	{"GELUs of one value", func(d *drawing, n int) {
		x := d.floats("batch", "seq", 64)
		number := func(x float32) string { return d.constant(graph.FloatTensor("", nil, x)) }
		root, one, half := number(1.41421356), number(1), number(0.5)
		for range n / 5 {
			d.output(d.of("Mul", d.of("Mul", x, d.of("Add", d.of("Erf", d.of("Div", x, root)), one)), half))
		}
	}},
	{"matmuls of one value", func(d *drawing, n int) {
		x, w, b := d.floats("batch", "seq", 64), d.table(64, 64),
			d.constant(graph.FloatTensor("", []int64{64}, make([]float32, 64)...))
		for range n / 2 {
			d.output(d.of("Add", d.of("MatMul", x, w), b))
		}
	}},
	{"Ifs, one inside the other", func(d *drawing, n int) {
		c, x := d.input(onnx.Tensor_BOOL), d.floats("batch", "seq", 64)
		var branches func(d *drawing, depth int) string
		branches = func(d *drawing, depth int) string {
			if depth == 0 {
				return nested(n, x, func(x string) string { return d.of("Relu", x) })
			}
			yes, no := d.inside(), d.inside()
			yes.output(branches(yes, depth-1))
			no.output(no.of("Neg", x))
			return d.add("If", []string{c}, "then_branch", yes.p, "else_branch", no.p)
		}
		d.output(branches(d, 20))
	}},
	{"Loops, one inside the other", func(d *drawing, n int) {
		trips, c, x := d.input(onnx.Tensor_INT64), d.input(onnx.Tensor_BOOL), d.floats("batch", "seq", 64)
		var loop func(d *drawing, x string, depth int) string
		loop = func(d *drawing, x string, depth int) string {
			if depth == 0 {
				return nested(n, x, func(x string) string { return d.of("Relu", x) })
			}
			body := d.inside()
			body.input(onnx.Tensor_INT64)
			again := body.input(onnx.Tensor_BOOL)
			y := body.input(onnx.Tensor_FLOAT, "batch", "seq", 64)
			body.output(again, loop(body, y, depth-1))
			return d.add("Loop", []string{trips, c, x}, "body", body.p)
		}
		d.output(loop(d, x, 20))
	}},
	{"many Ifs", func(d *drawing, n int) {
		c, x := d.input(onnx.Tensor_BOOL), d.floats("batch", "seq", 64)
		for range n / 3 {
			yes, no := d.inside(), d.inside()
			yes.output(yes.of("Relu", x))
			no.output(no.of("Neg", x))
			x = d.add("If", []string{c}, "then_branch", yes.p, "else_branch", no.p)
		}
		d.output(x)
	}},
	{"many outputs of one value in Ifs", func(d *drawing, n int) {
		c := d.input(onnx.Tensor_BOOL)
		d.attention(func(x string) string {
			for range n / 2 {
				yes, no := d.inside(), d.inside()
				yes.output(x)
				no.output(x)
				d.output(d.add("If", []string{c}, "then_branch", yes.p, "else_branch", no.p))
			}
			return x
		})
	}},
	{"rotary embeddings, one after the other", func(d *drawing, n int) {
		_, k, v := d.heads()
		x := d.floats("batch", 4, "seq", 16)
		cos, sin := d.floats("seq", 16), d.floats("seq", 16)
		for range n / 7 {
			first := d.of("Slice", x, d.ints(0), d.ints(8), d.ints(3))
			second := d.of("Slice", x, d.ints(8), d.ints(16), d.ints(3))
			turned := d.add("Concat", []string{d.of("Neg", second), first}, "axis", 3)
			x = d.of("Add", d.of("Mul", x, cos), d.of("Mul", turned, sin))
		}
		d.output(d.of("MatMul", d.of("Softmax", d.of("MatMul", x, k)), v))
	}},
	{"one name for many lengths", func(d *drawing, n int) {
		x := d.floats("a", "a", "a")
		for range n / 2 {
			x = d.of("Add", x, d.floats("a", "a", "a"))
		}
		d.output(x)
	}},
	{"lengths that are equated in a row", func(d *drawing, n int) {
		x := d.floats("s", 4)
		for range n / 2 {
			y := d.floats(d.name(), 4)
			d.output(d.add("Concat", []string{x, y}, "axis", 1))
			x = y
		}
	}},
	{"lengths that are equated backwards", func(d *drawing, n int) {
		var rows []string
		for range n / 2 {
			rows = append(rows, d.floats(d.name(), 4))
		}
		for i := len(rows) - 1; i > 0; i-- {
			d.output(d.add("Concat", []string{rows[i-1], rows[i]}, "axis", 1))
		}
	}},
	{"Reshapes to lengths that no input has", func(d *drawing, n int) {
		for range n / 4 {
			x := d.of("NonZero", d.floats("batch", "seq"))
			d.output(d.of("Reshape", d.floats("rows", 4), d.of("Shape", x)))
		}
	}},
	{"softmaxes whose score chains are one", func(d *drawing, n int) {
		q, k, v := d.heads()
		x := nested(n/2, d.of("MatMul", q, k),
			func(x string) string { return d.of("Mul", x, d.constant(graph.FloatTensor("", nil, 2))) })
		for range 16 {
			d.output(d.of("MatMul", d.of("Softmax", x), v))
		}
	}},
	{"huge constants as shapes", func(d *drawing, n int) {
		x := d.floats("batch", "seq", 64)
		for range n / 2 {
			x = d.of("Expand", x, d.ints(1<<31, 1<<31, 1<<31))
			x = d.of("Reshape", x, d.ints(math.MaxInt64, -1))
		}
		d.output(x)
	}},
	{"long lists of lengths", func(d *drawing, n int) {
		list := d.ints(make([]int64, 4096)...)
		for range n {
			list = d.of("Add", list, list)
		}
		d.output(list)
	}},
}

// encoded is a graph of about n nodes as a file.
func encoded(t testing.TB, drawn func(*drawing, int), n int) []byte {
	t.Helper()
	d := draw()
	drawn(d, n)
	return encode(t, d)
}

func encode(t testing.TB, d *drawing) []byte {
	t.Helper()
	b := must.Value(proto.Marshal(d.model()))(t)
	return b
}

func parsed(t testing.TB, b []byte) *model.Model {
	t.Helper()
	m := must.Value(model.Parse(b, ""))(t)
	return m
}

func manifests(t testing.TB, names ...string) (list []*manifest.Manifest) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join("..", "..", "..", "plugins", name, manifest.FileName)
		data := must.Value(os.ReadFile(path))(t)
		m := must.Value(manifest.Parse(path, data))(t)
		list = append(list, m)
	}
	return list
}
