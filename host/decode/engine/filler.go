package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/rewrite"
)

// fillWrite is the filler's input of slots.
const fillWrite = "graft.write"

// openFiller makes the session that computes an encoder's keys and values, from
// the decoder that is exported without a past, and puts them into the cross pool.
func (e *Engine) openFiller(path string, o Options) error {
	m, err := model.Open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	p := m.Proto()
	if err := takeBranch(p, false); err != nil {
		return err
	}
	var made []*onnx.ValueInfo
	for _, layer := range e.face.Layers {
		for _, name := range []string{layer.Key, layer.Value} {
			out := "present" + strings.TrimPrefix(name, "past_key_values")
			made = append(made, &onnx.ValueInfo{Name: proto.String(out), Type: graph.TensorType(onnx.Tensor_FLOAT)})
		}
	}
	part, err := extract(p, made, nil)
	if err != nil {
		return err
	}
	g := part.Graph
	g.Input = append(g.Input,
		&onnx.ValueInfo{Name: proto.String(rewrite.CrossCacheInput), Type: graph.TensorType(onnx.Tensor_FLOAT, "blocks", "floats")},
		&onnx.ValueInfo{Name: proto.String(fillWrite), Type: graph.TensorType(onnx.Tensor_INT32, "slots")})
	g.Output = nil
	for i := range e.face.Layers {
		done := fmt.Sprintf("graft.stored.%d", i)
		key, keyLayout := untransposed(g, made[2*i].GetName())
		value, valueLayout := untransposed(g, made[2*i+1].GetName())
		g.Node = append(g.Node, &onnx.Node{OpType: proto.String("StoreCache"), Domain: proto.String(plugin.Domain),
			Name:   proto.String(done),
			Input:  []string{key, value, rewrite.CrossCacheInput, fillWrite},
			Output: []string{done}, Attribute: []*onnx.Attribute{
				text("key_layout", keyLayout), text("value_layout", valueLayout),
				integer("kv_num_heads", e.face.Cross.KVHeads), integer("head_size", e.face.Cross.HeadSize),
				integer("value_size", e.face.Cross.ValueSize), integer("offset", int64(i)*16*e.face.Cross.KVHeads*(e.face.Cross.HeadSize+e.face.Cross.ValueSize))}})
		g.Output = append(g.Output, &onnx.ValueInfo{Name: proto.String(done), Type: graph.TensorType(onnx.Tensor_INT32, 1)})
	}
	part.OpsetImport = append(part.OpsetImport[:len(part.OpsetImport):len(part.OpsetImport)],
		&onnx.OperatorSet{Domain: proto.String(plugin.Domain), Version: proto.Int64(1)})
	p.Graph, p.OpsetImport = g, part.OpsetImport
	e.filler, err = newSession(m, o, nil)
	return err
}

// untransposed is a value as it was before heads were moved in front of
// positions, with its layout: what stores it reads it either way.
func untransposed(g *onnx.Graph, name string) (from, layout string) {
	for _, n := range g.Node {
		if n.GetOpType() != "Transpose" || n.Output[0] != name {
			continue
		}
		for _, a := range n.Attribute {
			if a.GetName() == "perm" && slices.Equal(a.Ints, []int64{0, 2, 1, 3}) {
				return n.Input[0], "bshd"
			}
		}
	}
	return name, "bhsd"
}

func text(name, v string) *onnx.Attribute {
	return &onnx.Attribute{Name: proto.String(name), Type: onnx.Attribute_STRING.Enum(), S: []byte(v)}
}

// fillCross computes keys and values of an encoder's output (1, positions, width)
// into the slots.
func (e *Engine) fillCross(ctx context.Context, hidden *ort.Value, slots []int32) error {
	f := &feeder{library: e.library, values: map[string]*ort.Value{rewrite.CrossCacheInput: e.cross.tensor}}
	defer f.close()
	add(f, fillWrite, slots, int64(len(slots)))
	for _, info := range e.filler.Inputs() {
		switch {
		case f.values[info.Name] != nil:
		case info.Element == ort.Float32:
			f.values[info.Name] = hidden
		default:
			// Lengths of tokens or of masks that the graph reads and nothing stored depends on.
			add(f, info.Name, []int64{1}, 1, 1)
		}
	}
	if f.err != nil {
		return f.err
	}
	results, err := e.filler.Run(ctx, f.values)
	if err != nil {
		return err
	}
	for _, v := range results {
		v.Close()
	}
	return nil
}
