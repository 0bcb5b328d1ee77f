package graph

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// typed declares a value, in the notation of parseFact.
func typed(t *testing.T, name, text string) *onnx.ValueInfo {
	t.Helper()
	f := parseFact(t, text)
	tensor := &onnx.Type_TensorType{ElemType: proto.Int32(int32(f.DType))}
	if f.Rank >= 0 {
		tensor.Shape = &onnx.Shape{}
		for _, d := range f.Dims {
			dim := &onnx.Shape_Dim{}
			if n, ok := d.Const(); ok {
				dim.Value = &onnx.Shape_Dim_DimValue{DimValue: n}
			} else if d.Known() {
				dim.Value = &onnx.Shape_Dim_DimParam{DimParam: d.String()}
			}
			tensor.Shape.Dim = append(tensor.Shape.Dim, dim)
		}
	}
	return &onnx.ValueInfo{Name: proto.String(name), Type: &onnx.Type{Value: &onnx.Type_TensorType_{TensorType: tensor}}}
}

// node reads "out1, out2 = Op(in1, in2)"; names may be empty.
func node(t *testing.T, text string, attrs attrs) *onnx.Node {
	t.Helper()
	left, right, ok := strings.Cut(text, "=")
	op, inputs, ok2 := strings.Cut(strings.TrimSuffix(strings.TrimSpace(right), ")"), "(")
	if !ok || !ok2 {
		t.Fatalf("no node: %q", text)
	}
	n := &onnx.Node{OpType: proto.String(op)}
	if domain, name, ok := strings.Cut(op, ":"); ok {
		n.Domain, n.OpType = proto.String(domain), proto.String(name)
	}
	for _, s := range strings.Split(left, ",") {
		n.Output = append(n.Output, strings.TrimSpace(s))
	}
	if inputs != "" {
		for _, s := range strings.Split(inputs, ",") {
			n.Input = append(n.Input, strings.TrimSpace(s))
		}
	}
	for name, value := range attrs {
		n.Attribute = append(n.Attribute, attribute(name, value))
	}
	return n
}

func inferred(t *testing.T, p *onnx.Graph) (*Graph, *Shapes) {
	t.Helper()
	g := must.Value(New(&onnx.Model{Graph: p,
		OpsetImport: []*onnx.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(21)}}}, stored{}))(t)
	return g, Infer(g)
}

// expect compares facts of values of the main graph, given as name: text.
func expect(t *testing.T, g *Graph, s *Shapes, want map[string]string) {
	t.Helper()
	for name, text := range want {
		v := g.Lookup(name)
		if v == nil {
			t.Errorf("no value %q", name)
			continue
		}
		must.Equal(t, s.text(s.Of(v)), text, name)
	}
}

func TestInferAttentionAsTorchScriptExportsIt(t *testing.T) {
	g, s := inferred(t, &onnx.Graph{
		Input: []*onnx.ValueInfo{typed(t, "x", "f32[batch, seq, 192]"), typed(t, "past", "f32[batch, 4, past, 16]")},
		Initializer: []*onnx.Tensor{
			Int64Tensor("two", nil, 2), Int64Tensor("zero", []int64{1}, 0), Int64Tensor("minus", []int64{1}, -1),
			Int64Tensor("far", []int64{1}, 1<<63-1), Int64Tensor("four", []int64{1}, 4), Int64Tensor("size", []int64{1}, 16),
			Int64Tensor("one", nil, 1), FloatTensor("onef", nil, 1),
		},
		Node: []*onnx.Node{
			node(t, "q, k, v = Split(x)", attrs{"axis": 2}),
			node(t, "shape = Shape(q)", nil),
			node(t, "b = Gather(shape, zero)", nil),
			node(t, "s0 = Gather(shape, one)", nil),
			node(t, "s = Unsqueeze(s0, zero)", nil),
			node(t, "to = Concat(b, s, four, size)", attrs{"axis": 0}),
			node(t, "q4 = Reshape(q, to)", nil),
			node(t, "qt = Transpose(q4)", attrs{"perm": []int64{0, 2, 1, 3}}),
			node(t, "k4 = Reshape(k, to)", nil),
			node(t, "kt = Transpose(k4)", attrs{"perm": []int64{0, 2, 1, 3}}),
			node(t, "present = Concat(past, kt)", attrs{"axis": -2}),
			node(t, "pt = Transpose(present)", attrs{"perm": []int64{0, 1, 3, 2}}),
			node(t, "qshape = Shape(qt)", nil),
			node(t, "last = Slice(qshape, minus, far, zero)", nil),
			node(t, "lastf = Cast(last)", attrs{"to": int(onnx.Tensor_FLOAT)}),
			node(t, "root = Sqrt(lastf)", nil),
			node(t, "scale = Div(onef, root)", nil),
			node(t, "scores = MatMul(qt, pt)", nil),
			node(t, "scaled = Mul(scores, scale)", nil),
		},
		Output: []*onnx.ValueInfo{{Name: proto.String("scaled")}},
	})
	expect(t, g, s, map[string]string{
		"to":      "i64[4]{batch, seq, 4, 16}",
		"qt":      "f32[batch, 4, seq, 16]",
		"present": "f32[batch, 4, past + seq, 16]",
		"scale":   "f32[1](0.25)",
		"scaled":  "f32[batch, 4, seq, past + seq]",
	})
	must.Equal(t, s.Symbols(), []string{"batch", "seq", "past"})
}

