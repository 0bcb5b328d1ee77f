package random

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// jittered is a model in which what sums give is multiplied by random numbers that are 1 but for a rounding: each
// kernel adds in an order of its own. Numbers that masks hide by stay.
func jittered(b []byte, seed uint64) ([]byte, error) {
	m, err := model.Parse(b, "")
	if err != nil {
		return nil, err
	}
	defer m.Close()
	g, err := graph.New(m.Proto(), m)
	if err != nil {
		return nil, err
	}
	shapes := graph.Infer(g)
	j := &jitter{graph: &onnx.Graph{}, seed: float32(seed)}
	kinds := map[string]onnx.Tensor_DataType{}
	for _, n := range g.Nodes {
		if out := n.Output(0); out != nil && n.Is("Add", "Sub", "MatMul", "Gemm", "com.microsoft.FusedMatMul") {
			kinds[out.Name] = shapes.Of(out).DType
		}
	}
	p := &onnx.Model{}
	if err := proto.Unmarshal(b, p); err != nil {
		return nil, err
	}
	for _, n := range p.Graph.Node {
		j.graph.Node = append(j.graph.Node, n)
		if len(n.Output) > 0 && (kinds[n.Output[0]] == f32 || kinds[n.Output[0]] == f16) {
			j.add(n, kinds[n.Output[0]])
		}
	}
	p.Graph.Node, p.Graph.Initializer = j.graph.Node, append(p.Graph.Initializer, j.graph.Initializer...)
	return proto.Marshal(p)
}

// jitter collects nodes.
type jitter struct {
	graph *onnx.Graph
	seed  float32
}

// add puts the noise after a node whose first output is of a kind.
func (j *jitter) add(n *onnx.Node, kind onnx.Tensor_DataType) {
	j.seed += 4
	name := n.Output[0]
	exact := name + "/exact"
	n.Output[0] = exact
	eps := math.Ldexp(1, -24)
	if kind == f16 {
		eps = math.Ldexp(1, -11)
		exact = j.node("Cast", []string{exact}, name+"/wide", "to", int64(f32))
	}
	random := j.node("RandomUniformLike", []string{exact}, name+"/random", "dtype", int64(f32), "low", float32(-eps),
		"high", float32(eps), "seed", j.seed)
	by := j.node("Mul", []string{exact, random}, name+"/by")
	moved := j.node("Add", []string{exact, by}, name+"/sum")
	size := j.node("Abs", []string{exact}, name+"/size")
	limit := name + "/limit"
	j.graph.Initializer = append(j.graph.Initializer,
		&onnx.Tensor{Name: proto.String(limit), DataType: proto.Int32(int32(f32)), RawData: append32(nil, 1e6)})
	small := j.node("Less", []string{size, limit}, name+"/small")
	if kind == f32 {
		j.node("Where", []string{small, moved, exact}, name)
		return
	}
	j.node("Cast", []string{j.node("Where", []string{small, moved, exact}, name+"/moved")}, name, "to", int64(f16))
}

// node appends a node with one output and returns that.
func (j *jitter) node(op string, in []string, out string, attributes ...any) string {
	n := &onnx.Node{OpType: proto.String(op), Name: proto.String(out), Input: in, Output: []string{out}}
	for i := 0; i < len(attributes); i += 2 {
		a := &onnx.Attribute{Name: proto.String(attributes[i].(string))}
		switch x := attributes[i+1].(type) {
		case int64:
			a.Type, a.I = onnx.Attribute_INT.Enum(), proto.Int64(x)
		case float32:
			a.Type, a.F = onnx.Attribute_FLOAT.Enum(), proto.Float32(x)
		default:
			panic(fmt.Sprintf("an attribute of type %T", x))
		}
		n.Attribute = append(n.Attribute, a)
	}
	j.graph.Node = append(j.graph.Node, n)
	return out
}
