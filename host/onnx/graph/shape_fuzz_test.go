package graph

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// decisions reads decisions off a list of bytes; at its end all of them are zero.
type decisions struct{ rest []byte }

func (d *decisions) below(n int) int {
	if len(d.rest) == 0 {
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return int(b) % n
}

func pickOf[T any](d *decisions, list ...T) T { return list[d.below(len(list))] }

func (d *decisions) number() int64 {
	return pickOf[int64](d, 0, 1, -1, 2, 3, 4, -2, 64, 5, 1<<31, math.MaxInt64, math.MinInt64, 1<<40, -7)
}

func (d *decisions) numbers() []int64 {
	list := make([]int64, d.below(6))
	for i := range list {
		list[i] = d.number()
	}
	return list
}

// shape makes a declaration.
func (d *decisions) shape() *onnx.Type {
	tensor := &onnx.Type_TensorType{ElemType: proto.Int32(pickOf[int32](d, 1, 7, 9, 10, 6, 2, 0, 99))}
	if d.below(8) > 0 {
		tensor.Shape = &onnx.Shape{}
		for range d.below(6) {
			dim := &onnx.Shape_Dim{}
			switch d.below(4) {
			case 0:
				dim.Value = &onnx.Shape_Dim_DimValue{DimValue: d.number()}
			case 1, 2:
				dim.Value = &onnx.Shape_Dim_DimParam{DimParam: pickOf(d, "batch", "seq", "past + seq", "a*b", "2*(n + 1) - n",
					"v0.0", "1", "?")}
			}
			tensor.Shape.Dim = append(tensor.Shape.Dim, dim)
		}
	}
	return &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: tensor}}
}

func (d *decisions) constant(name string) *onnx.Tensor {
	list := d.numbers()
	dims := []int64{int64(len(list))}
	if len(list) == 1 && d.below(2) == 0 {
		dims = nil
	}
	switch d.below(5) {
	case 0:
		floats := make([]float32, len(list))
		for i, n := range list {
			floats[i] = float32(n) / 2
		}
		return FloatTensor(name, dims, floats...)
	case 1:
		return &onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(1), Dims: d.numbers()} // without data
	}
	return Int64Tensor(name, dims, list...)
}

var fuzzAttributes = []string{"axis", "axes", "perm", "keepdims", "to", "num_heads", "kv_num_heads", "q_num_heads",
	"start", "end",
	"split", "num_outputs", "allowzero", "batch_dims", "kernel_shape", "strides", "pads", "dilations", "group",
	"blocksize", "hidden_size",
	"num_scan_inputs", "scan_input_axes", "scan_output_axes", "N", "bits", "transA", "transB", "starts", "ends", "shape",
	"k",
	"noop_with_empty_axes", "fmod", "dtype", "layout", "ceil_mode", "output_padding", "output_shape", "qkv_hidden_sizes",
	"value",
	"past_present_share_buffer", "gather_axis", "sample_size", "stash_type"}