func TestInferExpandAsTorchScriptExportsIt(t *testing.T) {
	g, s := inferred(t, &onnx.Graph{
		Input: []*onnx.ValueInfo{typed(t, "mask", "i64[batch, past + seq]"), typed(t, "ids", "i64[batch, seq]")},
		Initializer: []*onnx.Tensor{Int64Tensor("axes", []int64{2}, 1, 2), Int64Tensor("minus", nil, -1),
			Int64Tensor("one", []int64{1}, 1)},
		Node: []*onnx.Node{
			node(t, "m = Unsqueeze(mask, axes)", nil),
			node(t, "bs = Shape(ids)", attrs{"end": 1}),
			node(t, "ss = Shape(ids)", attrs{"start": 1}),
			node(t, "ts = Shape(mask)", attrs{"start": 1}),
			node(t, "want = Concat(bs, one, ss, ts)", attrs{"axis": 0}),
			node(t, "n = Shape(want)", nil),
			node(t, "ones = ConstantOfShape(n)", attrs{"value": Int64Tensor("", []int64{1}, 1)}),
			node(t, "negative = Mul(ones, minus)", nil),
			node(t, "keep = Equal(want, negative)", nil),
			node(t, "size = Where(keep, ones, want)", nil),
			node(t, "e = Expand(m, size)", nil),
		},
		Output: []*onnx.ValueInfo{{Name: proto.String("e")}},
	})
	expect(t, g, s, map[string]string{
		"keep": "bool[4]{0, 0, 0, 0}",
		"e":    "i64[batch, 1, seq, mask.1]", // nothing shows what the model says of it
	})
}

func TestInferUsesDeclarationsWhereNothingIsBetter(t *testing.T) {
	g, s := inferred(t, &onnx.Graph{
		Input: []*onnx.ValueInfo{typed(t, "x", "f32[batch, ?, 4]"), typed(t, "y", "f32[b, ?, 4]")},
		Node: []*onnx.Node{
			node(t, "found = NonZero(x)", nil),
			node(t, "rows = NonZero(x)", nil),
			node(t, "right = Relu(x)", nil),
			node(t, "mystery = custom:Op(x)", nil),
			node(t, "hidden = custom:Op(x)", nil),
			node(t, "after = Transpose(rows)", nil),
			node(t, "sum = Add(x, y)", nil),
		},
		ValueInfo: []*onnx.ValueInfo{
			typed(t, "found", "i64[3, count]"),
			typed(t, "right", "f32[9, 9, 5]"), // wrong: what is found stands
			typed(t, "mystery", "f16[batch, ?, n + 1]"),
			typed(t, "after", "i64[7, 3]"), // better than the symbol that was made for rows
			typed(t, "sum", "f32[both, other, 4]"),
		},
		Output: []*onnx.ValueInfo{typed(t, "right", "f32*")},
	})
	expect(t, g, s, map[string]string{
		"x":       "f32[batch, x.1, 4]",
		"found":   "i64[3, count]",
		"rows":    "i64[3, ?]",
		"right":   "f32[batch, x.1, 4]",
		"mystery": "f16[?, ?, ?]",
		"hidden":  "?*",
		"after":   "i64[7, 3]",
		"sum":     "f32[both, other, 4]",
	})
	want := []string{"batch", "b", "count", "both", "other", "x.1", "y.1", "rows.1", "mystery.0", "mystery.1", "mystery.2"}
	must.Equal(t, s.Symbols(), want)
	if s.Invented("batch") || !s.Invented("x.1") || !s.Invented("rows.1") {
		t.Error("invented symbols are confused with those of the model")
	}
}

