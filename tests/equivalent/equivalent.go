// Package equivalent rewrites the graph of a model in other ways that compute the same,
// as another exporter or optimizer might have written it: operands commuted,
// reshapes and transposes split and merged, scales moved, copies put in, values
// renamed, nodes in another order. Recognition must not notice.
package equivalent

import (
	"math"
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// Variant is a model written in another way.
type Variant struct {
	Model *onnx.Model
	Names map[string]string // new name of a constant to the one it had
	Steps map[string]int    // how often each rule was applied
}

// Original is a model whose variants are made.
type Original struct {
	Model   *onnx.Model
	Tensors graph.Tensors

	facts []graph.Fact // of the values, in the order of each
}

// Read looks at a model once, for any number of variants.
func Read(m *onnx.Model, tensors graph.Tensors) (*Original, error) {
	g, err := graph.New(m, tensors)
	if err != nil {
		return nil, err
	}
	o := &Original{Model: m, Tensors: tensors}
	shapes := graph.Infer(g)
	values(g, func(v *graph.Value) { o.facts = append(o.facts, shapes.Of(v)) })
	return o, nil
}

// values calls f for all that nodes read and make, in the nodes' order.
func values(g *graph.Graph, f func(*graph.Value)) {
	g.Walk(func(n *graph.Node) {
		for _, v := range slices.Concat(n.In, n.Out) {
			f(v)
		}
	})
}

// Vary writes a model in another way that the seed picks. The model itself is
// left alone; its constants are shared with the variant.
func (o *Original) Vary(seed uint64) (*Variant, error) {
	p := proto.Clone(o.Model).(*onnx.Model)
	g, err := graph.New(p, o.Tensors)
	if err != nil {
		return nil, err
	}
	d := &writer{rand: rand.New(rand.NewPCG(seed, 0x726564726177)),
		facts: map[*graph.Value]graph.Fact{}, names: map[string]string{}, steps: map[string]int{}}
	i := 0
	values(g, func(v *graph.Value) {
		d.facts[v] = o.facts[i]
		i++
	})
	order := slices.Clone(rules)
	d.rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, r := range order {
		d.apply(g, r)
	}
	d.shuffle(g)
	if err := g.Sort(); err != nil {
		return nil, err
	}
	g.Prune()
	if err := g.Commit(); err != nil {
		return nil, err
	}
	if d.rand.IntN(4) > 0 {
		d.rename(p)
	}
	return &Variant{p, d.names, d.steps}, nil
}

// rule writes one node in another way. It returns false, and leaves the graph as
// it was, where it does not fit.
type rule struct {
	name  string
	apply func(d *writer, n *graph.Node) bool
}

// writer makes a variant.
type writer struct {
	rand  *rand.Rand
	facts map[*graph.Value]graph.Fact
	names map[string]string
	steps map[string]int
}

// apply tries a rule on each node that stands now, at a rate chosen for it: never,
// here and there, or nearly everywhere.
func (d *writer) apply(g *graph.Graph, r rule) {
	rate := []float64{0, 0.02, 0.1, 0.25}[d.rand.IntN(4)]
	if rate == 0 {
		return
	}
	var nodes []*graph.Node
	g.Walk(func(n *graph.Node) { nodes = append(nodes, n) })
	for _, n := range nodes {
		if d.rand.Float64() < rate && slices.Contains(n.Graph.Nodes, n) && r.apply(d, n) {
			d.steps[r.name]++
		}
	}
}

// of is what is known of a value.
func (d *writer) of(v *graph.Value) graph.Fact {
	if f, ok := d.facts[v]; ok {
		return f
	}
	return graph.Fact{Rank: -1}
}

// node writes a node with one output, of which this much is known.
func (d *writer) node(g *graph.Graph, op string, known graph.Fact, in []*graph.Value,
	attributes ...*onnx.Attribute) *graph.Value {
	n, err := g.AddNode(&onnx.Node{OpType: proto.String(op), Attribute: attributes}, in, []string{g.FreshName("variant")})
	if err != nil {
		panic(err) // a fresh name is never taken
	}
	d.facts[n.Out[0]] = known
	return n.Out[0]
}

// like is a fact with other lengths.
func like(f graph.Fact, dims ...graph.Dim) graph.Fact {
	return graph.Fact{DType: f.DType, Rank: len(dims), Dims: dims}
}

// constant writes a constant as an initializer or as a node.
func (d *writer) constant(g *graph.Graph, t *onnx.Tensor) *graph.Value {
	known := graph.Fact{DType: onnx.Tensor_DataType(t.GetDataType()), Rank: len(t.Dims)}
	for _, n := range t.Dims {
		known.Dims = append(known.Dims, graph.DimInt(n))
	}
	if d.rand.IntN(2) == 0 {
		v := g.AddInitializer(t)
		d.facts[v] = known
		return v
	}
	v := d.node(g, "Constant", known, nil,
		&onnx.Attribute{Name: proto.String("value"), Type: onnx.Attribute_TENSOR.Enum(), T: t})
	v.Tensor = t
	return v
}

func (d *writer) ints(g *graph.Graph, list ...int64) *graph.Value {
	return d.constant(g, graph.Int64Tensor("", []int64{int64(len(list))}, list...))
}

// number writes a floating scalar; only float32 has one here.
func (d *writer) number(g *graph.Graph, x float64) *graph.Value {
	dims := [][]int64{nil, {1}}[d.rand.IntN(2)]
	return d.constant(g, graph.FloatTensor("", dims, float32(x)))
}

func intAttribute(name string, i int64) *onnx.Attribute {
	return &onnx.Attribute{Name: proto.String(name), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(i)}
}

func intsAttribute(name string, list []int64) *onnx.Attribute {
	return &onnx.Attribute{Name: proto.String(name), Type: onnx.Attribute_INTS.Enum(), Ints: list}
}

// replace lets a new value stand for the only output of a node, which goes.
func (d *writer) replace(n *graph.Node, to *graph.Value) {
	g := n.Graph
	g.Replace(n.Out[0], to)
	g.Remove(n)
}

// sole reports a value that one place reads and that does not leave its graph.
func sole(v *graph.Value) bool {
	return v.Producer != nil && len(v.Uses) == 1 && !v.IsOutput && v.Uses[0].Node.Graph == v.Graph
}

// scalar is the number that a value holds at load time.
func (d *writer) scalar(v *graph.Value) (float64, bool) {
	if v == nil {
		return 0, false
	}
	if x, ok := d.of(v).Scalar(); ok {
		return x, true
	}
	if list, ok := v.Floats(); ok && len(list) == 1 {
		return list[0], true
	}
	return 0, false
}

// factor splits a float32 product or quotient with a number into the rest and
// what that is multiplied by.
func (d *writer) factor(n *graph.Node) (x *graph.Value, c float64, ok bool) {
	if !n.Is("Mul", "Div") || d.of(n.Out[0]).DType != onnx.Tensor_FLOAT {
		return nil, 0, false
	}
	for i := range 2 {
		c, is := d.scalar(n.Input(i))
		other := n.Input(1 - i)
		_, both := d.scalar(other)
		if !is || both || c == 0 || math.IsInf(c, 0) || n.Is("Div") && i == 0 || d.of(other).Rank != d.of(n.Out[0]).Rank {
			continue
		}
		if n.Is("Div") {
			c = 1 / c
		}
		return other, c, true
	}
	return nil, 0, false
}

// scaled writes x times a number, in one of several ways.
func (d *writer) scaled(x *graph.Value, c float64) *graph.Value {
	g, f := x.Graph, d.of(x)
	known := like(f, f.Dims...)
	switch d.rand.IntN(4) {
	case 0:
		return d.node(g, "Div", known, []*graph.Value{x, d.number(g, 1/c)})
	case 1:
		return d.node(g, "Mul", known, []*graph.Value{d.number(g, c), x})
	case 2:
		if c > 0 {
			half := d.node(g, "Mul", known, []*graph.Value{x, d.number(g, math.Sqrt(c))})
			return d.node(g, "Mul", known, []*graph.Value{half, d.number(g, math.Sqrt(c))})
		}
	}
	return d.node(g, "Mul", known, []*graph.Value{x, d.number(g, c)})
}

// shuffle puts the nodes of all graphs in a random order; sorting puts it right.
func (d *writer) shuffle(g *graph.Graph) {
	d.rand.Shuffle(len(g.Nodes), func(i, j int) { g.Nodes[i], g.Nodes[j] = g.Nodes[j], g.Nodes[i] })
	for _, n := range g.Nodes {
		for _, s := range n.Subgraphs {
			d.shuffle(s)
		}
	}
}