// randomGraph makes a graph that reads the names of the graph around it too.
func randomGraph(d *decisions, ops []string, prefix string, outer []string, depth int) *onnx.Graph {
	p := &onnx.Graph{}
	names := slices.Clone(outer)
	add := func() string {
		name := fmt.Sprint(prefix, "v", len(names))
		names = append(names, name)
		return name
	}
	for range d.below(5) {
		p.Input = append(p.Input, &onnx.ValueInfo{Name: proto.String(add()), Type: d.shape()})
	}
	for range d.below(6) {
		p.Initializer = append(p.Initializer, d.constant(add()))
	}
	for i := range d.below(12) {
		op := ops[(d.below(256)*256+d.below(256))%len(ops)]
		n := &onnx.Node{OpType: proto.String(op)}
		if at := strings.LastIndex(op, "."); at >= 0 {
			n.Domain, n.OpType = proto.String(op[:at]), proto.String(op[at+1:])
		}
		for range d.below(8) {
			if len(names) == 0 || d.below(8) == 1 {
				n.Input = append(n.Input, "")
				continue
			}
			n.Input = append(n.Input, names[len(names)-1-d.below(min(len(names), 24))])
		}
		for range d.below(5) {
			name := fuzzAttributes[d.below(len(fuzzAttributes))]
			switch d.below(4) {
			case 0, 1:
				n.Attribute = append(n.Attribute, &onnx.Attribute{Name: proto.String(name), I: proto.Int64(d.number())})
			case 2:
				n.Attribute = append(n.Attribute, &onnx.Attribute{Name: proto.String(name), Ints: d.numbers()})
			case 3:
				n.Attribute = append(n.Attribute, &onnx.Attribute{Name: proto.String(name), T: d.constant("")})
			}
		}
		if op == "Einsum" {
			n.Attribute = append(n.Attribute,
				attribute("equation", pickOf(d, "ij,jk->ik", "...i,...i", "ii->i", "->", ",", "...", "a...b...->c")))
		}
		if depth < 3 && (op == "If" || op == "Loop" || op == "Scan" || d.below(40) == 1) {
			for _, name := range []string{"body", "then_branch", "else_branch"} {
				body := randomGraph(d, ops, fmt.Sprint(prefix, i, name[:1], "."), names, depth+1)
				n.Attribute = append(n.Attribute, attribute(name, body))
			}
		}
		for range 1 + d.below(4) {
			if d.below(10) == 1 {
				n.Output = append(n.Output, "")
				continue
			}
			name := add()
			n.Output = append(n.Output, name)
			if d.below(4) == 1 {
				p.ValueInfo = append(p.ValueInfo, &onnx.ValueInfo{Name: proto.String(name), Type: d.shape()})
			}
		}
		p.Node = append(p.Node, n)
	}
	for range d.below(5) {
		if len(names) > 0 {
			p.Output = append(p.Output, &onnx.ValueInfo{Name: proto.String(names[d.below(len(names))])})
		}
	}
	return p
}

// checkRandom infers a random graph and checks that the facts hold together.
func checkRandom(t *testing.T, data []byte) (nodes int) {
	t.Helper()
	ops := append(slices.Sorted(maps.Keys(rules)), "Unheard.Of")
	d := &decisions{data}
	opset := pickOf[int64](d, 21, 9, 11, 13, 18, 23)
	p := randomGraph(d, ops, "", nil, 0)
	g, err := New(&onnx.Model{Graph: p,
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(opset)}}}, stored{})
	if err != nil {
		return 0 // an output that is named twice, say
	}
	s := Infer(g)
	known := map[string]bool{}
	for _, name := range s.Symbols() {
		if known[name] {
			t.Errorf("symbol %q is listed twice", name)
		}
		known[name] = true
	}
	checkFacts(t, g, s)
	g.Walk(func(n *Node) {
		nodes++
		for _, v := range n.Out {
			for _, x := range s.Of(v).Dims {
				for _, name := range x.Symbols() {
					if !known[name] {
						t.Fatalf("%s: %s depends on %q, which is not listed", n, x, name)
					}
				}
			}
		}
	})
	return nodes
}

func TestInferRandomGraphs(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	nodes := 0
	for range 5000 {
		data := make([]byte, r.IntN(1500))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		nodes += checkRandom(t, data)
	}
	if nodes < 5000 {
		t.Errorf("only %d nodes were made", nodes)
	}
}

func FuzzInfer(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		data := make([]byte, 400)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		must.CostLittle(t, len(data), func() { checkRandom(t, data) })
	})
}

func FuzzParseDim(f *testing.F) {
	for _, s := range []string{"batch", "past + seq", "2*(n + 1) - n", "((((", "a-b", " - "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		must.CostLittle(t, len(name), func() {
			d := parseDim(name)
			if len(d.all()) > maxDimTerms+1 {
				t.Errorf("%q has %d terms", name, len(d.all()))
			}
			at := map[string]int64{}
			for _, s := range d.Symbols() {
				at[s] = 3
			}
			d.Eval(at)
		})
	})
}