func TestInferNamesNothingTwice(t *testing.T) {
	g, s := inferred(t, &onnx.Graph{
		Input:  []*onnx.ValueInfo{typed(t, "x", "f32[?, x.0]"), typed(t, "one", "f32[?]")},
		Node:   []*onnx.Node{node(t, "y = Identity(x)", nil)},
		Output: []*onnx.ValueInfo{{Name: proto.String("y")}},
	})
	x := s.Of(g.Lookup("x"))
	if x.Dims[0].Equal(x.Dims[1]) {
		t.Errorf("two lengths go by one name: %v", x.Dims)
	}
	if !s.Of(g.Lookup("y")).Dims[0].Equal(x.Dims[0]) {
		t.Error("a symbol is lost on the way")
	}
	// A length that is declared as a number's digits is no number.
	in := typed(t, "z", "f32[?]")
	in.Type.GetTensorType().Shape.Dim[0].Value = &onnx.Shape_Dim_DimParam{DimParam: "1"}
	g, s = inferred(t, &onnx.Graph{Input: []*onnx.ValueInfo{in}})
	if d := s.Of(g.Lookup("z")).Dims[0]; d.Is(1) || !d.Known() {
		t.Errorf("a length named \"1\" is %s", d)
	}
}

func branch(t *testing.T, out string, nodes ...*onnx.Node) *onnx.Graph {
	return &onnx.Graph{Node: nodes, Output: []*onnx.ValueInfo{{Name: proto.String(out)}}}
}

func TestInferIf(t *testing.T) {
	concat := branch(t, "grown", node(t, "grown = Concat(past, x)", attrs{"axis": 1}))
	reuse := branch(t, "kept", node(t, "kept = Identity(x)", nil))
	g, s := inferred(t, &onnx.Graph{
		Input: []*onnx.ValueInfo{typed(t, "use", "bool[1]"), typed(t, "x", "f32[batch, seq]"),
			typed(t, "past", "f32[batch, past]")},
		Initializer: []*onnx.Tensor{Int64Tensor("zero", nil, 0)},
		Node: []*onnx.Node{
			node(t, "y = If(use)", attrs{"then_branch": concat, "else_branch": reuse}),
			node(t, "r = Shape(x)", nil),
			node(t, "never = Greater(zero, r)", nil),
			node(t, "first = Gather(never, zero)", nil),
			node(t, "z = If(first)", attrs{
				"then_branch": branch(t, "p", node(t, "p = Shape(past)", nil)),
				"else_branch": branch(t, "x"), // names a value of the graph around it
			}),
		},
		ValueInfo: []*onnx.ValueInfo{typed(t, "y", "f32[batch, declared]")},
		Output:    []*onnx.ValueInfo{{Name: proto.String("y")}, {Name: proto.String("z")}},
	})
	expect(t, g, s, map[string]string{
		"y": "f32[batch, ?]",   // what is declared cannot be true of both branches
		"z": "f32[batch, seq]", // no length is below zero
	})
	for _, sub := range g.Nodes[0].Subgraphs {
		for name, want := range map[string]string{"grown": "f32[batch, past + seq]", "kept": "f32[batch, seq]"} {
			if v := sub.values[name]; v != nil {
				must.Equal(t, s.text(s.Of(v)), want, name)
			}
		}
	}
}

func TestInferIfTakesTheBranchThatIsCertain(t *testing.T) {
	g, s := inferred(t, &onnx.Graph{
		Input:       []*onnx.ValueInfo{typed(t, "x", "f32[1, n]")},
		Initializer: []*onnx.Tensor{Int64Tensor("one", []int64{1}, 1), Int64Tensor("zero", []int64{1}, 0)},
		Node: []*onnx.Node{
			node(t, "first = Shape(x)", attrs{"end": 1}),
			node(t, "isOne = Equal(first, one)", nil),
			node(t, "y = If(isOne)", attrs{
				"then_branch": branch(t, "a", node(t, "a = Squeeze(x, zero)", nil)),
				"else_branch": branch(t, "b", node(t, "b = Identity(x)", nil)),
			}),
		},
		Output: []*onnx.ValueInfo{{Name: proto.String("y")}},
	})
	expect(t, g, s, map[string]string{"y": "f32[n]"})
}

// loopBody is the body of a Loop that carries c and d and puts out rows.
func loopBody(t *testing.T, cond string, nodes ...*onnx.Node) *onnx.Graph {
	return &onnx.Graph{
		Input: []*onnx.ValueInfo{{Name: proto.String("i")}, {Name: proto.String("on")}, {Name: proto.String("c")},
			{Name: proto.String("d")}},
		Node: nodes,
		Output: []*onnx.ValueInfo{{Name: proto.String(cond)}, {Name: proto.String("c2")}, {Name: proto.String("d2")},
			{Name: proto.String("row")}},
	}
}

