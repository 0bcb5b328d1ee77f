package comparison

import (
	"context"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/memory/shared"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/session/patch"
)

// wideOps are operators of ONNX that ONNX Runtime runs in float64 on a CPU.
var wideOps = strings.Fields(`Abs Add BatchNormalization Ceil Clip Concat Cos Cosh CumSum Div Einsum Exp Expand
	Flatten Floor Gather GatherElements GatherND Gemm Identity LayerNormalization Log LogSoftmax MatMul Max Min Mul Neg
	Pad Pow Reciprocal ReduceMax ReduceMean ReduceMin ReduceSum Relu Reshape Round ScatterElements ScatterND Sigmoid
	Sign Sin Slice Softmax Split Sqrt Squeeze Sub Tanh Tile Transpose Trilu Unsqueeze Where`)

// openWide opens the model with every operator of wideOps in float64: a reference that rounds less than any session of
// the model does. What others read is rounded to its type, and inputs and outputs keep theirs.
func openWide(ctx context.Context, l *ort.Library, path string, o Options) (*session.Session, error) {
	widen := func(session.Request) (*session.Patch, error) {
		m, err := model.Open(path)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		g, err := graph.New(m.Proto(), m)
		if err != nil {
			return nil, err
		}
		(&widening{graph.Infer(g)}).graph(g, nil)
		out, err := patch.Serialize(m, m.Proto(), true, false, shared.Never)
		if err != nil {
			return nil, err
		}
		return &session.Patch{Model: out.Model, ExternalFolder: out.Folder, Weights: out.Weights}, nil
	}
	return session.OpenContext(ctx, l, path, session.Options{IntraOpThreads: o.Threads,
		Optimization: session.OptimizeNone, LogSeverity: session.LogFatal, Patcher: widen})
}

type widening struct{ shapes *graph.Shapes }

// graph writes a graph anew. wide are the float64 values of the graphs around it, by the names of what they stand for.
func (w *widening) graph(g *graph.Graph, around map[string]string) {
	wide := maps.Clone(around)
	if wide == nil {
		wide = map[string]string{}
	}
	var nodes []*onnx.Node
	cast := func(from, to string, t onnx.Tensor_DataType) {
		nodes = append(nodes, &onnx.Node{OpType: proto.String("Cast"), Input: []string{from}, Output: []string{to},
			Attribute: []*onnx.Attribute{{Name: proto.String("to"), Type: onnx.Attribute_INT.Enum(),
				I: proto.Int64(int64(t))}}})
	}
	widen := func(v *graph.Value) {
		if v != nil && w.narrow(v) && slices.ContainsFunc(v.Uses, func(u graph.Use) bool { return w.wide(u.Node) }) {
			wide[v.Name] = g.FreshName(v.Name + "_float64")
			cast(v.Name, wide[v.Name], onnx.Tensor_DOUBLE)
		}
	}
	for _, v := range g.Inputs {
		widen(v)
	}
	for _, t := range g.Proto.Initializer {
		if v := g.Lookup(t.GetName()); !v.IsInput {
			widen(v)
		}
	}
	for _, n := range g.Nodes {
		for _, body := range n.Subgraphs {
			w.graph(body, wide)
		}
		nodes = append(nodes, n.Proto)
		if !w.wide(n) {
			for _, v := range n.Out {
				widen(v)
			}
			continue
		}
		if n.Is("Cast") {
			n.Proto.OpType, n.Proto.Attribute = proto.String("Identity"), nil
		}
		for i, name := range n.Proto.Input {
			if to := wide[name]; to != "" {
				n.Proto.Input[i] = to
			}
		}
		for i, v := range n.Out {
			if v != nil && w.narrow(v) {
				wide[v.Name] = g.FreshName(v.Name + "_float64")
				n.Proto.Output[i] = wide[v.Name]
				cast(wide[v.Name], v.Name, w.shapes.Of(v).DType)
			}
		}
	}
	g.Proto.Node = nodes
}

// wide says of a node that it runs in float64.
func (w *widening) wide(n *graph.Node) bool {
	return n.Output(0) != nil && w.narrow(n.Output(0)) &&
		(n.Is(wideOps...) || n.Is("Cast") && n.Input(0) != nil && w.narrow(n.Input(0)))
}

// narrow says of a value that float64 rounds it less than its type.
func (w *widening) narrow(v *graph.Value) bool {
	t := w.shapes.Of(v).DType
	return t == onnx.Tensor_FLOAT || t == onnx.Tensor_FLOAT16 || t == onnx.Tensor_BFLOAT16
}