func TestInferLoop(t *testing.T) {
	body := func() *onnx.Graph {
		return loopBody(t, "on2",
			node(t, "on2 = Identity(on)", nil),
			node(t, "c2 = Relu(c)", nil),
			node(t, "d2 = Concat(d, x)", attrs{"axis": 1}),
			node(t, "row = ReduceSum(c)", attrs{"keepdims": 0}),
		)
	}
	g, s := inferred(t, &onnx.Graph{
		Input:       []*onnx.ValueInfo{typed(t, "x", "f32[batch, seq]"), typed(t, "start", "f32[batch, past]")},
		Initializer: []*onnx.Tensor{Int64Tensor("trips", nil, 5)},
		Node: []*onnx.Node{
			node(t, "c9, d9, rows = Loop(trips, , x, start)", attrs{"body": body()}),
			node(t, "n = Size(x)", nil),
			node(t, "c8, d8, rows8 = Loop(n, , x, start)", attrs{"body": body()}),
			node(t, "on0 = IsNaN(n)", nil),
			node(t, "c7, d7, rows7 = Loop(trips, on0, x, start)", attrs{"body": body()}),
		},
		Output: []*onnx.ValueInfo{{Name: proto.String("c9")}},
	})
	expect(t, g, s, map[string]string{
		"c9": "f32[batch, seq]", "d9": "f32[?, ?]", "rows": "f32[5]",
		"rows8": "f32[batch*seq]",
		"c7":    "f32[batch, seq]", "rows7": "f32[?]",
	})
	sub := g.Nodes[0].Subgraphs[0]
	must.Equal(t, s.text(s.Of(sub.values["i"])), "i64[]")
	// The carried value has another length in every iteration, but its
	// successor is longer by x.
	d, d2 := s.Of(sub.values["d"]), s.Of(sub.values["d2"])
	if !d2.Dims[1].Equal(d.Dims[1].Add(DimSym("seq"))) || d.Dims[1].Equal(DimSym("past")) {
		t.Errorf("carried: %s, then %s", d.Dims[1], d2.Dims[1])
	}
}

func TestInferNestedLoopsInBoundedTime(t *testing.T) {
	// Each level goes through its body again when lengths change.
	body := loopBody(t, "on",
		node(t, "c2 = Concat(c, c)", attrs{"axis": 0}), node(t, "d2 = Transpose(d)", nil), node(t, "row = Relu(d)", nil))
	for range 30 {
		body = loopBody(t, "on",
			node(t, "c2, d2, row = Loop(i, on, c, d)", attrs{"body": body}))
	}
	g, s := inferred(t, &onnx.Graph{
		Input:       []*onnx.ValueInfo{typed(t, "x", "f32[batch, seq]")},
		Initializer: []*onnx.Tensor{Int64Tensor("trips", nil, 5)},
		Node:        []*onnx.Node{node(t, "c9, d9, rows = Loop(trips, , x, x)", attrs{"body": body})},
		Output:      []*onnx.ValueInfo{{Name: proto.String("c9")}},
	})
	expect(t, g, s, map[string]string{"c9": "f32*"})
}

func TestInferScan(t *testing.T) {
	body := &onnx.Graph{
		Input: []*onnx.ValueInfo{{Name: proto.String("state")}, {Name: proto.String("step")}},
		Node: []*onnx.Node{
			node(t, "next = Add(state, step)", nil),
			node(t, "seen = Identity(next)", nil),
		},
		Output: []*onnx.ValueInfo{{Name: proto.String("next")}, {Name: proto.String("seen")}},
	}
	g, s := inferred(t, &onnx.Graph{
		Input: []*onnx.ValueInfo{typed(t, "x", "f32[batch, seq, 8]"), typed(t, "h", "f32[batch, 8]")},
		Node: []*onnx.Node{node(t, "end, all = Scan(h, x)", attrs{
			"body": body, "num_scan_inputs": 1, "scan_input_axes": []int64{1}, "scan_output_axes": []int64{-1},
		})},
		Output: []*onnx.ValueInfo{{Name: proto.String("all")}},
	})
	expect(t, g, s, map[string]string{"end": "f32[?, 8]", "all": "f32[?, 8, seq]"})
}

func TestInferLeavesTheModelsOwnFunctionsAlone(t *testing.T) {
	m := &onnx.Model{
		Graph: &onnx.Graph{
			Input:  []*onnx.ValueInfo{typed(t, "x", "f32[a]")},
			Node:   []*onnx.Node{node(t, "y = Relu(x)", nil)},
			Output: []*onnx.ValueInfo{{Name: proto.String("y")}},
		},
		Functions: []*onnx.Function{{Name: proto.String("Relu"), Domain: proto.String("ai.onnx")}},
	}
	g := must.Value(New(m, stored{}))(t)
	expect(t, g, Infer(g), map[string]string{"y": "?*"})
}

func TestOfConstantsThatComeLater(t *testing.T) {
	g, s := inferred(t, &onnx.Graph{Input: []*onnx.ValueInfo{typed(t, "x", "f32[a]")}})
	v := g.AddInitializer(FloatTensor("scale", nil, 0.125))
	if x, ok := s.Of(v).Scalar(); !ok || x != 0.125 {
		t.Errorf("got %v %v", x, ok)
	}
	if f := s.Of(nil); f.Rank != -1 || f.Dim(0).Known() || f.Count().Known() {
		t.Errorf("nothing is known of no value, got %v", f)
	}
	f := s.Of(g.Lookup("x"))
	if !f.Dim(-1).Equal(DimSym("a")) || f.Dim(1).Known() || f.Dim(-2).Known() {
		t.Errorf("axes of %v", f)
	}
}

func TestInferStaysWithinItsLimits(t *testing.T) {
	wide := make([]int64, 1000)
	for i := range wide {
		wide[i] = 1
	}
	p := &onnx.Graph{
		Input: []*onnx.ValueInfo{typed(t, "x", "f32[n]")},
		Initializer: []*onnx.Tensor{
			Int64Tensor("wide", []int64{1000}, wide...),
			{Name: proto.String("huge"), DataType: proto.Int32(1), Dims: []int64{1 << 40, 1 << 40}},
			{Name: proto.String("negative"), DataType: proto.Int32(1), Dims: []int64{-1}},
			{Name: proto.String("deep"), DataType: proto.Int32(1), Dims: wide},
		},
		Node: []*onnx.Node{
			node(t, "a = Reshape(x, wide)", nil),
			node(t, "b = ConstantOfShape(wide)", nil),
			node(t, "c = Relu(huge)", nil),
			node(t, "d = Relu(negative)", nil),
			node(t, "e = Relu(deep)", nil),
		},
		Output: []*onnx.ValueInfo{{Name: proto.String("a")}},
	}
	g, s := inferred(t, p)
	expect(t, g, s, map[string]string{"a": "f32*", "b": "f32*", "c": "f32*", "d": "f32*", "e": "f32*"})

	// Elements are followed only so far.
	p = &onnx.Graph{Initializer: []*onnx.Tensor{Int64Tensor("c0", []int64{4000}, make([]int64, 4000)...)}}
	for i := range 1000 {
		p.Node = append(p.Node, node(t, fmt.Sprintf("c%d = Add(c%d, c0)", i+1, i), nil))
	}
	g, s = inferred(t, p)
	if s.Of(g.Lookup("c9")).Elems == nil {
		t.Error("a short chain is not followed")
	}
	if f := s.Of(g.Lookup("c1000")); f.Elems != nil || !f.Dim(0).Is(4000) {
		t.Errorf("a long chain: %d elements, shape %v", len(f.Elems), f.Dims)
	}
	if s.elements > elementsBudget {
		t.Errorf("%d elements are kept", s.elements)
	}
}

// TestReshapeWithDeclaredNumbers: of two lengths that a list leaves open, the model declares one.
func TestReshapeWithDeclaredNumbers(t *testing.T) {
	g, s := inferred(t, &onnx.Graph{
		Input: []*onnx.ValueInfo{typed(t, "x", "f32[batch, seq, 64]"), typed(t, "text", "i64[1]")},
		Initializer: []*onnx.Tensor{Int64Tensor("minus", []int64{1}, -1), Int64Tensor("size", []int64{1}, 16),
			Int64Tensor("zero", []int64{1}, 0)},
		Node: []*onnx.Node{
			node(t, "to = Concat(zero, text, minus, size)", attrs{"axis": 0}),
			node(t, "heads = Reshape(x, to)", nil),
		},
		ValueInfo: []*onnx.ValueInfo{typed(t, "heads", "f32[batch, length, 4, 16]")},
		Output:    []*onnx.ValueInfo{{Name: proto.String("heads")}},
	})
	expect(t, g, s, map[string]string{"heads": "f32[batch, seq, 4, 16]"})
}
